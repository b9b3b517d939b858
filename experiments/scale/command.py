"""Simulate large fleets, compute larger ones, and write the page and the figure of `docs/`.

Takes some minutes of one core; --small shows in seconds what it does.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.bench.drawn import draw_scale
from experiments.bench.scale import SIZES, both_paths
from experiments.scale.page import Results, page_of
from experiments.scale.places import IN_GROUPS, IN_TURN, PLACES
from experiments.scale.resources import decision_s
from experiments.scale.simulated import Simulated, Work, place_of, simulated
from experiments.terminal.exits import keeping
from experiments.terminal.printing import progress, remark
from fleet.files import check_folder, write_file

AGES_S = (0.0, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3)
PAGE, FIGURE = "scale.md", "scale.png"
DRAFTERS, ROUTED = 1000, 50
SMALL_DRAFTERS, SMALL_AGES_S, SMALL_SIZES = 4, (0.0, 50e-3), (2, 4)


def main() -> None:
    """Write page and figure into a folder."""
    parser = argparse.ArgumentParser(prog="python -m experiments.scale", description=__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of page and figure")
    parser.add_argument("--small", action="store_true", help="tiny fleets")
    options = parser.parse_args()
    check_folder(options.out)
    with keeping(options.out):
        if options.small:
            write(options.out, SMALL_DRAFTERS, SMALL_DRAFTERS, SMALL_AGES_S, SMALL_SIZES)
        else:
            write(options.out, DRAFTERS, ROUTED, AGES_S, SIZES)


def write(out: Path, drafters: int, routed: int, ages_s: Sequence[float], sizes: Sequence[int]) -> None:
    """Simulate fleets of so many drafters, and routers over so many, and write what came out."""
    fleets = [Work(place, drafters, mode) for place in range(len(PLACES)) for mode in (IN_TURN, IN_GROUPS)]
    greedy = [place for place, one in enumerate(PLACES) if one.temperature == 0]
    routers = [Work(place, routed, view_s=age_s) for place in greedy for age_s in ages_s]
    with progress("scale", len(fleets) + len(routers) + 1) as advance:

        def done(work: Work) -> Simulated:
            came = simulated(work)
            advance(f"{place_of(work).name}, {work.mode}")
            return came

        results = Results(
            [done(work) for work in fleets], [done(work) for work in routers], drafters, decision_s(drafters)
        )
        costs = both_paths(sizes)
        advance("memory and time")
    draw_scale(costs, out / FIGURE)
    write_file(out / PAGE, page_of(results))
    for name in (PAGE, FIGURE):
        remark(f"written: {out / name}")
