"""What approximate mean value analysis misses simulations by, and a cell's time: `python -m experiments.screening`.

Stars of like and unlike targets, drawn by a seed, are simulated; the equations are held against them by region, beside
the upper bound and, for exponential S, exact mean value analysis. Exit status 1 where a mean or a 90th percentile is
above what `sim/approximate.py` states.
"""

import argparse
import os
from pathlib import Path

import msgspec
import pandas as pd

from experiments.jobs import side_by_side
from experiments.screening.cells import ROUNDS, cells_of
from experiments.screening.missed import Missed, Seen, by_region, seconds_per_cell, seen
from experiments.terminal.exits import keeping
from experiments.terminal.numbers import seed, whole
from experiments.terminal.printing import number, print_table, progress, remark
from fleet.files import check_writable, write_file
from sim.approximate import ERRORS, Error

LIKE, UNLIKE, SEED = 240, 80, 2026
TOLERATED = 1.25  # times what is stated: another seed draws other cells


def main() -> int:
    """Draw, simulate, and print the errors; exit status 1 where they are above what is stated."""
    parser = argparse.ArgumentParser(prog="python -m experiments.screening", description=__doc__)
    parser.add_argument("--like", type=whole, default=LIKE, help="stars of like targets")
    parser.add_argument("--unlike", type=whole, default=UNLIKE, help="stars of unlike targets")
    parser.add_argument("--rounds", type=whole, default=ROUNDS, help="of a simulation")
    parser.add_argument("--seed", type=seed, default=SEED, help="of the cells and of the simulations")
    parser.add_argument("--jobs", type=whole, default=os.cpu_count() or 1, help="simulations at once")
    parser.add_argument("-o", "--out", type=Path, help="write a row a cell here, too (CSV)")
    options = parser.parse_args()
    if options.out is not None:
        check_writable(options.out)
    with keeping(options.out):
        cells = cells_of(options.like, options.unlike, options.seed)
        arguments = [(cell, options.rounds, options.seed + place) for place, cell in enumerate(cells)]
        rows: list[Seen] = []
        with progress("cells", len(cells)) as advance:
            for row in side_by_side(seen, arguments, options.jobs):
                rows.append(row)
                advance(row.region)
        return tell(rows, options.out)


def tell(rows: list[Seen], out: Path | None) -> int:
    """Print and write what was found; return the exit status."""
    regions = by_region(rows)
    title = f"error of R_q against {len(rows)} simulations: mean, 90th percentile, worst"
    print_table(title, HEADINGS, [texts(region) for region in regions], texts=1)
    times_s = {
        "2 to 48 like targets": seconds_per_cell(unlike=False),
        "8 unlike targets": seconds_per_cell(unlike=True),
    }
    cells = [(name, number(1e6 * time_s), f"{1 / time_s:,.0f}") for name, time_s in times_s.items()]
    print_table("processor time of the equations", ("stars", "us a cell", "cells a second"), cells, texts=1)
    if out is not None:
        table: str = pd.DataFrame([msgspec.structs.asdict(row) for row in rows]).to_csv(index=False)
        write_file(out, table)
    worse = [one.region for one in regions if is_worse(one)]
    for region in worse:
        remark(f"{region}: beyond {TOLERATED:g} times the error that sim/approximate.py states")
    return 1 if worse else 0


def is_worse(region: Missed) -> bool:
    """Whether a region's error is beyond what is stated of it."""
    stated = ERRORS.get(region.region)
    if stated is None:
        return False
    found = region.approximate
    return found.mean > TOLERATED * stated.mean or found.p90 > TOLERATED * stated.p90


HEADINGS = ("region", "cells", "approximate", "stated", "upper bound", "exact MVA", "simulations, +-")


def texts(one: Missed) -> tuple[str, ...]:
    """One row of the printed table."""
    return (
        one.region, str(one.cells), shown(one.approximate), shown(ERRORS.get(one.region)), shown(one.bound),
        shown(one.exact), f"{one.half_width:.1%}",
    )  # fmt: skip


def shown(error: Error | None) -> str:
    """An error in words."""
    return "-" if error is None else f"{error.mean:.1%}, {error.p90:.1%}, {error.worst:.1%}"
