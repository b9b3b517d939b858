"""What the demo leaves behind: figures, a trace, and the lines that it prints."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.compare import Comparison
from experiments.demo.cells import SIM_SEEDS, Cell
from experiments.draw import NO_PREFILL, draw, where_measured
from figures import throughput, timeline
from figures.style import save
from fleet.records.paces import paces_of
from fleet.records.trace import write_trace
from fleet.records.window import Metric
from fleet.scenario.names import DRAFTER
from fleet.scenario.settle import settle
from fleet.times.profile import HardwareProfile
from sim.predict import predict, star_inputs

SHOWN = ("throughput", "throughput_per_target")


def draw_demo(
    folder: Path, profile: HardwareProfile, cells: Sequence[Cell], baselines: Sequence[Cell]
) -> dict[str, Path]:
    """Draw all figures and write the trace; return their paths by what they show."""
    measured_at = where_measured(profile)
    paths = {
        "throughput against N": folder / "throughput-vs-n.png",
        "timeline": folder / "timeline.png",
        "draft time after idle gaps": folder / "draft-time.png",
        "calibration residuals": folder / "residuals.png",
        "trace for ui.perfetto.dev": folder / "trace.json",
    }
    save(
        throughput.draw(throughput_table(cells), marks_table(cells, baselines)),
        paths["throughput against N"],
        "Committed tokens a second (bonus tokens included) of the demo pair at depth "
        f"{cells[0].scenario.drafters.depth}, greedy, on held-out prompts. Engine: processes over ZeroMQ; replayed "
        "targets compare the real draft with a continuation decoded beforehand and wait for a stated verification time "
        f"t_v; real targets take turns on one host. Simulation: mean of {SIM_SEEDS} seeds, from a profile that was "
        "calibrated before these runs on other prompts; squares: the same at the pace that this shared host had during "
        "each engine run, by a control computation. A point without a bar is of a run that was too short for an "
        f"interval, or still changing. {NO_PREFILL} {measured_at}",
    )
    replayed = [cell for cell in cells if cell.scenario.verifiers.kind == "replayed"]
    few, many = replayed_extremes(replayed)
    save(
        timeline.draw({panel_title(cell): cell.engine_run.frame() for cell in (few, many)}),
        paths["timeline"],
        "Steps of the engine in two measured runs, about three iterations each (numbers: the target that a draft is "
        f"for). In the upper panel the drafter idles, in the lower one it is the bottleneck. {measured_at}",
    )
    write_trace(many.engine_run, paths["trace for ui.perfetto.dev"])
    draw("draft-time", profile, paths["draft time after idle gaps"])
    draw("residuals", profile, paths["calibration residuals"])
    return paths


def throughput_table(cells: Sequence[Cell]) -> pd.DataFrame:
    """One row a case, source and N, in the form that the throughput figure takes."""
    rows = []
    for cell in cells:
        place = {"case": cell.case["targets"], "N": cell.case["N"], "kind": cell.scenario.verifiers.kind}
        for source, metrics in (("sim", cell.blind), ("paced", cell.sim), ("engine", cell.engine)):
            rows.append(place | {"source": source} | _columns(metrics))
        if cell.scenario.verifiers.kind == "replayed":  # the equations know no shared device
            prediction = predict(cell.scenario)
            values = (prediction.throughput.with_bonus, prediction.throughput_per_target.with_bonus)
            none = float("nan")
            rows.append(
                place
                | {"source": "analytic"}
                | {
                    name + ending: value if not ending else none
                    for name, value in zip(SHOWN, values, strict=True)
                    for ending in ("", "_low", "_high")
                }
            )
    return pd.DataFrame(rows)


def _columns(metrics: dict[str, Metric]) -> dict[str, float]:
    return {
        name + ending: getattr(metrics[name], attribute)
        for name in SHOWN
        for ending, attribute in (("", "value"), ("_low", "low"), ("_high", "high"))
    }


def marks_table(cells: Sequence[Cell], baselines: Sequence[Cell]) -> pd.DataFrame:
    """N_full, N_max and the two baselines of each case.

    Real targets: baselines measured here. Replayed ones: their stated times, the draft time measured here.
    """
    measured = {cell.case["targets"]: cell.engine["throughput"].value for cell in baselines}
    rows = []
    for case in dict.fromkeys(cell.case["targets"] for cell in cells):
        scenario = next(cell.scenario for cell in cells if cell.case["targets"] == case)
        if scenario.verifiers.kind == "replayed":
            prediction, inputs = predict(scenario), star_inputs(settle(scenario))
            baseline = inputs.colocated_tokens_per_s, inputs.standalone_tokens_per_s
            rows.append((case, prediction.N_full, prediction.N_max, *baseline))
        else:
            rows.append((case, math.nan, math.nan, measured["co-located"], measured["standalone"]))
    return pd.DataFrame(rows, columns=["case", "N_full", "N_max", "colocated_tokens_per_s", "standalone_tokens_per_s"])


def replayed_extremes(cells: Sequence[Cell]) -> tuple[Cell, Cell]:
    """Return the cells with few and with many targets at the shorter verification time."""
    shorter = min(cells, key=lambda cell: star_inputs(settle(cell.scenario)).verify_s).case["targets"]
    same = sorted((cell for cell in cells if cell.case["targets"] == shorter), key=lambda cell: cell.case["N"])
    few = next((cell for cell in same if cell.case["N"] == 2), same[0])
    many = next((cell for cell in same if cell.case["N"] == 4), same[-1])
    return few, many


def panel_title(cell: Cell) -> str:
    """Title of a timeline panel."""
    return f"{cell.case['targets']}, N = {cell.case['N']}: {predict(cell.scenario).regime}"


def plateau_rows(cells: Sequence[Cell]) -> list[tuple[str, float, float, float, float]]:
    """For each verification time: case, measured plateau of R_q over R_q at N = 1, its interval, and 1 + Z/S.

    The plateau is the mean over N >= N_full; the interval is that of a ratio of independent means.
    """
    rows = []
    replayed = [cell for cell in cells if cell.scenario.verifiers.kind == "replayed"]
    for case in dict.fromkeys(cell.case["targets"] for cell in replayed):
        same = [cell for cell in replayed if cell.case["targets"] == case]
        alone = next(cell.engine["rounds_per_s"] for cell in same if cell.case["N"] == 1)
        prediction = predict(same[0].scenario)
        full = [cell.engine["rounds_per_s"] for cell in same if cell.case["N"] >= prediction.N_full]
        plateau = float(np.mean([metric.value for metric in full]))
        errors = [(metric.high - metric.low) / 2 / metric.value for metric in full]
        plateau_error = math.sqrt(sum(error**2 for error in errors)) / len(errors)
        alone_error = (alone.high - alone.low) / 2 / alone.value
        ratio = plateau / alone.value
        half = ratio * math.hypot(plateau_error, alone_error)
        rows.append((case, ratio, ratio - half, ratio + half, prediction.plateau_ratio))
    return rows


def paces_text(profile: HardwareProfile, cells: Sequence[Cell]) -> str:
    """How slow the drafter's host was in the engine's runs, in words: least, largest and median of their means."""
    paces = [paces_of(cell.engine_run, profile.control_s).get(DRAFTER) for cell in cells]
    means = [float(np.mean(pace.slowness)) for pace in paces if pace is not None]
    if not means:
        return "not measured on this device"
    return f"{min(means):.2f} to {max(means):.2f}, median {np.median(means):.2f}"


def findings(
    profile: HardwareProfile,
    cells: Sequence[Cell],
    baselines: Sequence[Cell],
    comparison: Comparison,
    blind: Comparison,
) -> list[str]:
    """Return the lines to print: errors, the plateau, replays."""
    lines = [f"profile {comparison.profile_digest}, written {profile.provenance['written']}, before the runs"]
    for how, rows in (("at the pace of each run", comparison.rows), ("blind", blind.rows)):
        for kind in ("replayed", "real"):
            for quantity in ("rounds_per_s", "throughput"):
                chosen = (row for row in rows if row.quantity == quantity and row.case["targets"].startswith(kind))
                errors = [abs(row.error) for row in chosen]
                lines.append(
                    f"{kind} targets, {quantity}, {how}: mean absolute error {np.mean(errors):.1%}, "
                    f"worst {max(errors):.1%} over {len(errors)} cells"
                )
    lines.append(f"pace of the host during the runs, 1 as in the profile: {paces_text(profile, cells)}")
    for case, ratio, low, high, expected in plateau_rows(cells):
        interval = "too short a run for an interval" if math.isnan(low) else f"{low:.2f} .. {high:.2f}"
        lines.append(f"{case}: plateau of R_q over R_q at N = 1: {ratio:.2f} ({interval}), 1 + Z/S = {expected:.2f}")
    lines += [
        f"{cell.case['targets']} baseline: engine {cell.engine['throughput'].value:.0f} tokens/s, "
        f"simulation {cell.sim['throughput'].value:.0f}"
        for cell in baselines
    ]
    contradictions = [line for cell in [*cells, *baselines] for line in cell.contradictions]
    logs = 2 * (len(cells) + len(baselines))
    lines.append(f"replay of {logs} logs on fresh stations: {contradictions or 'no contradiction'}")
    return lines


def where_to_find(folder: Path, pictures: dict[str, Path]) -> list[str]:
    """Return the lines that say where everything is."""
    return [
        *(f"{what}: {path}" for what, path in pictures.items()),
        f"table: {folder / 'comparison.json'}; profile: {folder / 'profile.json'}; records: {folder / 'records'}",
    ]
