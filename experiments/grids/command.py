"""Whether plans are right: random questions answered by a plan and by a full grid: `python -m experiments.grids`.

The grid simulates every fleet of a question with seeds that the plan has not seen, those among which its best is more
often than a plan does. Exit status 1 where a plan's fleet is worse than the grid's best by more than it says.
"""

import argparse
import math
import os
from pathlib import Path

import msgspec
import pandas as pd

from experiments.grids.held import Held, held
from experiments.grids.questions import question_of
from experiments.terminal.exits import keeping
from experiments.terminal.numbers import whole
from experiments.terminal.printing import print_table, progress
from fleet.files import check_writable, write_file

QUESTIONS = 20


def main() -> int:
    """Answer the questions, print the table; exit status 1 where a plan was worse than it says."""
    parser = argparse.ArgumentParser(prog="python -m experiments.grids", description=__doc__)
    parser.add_argument("--questions", type=whole, default=QUESTIONS, help="how many; even numbers are closed loops")
    parser.add_argument("--pairs", type=whole, default=1, help="pairs of places to choose from, in each question")
    parser.add_argument("--jobs", type=whole, default=os.cpu_count() or 1, help="simulations at once")
    parser.add_argument("-o", "--out", type=Path, help="write the table here, too (CSV)")
    options = parser.parse_args()
    if options.out is not None:
        check_writable(options.out)
    with keeping(options.out):
        return tell(options.questions, options.pairs, options.jobs, options.out)


def tell(questions: int, pairs: int, jobs: int, out: Path | None) -> int:
    """Hold so many plans against their grids, print and write the table; return the exit status."""
    rows: list[Held] = []
    with progress("plans", questions) as advance:
        for number in range(questions):
            rows.append(held(question_of(number, pairs), jobs))
            advance(rows[-1].question)
    worse, same = (sum(row.verdict == verdict for row in rows) for verdict in ("WORSE", "best"))
    title = f"plans against full grids: {same} of {len(rows)} are the grid's best, {worse} worse than they say"
    print_table(title, HEADINGS, [texts(row) for row in rows], texts=3)
    if out is not None:
        table: str = pd.DataFrame([msgspec.structs.asdict(row) for row in rows]).to_csv(index=False)
        write_file(out, table)
    return 1 if worse else 0


HEADINGS = ("question", "plan", "grid's best", "excess cost", "goal missed by", "simulated", "of fleets", "verdict")


def texts(row: Held) -> tuple[str, ...]:
    """One row of the printed table."""
    return (
        row.question, row.chosen, row.best, shown(row.excess), shown(row.miss),
        str(row.simulated), str(row.fleets), row.verdict,
    )  # fmt: skip


def shown(share: float) -> str:
    """A share with its sign, where there is one."""
    return f"{share:+.1%}" if math.isfinite(share) else "-"
