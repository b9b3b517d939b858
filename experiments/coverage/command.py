"""How often the printed 95 % intervals hold the truth: `python -m experiments.coverage`, 400 seeds a setting.

Open arrivals at the drafter are M/M/1, where the truth is known exactly; closed stars are held against one long run.
"""

import argparse
import math
from pathlib import Path

import msgspec
import pandas as pd

from experiments.coverage.counted import Covered, covered
from experiments.coverage.settings import settings
from experiments.terminal.exits import keeping
from experiments.terminal.numbers import whole
from experiments.terminal.printing import number, print_table, progress
from fleet.files import check_writable, write_file

SEEDS = 400


def main() -> int:
    """Run all settings, or those whose name holds a text; exit status 1 where an interval does not keep its promise."""
    parser = argparse.ArgumentParser(prog="python -m experiments.coverage", description=__doc__)
    parser.add_argument("--seeds", type=whole, default=SEEDS, help="runs a setting")
    parser.add_argument("--only", default="", help="settings whose name holds this text")
    parser.add_argument("-o", "--out", type=Path, help="write the table here, too (CSV)")
    options = parser.parse_args()
    if options.out is not None:
        check_writable(options.out)
    with keeping(options.out):
        return tell(options.only, options.seeds, options.out)


def tell(only: str, seeds: int, out: Path | None) -> int:
    """Count the settings whose name holds a text, print the table, and write it; return the exit status."""
    chosen = [setting for setting in settings() if only in setting.name]
    rows: list[Covered] = []
    with progress("coverage", len(chosen)) as advance:
        for setting in chosen:
            rows += covered(setting, seeds)
            advance(setting.name)
    print_table(f"coverage of 95 % intervals over {seeds} seeds", HEADINGS, [texts(row) for row in rows], texts=2)
    if out is not None:
        table: str = pd.DataFrame([msgspec.structs.asdict(row) for row in rows]).to_csv(index=False)
        write_file(out, table)
    return 0 if all(row.kept for row in rows) else 1


HEADINGS = ("setting", "metric", "truth", "source", "printed", "coverage", "bias", "would need", "kept")


def texts(row: Covered) -> tuple[str, ...]:
    """One row of the printed table."""
    return (
        row.setting, row.metric, number(row.truth), row.source, f"{row.printed:.0%}",
        "-" if math.isnan(row.coverage) else f"{row.coverage:.1%}", f"{row.bias:+.1%}",
        "-" if row.times_longer == 1 else f"{row.times_longer:.3g}x", "yes" if row.kept else "NO",
    )  # fmt: skip
