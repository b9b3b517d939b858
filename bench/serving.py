"""One serving target of the demo pair: closed loops and open loads, with and without drafts, simulated and run here.

Each way to draft is calibrated first, on other prompts. All cells run in turn, and again for each rerun. A table has
the error of the mechanism (simulated with a run's own steps and acceptance), of the prediction from the profile alone,
and the difference of two runs. With a run's delays played back, too, its simulation has to repeat it.
"""

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import specfleet
from bench.harness import Aim, Options, Report, Row, run
from specfleet.experiments.compare.compare import ComparedQuantity, compare_metrics, replicate, simulated_reruns
from specfleet.experiments.console.printing import remark
from specfleet.fleet.records.delays import late_starts
from specfleet.fleet.records.playback import PARTS, playback_of
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import make_scenario, scenario_of
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.sim.run import simulate

DRAFTS: dict[str, dict[str, Any]] = {
    "none": {"count": 0},
    "small model": {"place": "target"},
    "prompt lookup": {"place": "target", "kind": "lookup"},
    "EAGLE": {"place": "target", "kind": "eagle"},
}
CALIBRATED = {"none": "small model"}  # a calibration with drafts also runs without
ROWS, LOADS = (1, 4, 8, 16), (0.3, 0.6, 0.9)
LIMITS = {"max_num_seqs": 16, "max_num_batched_tokens": 128, "kv_tokens": 2560}  # chunks, and preemptions at 16 rows
LENGTHS = {"prompt_tokens": {"low": 32, "high": 192}, "new_tokens": {"low": 16, "high": 128}}
MEAN_NEW_TOKENS = 72
PROBE = 200  # simulated requests that say how many take a cell's seconds
JUDGED = ("throughput", "tpot_s")
SHOWN = (*JUDGED, "ttft_s", "tpot_p99_s", "ttft_p99_s")
EQUAL_S = 1e-5  # times that are sums of differences
MECHANISM_AIM = 2.0  # mean over cells of the absolute error, in hundredths

OPTIONS: Options = {
    "--seconds": {"type": float, "default": 30.0, "help": "about how long each run takes"},
    "--runs": {"type": int, "default": 2, "help": "runs of each cell"},
    "--drafts": {"nargs": "*", "choices": list(DRAFTS), "default": list(DRAFTS), "help": "ways to draft"},
    "--rows": {"type": int, "nargs": "*", "default": ROWS, "help": "requests at once of the closed loops"},
    "--loads": {"type": float, "nargs": "*", "default": LOADS, "help": "open loads, as shares of saturation"},
    "--seeds": {"type": int, "default": 5, "help": "simulations of each prediction"},
}


def study(options: argparse.Namespace) -> Report:
    """Calibrate each way to draft, run all cells, and compare them with their simulations."""
    kinds = dict.fromkeys(CALIBRATED.get(kind, kind) for kind in options.drafts)
    profiles = {kind: calibrated(kind, options.out / f"{kind}.json") for kind in kinds}
    cells: dict[str, Scenario] = {}
    for kind in options.drafts:
        profile = profiles[CALIBRATED.get(kind, kind)]
        cells |= {f"{kind}, {rows} at once": closed(kind, rows, profile, options.seconds) for rows in options.rows}
        cells |= {f"{kind}, load {load:g}": opened(kind, load, profile, options.seconds) for load in options.loads}
    results = run({name: partial(ran, name, scenario, options) for name, scenario in cells.items()}, options.runs)
    judged = {name: judged_cell(name, cells[name], results[name], options.seeds) for name in cells}
    runs = [one for of_cell in results.values() for one in of_cell]
    totals = [total_row(quantity, judged) for quantity in SHOWN]
    aims = [
        Aim("runs whose log does not replay", sum(bool(replay(one)) for one in runs), 0),
        Aim("runs that a simulation with all of their parts does not repeat", sum(not repeats(one) for one in runs), 0),
    ]
    aims += [
        Aim(f"{row['quantity']}: mechanism, %", row["mechanism, %"], MECHANISM_AIM) for row in totals[: len(JUDGED)]
    ]
    rows = [
        cell_row(name, judged[name])
        | {
            "rows": float(np.mean([mean_rows(one) for one in results[name]])),
            "late starts, %": 100 * float(np.mean([late_starts(one) for one in results[name]])),
        }
        for name in cells
    ]
    return Report({"a serving target: errors of tokens/s | TPOT": rows, "mean absolute errors": totals}, aims)


def scenario_with(kind: str, workload: Mapping[str, Any], profile: HardwareProfile | None = None) -> Scenario:
    """Return the target with that way to draft under a load."""
    load = LENGTHS | {"prompts": "demo/evaluation"} | workload
    tables = {"drafters": {"depth": 4} | DRAFTS[kind], "verifiers": LIMITS, "workload": load}
    return scenario_of(make_scenario({"name": kind} | tables), {"profile": profile} if profile is not None else {})


