"""Our engine beside others: tokens/s of the same models, prompts and loops on one core, in turn.

A ratio is ours over the other's in the same pass, its range over passes. Others are taken if they are installed.
"""

import argparse
from contextlib import ExitStack

import numpy as np

from bench.harness import Options, Report, Row
from bench.others import ENGINES
from bench.outside import running_on, scenario_with
from specfleet.experiments.console.printing import remark
from specfleet.fleet.records.metrics.measure import measure

OWN = "own"
KINDS = {"none": 0, "small model": 4}  # ways to draft, by depth

OPTIONS: Options = {
    "--engines": {"nargs": "*", "choices": ENGINES, "default": ["vllm", "llama-cpp"], "help": "others"},
    "--rows": {"type": int, "nargs": "*", "default": [1, 2, 4, 8, 16], "help": "requests at once"},
    "--passes": {"type": int, "default": 3, "help": "runs of each cell"},
}


def study(options: argparse.Namespace) -> Report:
    """Run every cell on every engine, once before any a second time."""
    engines = (OWN, *options.engines)
    cells = [(kind, depth, rows) for kind, depth in KINDS.items() for rows in options.rows]
    found: dict[tuple[str, int, str], list[float]] = {}
    with ExitStack() as stack:
        run_on = {engine: stack.enter_context(running_on(engine)) for engine in engines if engine != OWN}
        for number in range(options.passes):
            for kind, depth, rows in cells:
                scenario = scenario_with(kind, depth, {"streams": rows, "requests": 8 + 4 * rows})
                for engine in engines:
                    remark(f"pass {number + 1}: {kind}, {rows} at once, {engine}")
                    if engine == OWN:
                        with running_on(OWN) as own:  # only here may this process keep to one core
                            run = own(scenario)
                    else:
                        run = run_on[engine](scenario)
                    found.setdefault((kind, rows, engine), []).append(measure(run)["throughput"].value)
    table = [line_of(kind, rows, {engine: found[kind, rows, engine] for engine in engines}) for kind, _, rows in cells]
    return Report({"tokens/s, median of passes; ours over theirs (least to largest)": table})


def line_of(kind: str, rows: int, found: dict[str, list[float]]) -> Row:
    """Return the line of a cell: medians, and ratios pass by pass."""
    line: Row = {"drafts": kind, "at once": rows} | {name: float(np.median(own)) for name, own in found.items()}
    for name, theirs in found.items():
        if name != OWN:
            ratios = np.array(found[OWN]) / np.array(theirs)
            line[f"over {name}"] = f"{np.median(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f})"
    return line
