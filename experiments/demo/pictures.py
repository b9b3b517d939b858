"""What the demo draws: figures, and a trace."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.demo.cells import SIM_SEEDS, DemoCell
from experiments.draw import NO_PREFILL, draw, where_measured
from figures import throughput, timeline
from figures.style import save
from fleet.records.metrics.window import Metric
from fleet.scenario.resolve import resolve
from fleet.times.profile import HardwareProfile
from sim.predict import predict, star_inputs

SHOWN = ("throughput", "throughput_per_target")


def draw_demo(folder: Path, profile: HardwareProfile, of_all: Sequence[DemoCell]) -> dict[str, Path]:
    """Draw all figures and write the trace; return their paths by what they show."""
    cells = [cell for cell in of_all if cell.planned.kind != "baseline"]
    baselines = [cell for cell in of_all if cell.planned.kind == "baseline"]
    measured_at = where_measured(profile)
    paths = {
        "throughput against N": folder / "throughput-vs-n.png",
        "timeline": folder / "timeline.png",
        "draft time after idle gaps": folder / "draft-time.png",
        "calibration residuals": folder / "residuals.png",
    }
    save(
        throughput.draw(throughput_table(cells), marks_table(cells, baselines)),
        paths["throughput against N"],
        "Committed tokens a second (bonus tokens included) of the demo pair at depth "
        f"{cells[0].scenario.drafters.depth}, greedy, on held-out prompts. Engine: processes over ZeroMQ; replayed "
        "targets compare the real draft with a continuation decoded beforehand and wait for a stated verification time "
        f"t_v; real targets are time-sliced. Points: median of {len(cells[0].runs)} runs in random order over "
        "the whole demo; bars: from the least to the largest of them; hollow: unsteady host, the runs are further off "
        f"each other than off the prediction. Simulation: mean of {SIM_SEEDS} seeds, from a profile that was "
        "calibrated before these runs on other prompts; squares: the runs with their steps and acceptance "
        "played back. "
        f"{NO_PREFILL} {measured_at}",
    )
    replayed = [cell for cell in cells if cell.planned.kind == "replayed"]
    few, many = replayed_extremes(replayed)
    save(
        timeline.draw({panel_title(cell): cell.runs[0].frame() for cell in (few, many)}),
        paths["timeline"],
        "Steps of the engine in two measured runs, about three iterations each (numbers: the target that a draft is "
        f"for). In the upper panel the drafter idles, in the lower one it is the bottleneck. {measured_at}",
    )
    draw("draft-time", profile, paths["draft time after idle gaps"])
    draw("residuals", profile, paths["calibration residuals"])
    return paths


def throughput_table(cells: Sequence[DemoCell]) -> pd.DataFrame:
    """One row a case, source and N, in the form that the throughput figure takes."""
    rows = []
    for cell in cells:
        place = {"case": cell.case["targets"], "N": cell.case["N"], "kind": cell.scenario.verifiers.kind}
        unsteady = cell.steady("throughput") is False
        rows.append(place | {"source": "sim"} | _interval_columns(cell.blind))
        rows.append(place | {"source": "engine", "unsteady": unsteady} | _median_columns(cell.reruns.engine))
        rows.append(place | {"source": "played"} | _median_columns(cell.reruns.mechanism))
        if cell.planned.kind == "replayed":  # the equations know no shared device
            prediction = predict(cell.scenario)
            values = (prediction.throughput.with_bonus, prediction.throughput_per_target.with_bonus)
            rows.append(place | {"source": "analytic"} | dict(zip(SHOWN, values, strict=True)))
    return pd.DataFrame(rows)


def _interval_columns(metrics: Mapping[str, Metric]) -> dict[str, float]:
    """Value and 95 % interval of each shown quantity."""
    return {
        name + ending: getattr(metrics[name], attribute)
        for name in SHOWN
        for ending, attribute in (("", "value"), ("_low", "low"), ("_high", "high"))
    }


def _median_columns(runs: Sequence[Mapping[str, Metric]]) -> dict[str, float]:
    """Median of several runs, the least and the largest of them, of each shown quantity."""
    values = {name: [run[name].value for run in runs] for name in SHOWN}
    statistics = (("", np.median), ("_low", np.min), ("_high", np.max))
    return {name + ending: float(of(values[name])) for name in SHOWN for ending, of in statistics}


def marks_table(cells: Sequence[DemoCell], baselines: Sequence[DemoCell]) -> pd.DataFrame:
    """N_full, N_max and the two baselines of each case.

    Real targets: baselines measured here. Replayed ones: their stated times, the draft time measured here.
    """
    measured = {cell.case["targets"]: cell.measured("throughput") for cell in baselines}
    rows = []
    for case in dict.fromkeys(cell.case["targets"] for cell in cells):
        scenario = next(cell.scenario for cell in cells if cell.case["targets"] == case)
        if scenario.verifiers.kind == "replayed":
            prediction, inputs = predict(scenario), star_inputs(resolve(scenario))
            baseline = inputs.colocated_tokens_per_s, inputs.standalone_tokens_per_s
            rows.append((case, prediction.N_full, prediction.N_max, *baseline))
        else:
            rows.append((case, math.nan, math.nan, measured["co-located"], measured["standalone"]))
    return pd.DataFrame(rows, columns=["case", "N_full", "N_max", "colocated_tokens_per_s", "standalone_tokens_per_s"])


def replayed_extremes(cells: Sequence[DemoCell]) -> tuple[DemoCell, DemoCell]:
    """Return the cells with few and with many targets at the shorter verification time."""
    shorter = min(cells, key=lambda cell: star_inputs(resolve(cell.scenario)).verify_s).case["targets"]
    same = sorted((cell for cell in cells if cell.case["targets"] == shorter), key=lambda cell: cell.case["N"])
    few = next((cell for cell in same if cell.case["N"] == 2), same[0])
    many = next((cell for cell in same if cell.case["N"] == 4), same[-1])
    return few, many


def panel_title(cell: DemoCell) -> str:
    """Title of a timeline panel."""
    return f"{cell.case['targets']}, N = {cell.case['N']}: {predict(cell.scenario).regime}"
