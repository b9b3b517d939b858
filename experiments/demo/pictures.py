"""What the demo draws: throughput against N, and a timeline."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from specfleet.experiments.demo.cells import SIM_SEEDS, DemoCell, cell_name
from specfleet.experiments.demo.findings import errors_of, level_from, replayed_cases, rows_of
from specfleet.experiments.draw import Drawn
from specfleet.figures import throughput, timeline
from specfleet.fleet.records.metrics.window import Metric
from specfleet.sim.predict import predict

SHOWN = "throughput"


def draw_demo(cells: Sequence[DemoCell]) -> dict[str, Drawn]:
    """Return the figures with their captions, by name."""
    cases = replayed_cases(cells)
    few, many = cases[0][0], cases[0][-1]
    panels = {
        f"{cell_name(cell.scenario)}: {predict(cell.scenario).regime}": cell.runs[0].frame() for cell in (few, many)
    }
    curves = throughput.draw(throughput_table(cases), marks_table(cases))
    sources = f"Engine: median and range of {len(few.runs)} runs. Simulation: 95 % of single runs, from the profile."
    return {
        "throughput-vs-n": (curves, f"{sources} Bonus tokens count."),
        "timeline": (
            timeline.draw(panels),
            "Steps of two measured runs, about three iterations each; numbers: the target of a draft.",
        ),
    }


def throughput_table(cases: Sequence[Sequence[DemoCell]]) -> pd.DataFrame:
    """One row a case, source and N, in the form that the throughput figure takes."""
    rows = []
    for cell in (cell for case in cases for cell in case):
        place = {"case": cell.scenario.name, "N": cell.targets}
        rows.append(place | {"source": "sim"} | single_runs(cell.blind[SHOWN]))
        rows.append(place | {"source": "engine"} | range_of([run[SHOWN] for run in cell.reruns.engine]))
        rows.append(place | {"source": "analytic", SHOWN: predict(cell.scenario).throughput.with_bonus})
    return pd.DataFrame(rows)


def single_runs(metric: Metric) -> dict[str, float]:
    """A simulated mean over SIM_SEEDS runs, and the 95 % prediction interval of one more run."""
    half = math.sqrt(SIM_SEEDS + 1) * (metric.high - metric.low) / 2
    return {SHOWN: metric.value, f"{SHOWN}_low": metric.value - half, f"{SHOWN}_high": metric.value + half}


def range_of(runs: Sequence[Metric]) -> dict[str, float]:
    """Median of several runs, the least and the largest of them."""
    values = [run.value for run in runs]
    return {SHOWN: float(np.median(values)), f"{SHOWN}_low": min(values), f"{SHOWN}_high": max(values)}


def marks_table(cases: Sequence[Sequence[DemoCell]]) -> pd.DataFrame:
    """N_full of each case by the equation and as measured, and the mean blind error of its cells."""
    rows: list[Mapping[str, object]] = []
    for case in cases:
        prediction, errors = predict(case[0].scenario), errors_of(rows_of(case))
        rows.append(
            {
                "case": case[0].scenario.name, "N_full": prediction.N_full,
                "N_full_measured": level_from(case, "rounds_per_s"), "error": errors.blind,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)