def calibrated(kind: str, file: Path) -> HardwareProfile:
    """Calibrate a way to draft on calibration prompts into a file; stages of a try that was cut off are kept."""
    return specfleet.calibrate(
        scenario_with(kind, {}), quick=True, accept_unsteady=True, out=file, note=remark,
        report=lambda stage: remark(f"calibration, {kind}: {stage}"),
    )  # fmt: skip


def closed(kind: str, rows: int, profile: HardwareProfile, seconds: float) -> Scenario:
    """Return a closed loop with requests for about so many seconds."""
    requests = max(round(seconds * requests_per_s(kind, rows, profile)), 2 * rows)
    return scenario_with(kind, {"streams": rows, "requests": requests}, profile)


def opened(kind: str, load: float, profile: HardwareProfile, seconds: float) -> Scenario:
    """Return Poisson arrivals at a share of the rate that the target has with all rows, by its profile."""
    per_s = load * requests_per_s(kind, LIMITS["max_num_seqs"], profile)
    arrivals = {"process": "poisson", "per_s": per_s}
    return scenario_with(kind, {"arrivals": arrivals, "requests": max(round(seconds * per_s), 2)}, profile)


def requests_per_s(kind: str, rows: int, profile: HardwareProfile) -> float:
    """Return the simulated rate of a closed loop."""
    probe = specfleet.simulate(scenario_with(kind, {"streams": rows, "requests": PROBE}, profile))
    return probe.metrics["throughput"].value / MEAN_NEW_TOKENS


def ran(name: str, scenario: Scenario, options: argparse.Namespace) -> Run:
    """Run a cell, keep its records, and say what it gave."""
    result = specfleet.run(scenario)
    number = sum(1 for _ in options.out.glob(f"{name}.*.parquet")) + 1
    result.save(options.out / f"{name}.{number}.parquet")
    values = result.metrics
    remark(f"  {values['throughput'].value:.0f} tokens/s, TPOT {1000 * values['tpot_s'].value:.1f} ms")
    return result.run


def judged_cell(name: str, scenario: Scenario, runs: Sequence[Run], seeds: int) -> dict[str, ComparedQuantity]:
    """Return the three errors of a cell, by quantity."""
    remark(f"simulated: {name}")
    rows = compare_metrics({"cell": name}, replicate(scenario, seeds), simulated_reruns(scenario, runs))
    return {row.quantity: row for row in rows}


def cell_row(name: str, judged: Mapping[str, ComparedQuantity]) -> Row:
    """Return the line of a cell; errors are signed but for the host's."""
    row: Row = {
        "cell": name, "tokens/s": judged["throughput"].engine, "predicted": judged["throughput"].sim,
        "TPOT, ms": 1000 * judged["tpot_s"].engine, "TTFT, ms": 1000 * judged["ttft_s"].engine,
    }  # fmt: skip
    for title, error in (("mechanism", "mechanism"), ("blind", "parameters"), ("host", "host")):
        row[f"{title}, %"] = " | ".join(
            "-" if (found := getattr(judged[name], error)) is None else f"{100 * found.value:+.1f}" for name in JUDGED
        )
    return row


def total_row(quantity: str, judged: Mapping[str, Mapping[str, ComparedQuantity]]) -> Row:
    """Return the means and the worst of a quantity's absolute errors over cells."""
    row: Row = {"quantity": quantity}
    for title, error in (("mechanism", "mechanism"), ("blind", "parameters"), ("host", "host")):
        found = [getattr(of_cell[quantity], error) for of_cell in judged.values() if quantity in of_cell]
        values = [100 * one.absolute for one in found if one is not None] or [float("nan")]
        row |= {f"{title}, %": float(np.mean(values)), f"worst {title}, %": max(values)}
    return row


def repeats(run: Run) -> bool:
    """Whether the simulation with all parts of a run played back starts the same steps at the same times."""
    again = simulate(run.header.scenario, playback_of(run, PARTS)).frame()
    rows, columns = run.frame(), ["event", "kind", "tag", "request", "base", "tokens", "accepted"]
    same = len(again) == len(rows) and (again[columns].to_numpy() == rows[columns].to_numpy()).all()
    return bool(same and np.abs(again.time_s - rows.time_s).max() < EQUAL_S)


def mean_rows(run: Run) -> float:
    """Return the mean rows of the target's steps, by their time."""
    done = run.frame().query("event == 'done' and kind not in ('draft', 'draft_prefill')").groupby("step").duration_s
    return float((done.size() * done.first()).sum() / done.first().sum())
