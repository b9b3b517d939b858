"""`python -m tests.inputs --count 3000`: mutants of every kind of file, and the table of what became of them."""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.inputs.every import EVERY
from tests.inputs.mutants import mutants_of

COLUMNS = ("refused", "right", "wrong")
HEADINGS = ("tried", "refused in one line", "run rightly", "anything else")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.inputs", description=__doc__)
    parser.add_argument("--count", type=int, default=3000, help="mutants in all, spread over the kinds")
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant of each kind")
    parser.add_argument("--kind", default="", help="only kinds whose name begins so")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--show", action="store_true", help="print every mutant")
    options = parser.parse_args()
    names = [name for name in EVERY if name.startswith(options.kind)]
    each = max(1, options.count // len(names))
    batches = [
        (name, number, min(number + 10, options.first + each))
        for number in range(options.first, options.first + each, 10)
        for name in names
    ]
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    with ProcessPoolExecutor(options.jobs, get_context("spawn"), max_tasks_per_child=50) as pool:
        for mutants in pool.map(mutants_of, *zip(*batches, strict=True)):
            for mutant in mutants:
                counts[mutant.kind][mutant.outcome.verdict] += 1
                if options.show or mutant.outcome.verdict == "wrong":
                    print(f"--- {mutant.kind} {mutant.number}: {mutant.what} ({mutant.command})", file=sys.stderr)
                    print(f"{mutant.outcome.verdict}: {mutant.outcome.says}", file=sys.stderr)
    print_table(counts)
    sys.exit(any(count["wrong"] for count in counts.values()))


def print_table(counts: dict[str, Counter[str]]) -> None:
    """Print a row a kind of file, and their sum."""
    total = sum(counts.values(), Counter[str]())
    width = max(map(len, counts)) + 2
    print("".join(heading.rjust(21) for heading in HEADINGS).rjust(width + 84))
    for name, count in (*counts.items(), ("all", total)):
        numbers: Sequence[int] = (count.total(), *(count[column] for column in COLUMNS))
        print(name.ljust(width) + "".join(str(number).rjust(21) for number in numbers))


if __name__ == "__main__":
    main()
