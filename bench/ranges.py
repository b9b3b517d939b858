"""How often the ranges that plans print hold what vLLM took: TPOT and TTFT of measured runs without speculation.

One random half of the runs sets the ranges: the middle SHARE of measured over predicted. The other half counts.
"""

import argparse
import math
from collections import defaultdict
from itertools import permutations
from pathlib import Path
from zlib import crc32

import numpy as np

from bench.harness import Aim, Options, Report, Row, data_option
from bench.serving_rows import FILE, fits, predicted, read_runs
from specfleet.experiments.plan.ranges import SERVERS, WIDEST, Errors, errors_of_runs

SHARE = 0.86
INSIDE = (80.0, 95.0)  # % of the other half
LARGE = 1 << 19  # tokens of a wave of answers, from which on a run takes long to simulate
OPTIONS: Options = {
    **data_option(FILE), "--rows": {"type": int, "default": 10_000, "help": "runs at most, at random"},
}  # fmt: skip
Ratio = tuple[str, float, float]
"""Of a run or a pair: a name, measured over predicted TPOT and TTFT."""


def study(options: argparse.Namespace) -> Report:
    """Count, by the group of a range, the runs inside, and by engine the pairs of fitted servers."""
    folder: Path = options.data or Path()
    runs = [run for run in read_runs(folder / FILE)[0] if not run.lacks and not run.doubt and run.backend in SERVERS]
    runs = [run for run in runs if run.concurrency * run.new_tokens <= LARGE]
    groups = defaultdict[Errors, list[Ratio]](list)
    loads = defaultdict[tuple[object, ...], list[tuple[int, float]]](list)
    for run in sorted(runs, key=lambda run: crc32(run.name[::-1].encode()))[: options.rows]:
        ours, errors = predicted(run), errors_of_runs(run.model, run.device)
        place = run.backend, run.model, run.device, run.devices, run.precision, run.prompt_tokens, run.new_tokens
        loads[place].append((run.concurrency, run.tpot_ms / ours.tpot_ms))
        if errors is not None and run.backend == "vllm":
            groups[errors].append((run.name, run.tpot_ms / ours.tpot_ms, run.ttft_ms / ours.ttft_ms))
    for (engine, *place), of in loads.items():
        pairs = [(str(place), other / one, math.nan) for (at, one), (to, other) in permutations(of, 2) if at != to]
        groups[SERVERS[str(engine)]] += pairs
    rows = [row for errors, of_group in groups.items() for row in covered(errors, of_group)]
    outside = sum(not INSIDE[0] <= row["inside, % of the other half"] <= INSIDE[1] for row in rows)
    return Report({"measured over predicted": rows}, [Aim("ranges beyond 80 to 95 %", outside, 0)])


def covered(errors: Errors, of_group: list[Ratio]) -> list[Row]:
    """Return the rows of a group, of TPOT and TTFT."""
    rows: list[Row] = []
    for place, name, (low, high) in ((1, "TPOT", errors.steps), (2, "TTFT", errors.ttft)):
        if high == math.inf:
            continue
        first, other = (np.array([one[place] for one in of_group if fits(one[0]) is half]) for half in (True, False))
        ends = np.quantile(first, [(1 - SHARE) / 2, (1 + SHARE) / 2])
        width = high / low
        rows.append({
            "group": errors.of, "of": name, "first half": len(first), "other half": len(other),
            "its middle": f"{ends[0]:.2f} .. {ends[1]:.2f}", "printed": f"{low:g} .. {high:g}", "width": width,
            "says": "range" if width <= WIDEST else "not known",
            "inside, % of the other half": 100 * float(np.mean((other >= low) & (other <= high))),
        })  # fmt: skip
    return rows
