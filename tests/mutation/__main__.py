"""`python -m tests.mutation --count 100 --seed 0`: random mutants of decisions and figures, and who notices."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from tests.mutation.baseline import take
from tests.mutation.sample import every_mutation, sample
from tests.mutation.trial import Trial, attempt, settle_in

LIMIT_S = 240.0  # for a mutant
JOBS = 2


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="mutants")
    parser.add_argument("--seed", type=int, default=0, help="of the sample; a smaller one is the beginning of a larger")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="specfleet-mutation-") as folder:
        tree = Path(folder) / "tree"
        copy_tree(tree)
        os.chdir(tree)
        os.environ["PYTHONPATH"] = str(tree)
        drawn = sample(every_mutation(Path(folder)), options.count, options.seed)
        baseline = take(Path(folder), sorted({str(mutation.module_path) for mutation in drawn}))
        print(f"{len(baseline.seconds)} quick tests pass unmutated, {sum(baseline.seconds.values()):.0f} s", flush=True)
        for test in baseline.failed:
            print(f"left out, for it fails or is skipped unmutated: {test}")
        with ProcessPoolExecutor(JOBS, get_context("spawn"), settle_in, (str(tree),)) as pool:
            asked = [pool.submit(attempt, each, baseline.tests_of(each), LIMIT_S) for each in drawn]
            trials = []
            for answered in as_completed(asked):
                trials.append(answered.result())
                print_trial(trials[-1])
        os.chdir(Path(folder).parent)
    print_summary(trials)
    sys.exit(any(trial.verdict in ("survived", "no test") for trial in trials))


def copy_tree(tree: Path) -> None:
    """Copy what git knows or would know, with the times of the files."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if Path(name).is_file() or Path(name).is_symlink():  # links lead to the rooms
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(name, tree / name, follow_symlinks=False)


def print_trial(trial: Trial) -> None:
    """Print a mutant's row."""
    where = f"{trial.mutation.module_path}:{trial.mutation.start_pos[0]}"
    change = trial.mutation.operator_name.removeprefix("core/").removeprefix("Replace")
    print(f"{trial.verdict:9}{where:38}{change:36}{trial.by}")
    if trial.verdict in ("survived", "no test"):
        print(f"{'':9}- {trial.before}\n{'':9}+ {trial.after}")
    sys.stdout.flush()


def print_summary(trials: list[Trial]) -> None:
    """Print how many mutants of each file were noticed, and of all."""
    verdicts: dict[str, Counter[str]] = {}
    for trial in trials:
        verdicts.setdefault(str(trial.mutation.module_path), Counter())[trial.verdict] += 1
    print(f"\n{'file':38}{'killed':>9}{'timeout':>9}{'survived':>10}{'no test':>9}")
    for name, counts in (*sorted(verdicts.items()), ("all", sum(verdicts.values(), Counter[str]()))):
        print(f"{name:38}{counts['killed']:9}{counts['timeout']:9}{counts['survived']:10}{counts['no test']:9}")
    noticed = sum(trial.verdict in ("killed", "timeout") for trial in trials)
    print(f"noticed: {noticed} of {len(trials)} ({noticed / max(len(trials), 1):.0%})")


if __name__ == "__main__":
    main()
