"""Calibrate a batch: its steps as a batch station serves them, over rows, depths and contexts, fitted into a profile.

Steps are not measured in loops: a batch whose rows come and go finds other caches, lengths and alignments than one
that is repeated. Small runs of the scenario's own rule on calibration prompts tell all of that.
"""

import datetime
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from calibrate.acceptance import describe_acceptance
from calibrate.fits import fit_batch_step
from engine.batches import drive, executor_of
from engine.fleet import load_target
from engine.models import CausalLM
from engine.node import THREADS
from engine.prompts import prompts_of
from engine.telemetry import host_facts
from specfleet.acceptance import Recorded
from specfleet.durations import extent, nodes_of
from specfleet.fleet import batch_station
from specfleet.pace import typical_control_s, uninterrupted
from specfleet.policies.ragged import Slots
from specfleet.profile import HardwareProfile, StepTime
from specfleet.records import make_run
from specfleet.scenario import Batch, GrantRule, Scenario
from specfleet.signals import write_signals
from specfleet.station import Step

Report = Callable[[str], None]

SIZES, DEPTHS = (1, 2, 4, 8, 16), (1, 3, 5, 8)
PASSES = 2  # minutes apart on a large model: a shared host has slow spells that outlast one
STAGES = (*(f"batches, pass {number + 1}" for number in range(PASSES)), "acceptance")
PROFILE_NAMES = {"prefill": "verify_prefill"}  # what a profile calls a batch's steps, where it differs
AROUND = 51  # steps: fewer say more of luck than of the host, more last longer than its spells
RECORDED = 192  # requests whose acceptance is recorded: means over fewer differ by a tenth from luck with prompts


class Served(msgspec.Struct):
    """Steps of one kind as they were served: what their times depend on, those times, and the control beside them."""

    extents: list[tuple[int, int, int, int]] = []
    times_s: list[float] = []
    controls_s: list[float] = []


def calibrate_batch(scenario: Scenario, folder: Path, report: Report = lambda _stage: None) -> HardwareProfile:
    """Measure the scenario's batch on this host, on the scenario's prompts; its size may be any up to the largest.

    `folder` gets `signals.parquet`, the signals of every drafted token, where drafts are chains of a model's tokens.
    """
    assert scenario.batch is not None
    torch.set_num_threads(THREADS)
    large = load_target(scenario)
    largest = scenario.batch.rule.size
    sizes = [size for size in SIZES if size < largest] + [largest]
    served: dict[str, Served] = {}
    gaps_s: list[float] = []
    for number in range(PASSES):
        report(STAGES[number])
        for size in sizes:
            for depth in DEPTHS if scenario.drafters.shape.kind == "chain" else [scenario.drafters.depth]:
                part = of_size(scenario, size, depth, number)
                gaps_s.append(serve_part(part, large, served, scenario.batch.allocate))
    report("acceptance")
    accepted = record_acceptance(scenario, large, folder)
    controls = np.concatenate([kind.controls_s for kind in served.values()])
    reference_s = typical_control_s(controls) if controls.any() else 0.0
    fits = {name: fit(kind, reference_s) for name, kind in served.items()}
    facts, unread = host_facts()
    times: dict[str, Any] = {PROFILE_NAMES.get(name, name): time for name, (time, _) in fits.items()}
    return HardwareProfile(
        name=f"calibrated-batch-{facts['machine']}",
        **times,
        turnaround_s=float(np.median(gaps_s)),
        acceptance=Recorded(scenario.drafters.depth, tuple(map(tuple, accepted))),
        vocabulary=large.vocabulary,
        control_s=reference_s,
        provenance=facts
        | {
            "written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "drafter": f"{scenario.drafters.kind} {scenario.drafters.model}",
            "target": scenario.verifiers.model,
            "rule": str(scenario.batch.rule.__struct_config__.tag),
            "sizes": ", ".join(map(str, sizes)),
            "precision": scenario.precision,
            "prompts": scenario.workload.prompts,
            "unread": "; ".join(unread) or "nothing",
        },
        measured={
            "steps": {name: describe(served[name], error) for name, (_, error) in fits.items()},
            "acceptance": describe_acceptance(accepted, scenario.drafters.depth),
        },
    )


def of_size(scenario: Scenario, size: int, depth: int, seed: int) -> Scenario:
    """The scenario with batches of `size`, constant drafts of `depth`, and few and short requests."""
    assert scenario.batch is not None
    rule = scenario.batch.rule
    changes = {"size": size} | ({"window": 3 * size} if hasattr(rule, "window") else {})
    workload = msgspec.structs.replace(
        scenario.workload, requests=max(2 * size, 4), streams=0, arrivals=None, new_tokens=scenario.workload.new_tokens
    )
    return msgspec.structs.replace(
        scenario,
        seed=seed,
        batch=Batch(msgspec.structs.replace(rule, **changes), padded=scenario.batch.padded),
        drafters=msgspec.structs.replace(scenario.drafters, depth=depth),
        workload=workload,
    )


def serve_part(
    scenario: Scenario, large: CausalLM, served: dict[str, Served], allocate: GrantRule | None = None
) -> float:
    """Serve a small run; add its steps to those of their kinds. Return the mean time between two steps.

    `allocate`: the length rule whose looks at drafted tokens take their time here too, though lengths are constant.
    """
    station = batch_station(scenario)
    executor = executor_of(scenario, station, large, prompts_of(scenario))
    if allocate is not None:
        executor.signals = allocate.needs == "signals"
        executor.watch = (lambda _tag, _nats: False) if allocate.watches else None
    steps: list[Step] = []
    executor.watcher = steps.append
    started_s = time.perf_counter()
    log = drive(scenario, station, executor, large.device)
    wall_s = time.perf_counter() - started_s
    rows = make_run(scenario, "engine", log).frame()
    done = rows[rows.event == "done"].drop_duplicates("step").set_index("step")
    assert scenario.batch is not None
    for step in steps[1:]:  # the first one is cold
        nodes = nodes_of(step, scenario.drafters.shape) if step.kind == "verify" else None
        kind = served.setdefault(step.kind, Served())
        kind.extents.append(extent(step, scenario.batch.padded, nodes))
        kind.times_s.append(float(done.duration_s[step.number]))
        kind.controls_s.append(float(done.control_s[step.number]))
    return float(wall_s - done.duration_s.sum()) / len(steps)


def fit(kind: Served, reference_s: float) -> tuple[StepTime, float]:
    """Fit one kind of steps, their times referred to the reference pace by the controls around them."""
    times_s = np.array(kind.times_s)
    if reference_s:
        times_s = times_s * reference_s / controls_around(np.array(kind.controls_s))
    return fit_batch_step(kind.extents, times_s)


def controls_around(controls_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean control of the `AROUND` steps around each, interrupted ones left out as wherever a pace is made."""
    counted = uninterrupted(controls_s)
    around = np.ones(min(AROUND, len(controls_s)))
    sums, counts = np.convolve(np.where(counted, controls_s, 0.0), around, "same"), np.convolve(counted, around, "same")
    means: NDArray[np.float64] = sums / counts
    return means


def record_acceptance(scenario: Scenario, large: CausalLM, folder: Path) -> list[list[int]]:
    """Decode calibration prompts with the scenario's depth; return the accepted lengths of each request's rounds."""
    assert scenario.batch is not None
    recorded = of_size(scenario, scenario.batch.rule.size, scenario.drafters.depth, scenario.seed)
    recorded = msgspec.structs.replace(
        recorded,
        # What a draft is worth is no matter of the batch rule, of which one throws accepted tokens away.
        batch=Batch(Slots(scenario.batch.rule.size), padded=False),
        workload=msgspec.structs.replace(recorded.workload, requests=RECORDED),
    )
    station = batch_station(recorded)
    signals = scenario.drafters.shape.kind == "chain" and scenario.drafters.kind != "lookup"
    executor = executor_of(recorded, station, large, prompts_of(recorded), signals)
    rows = make_run(recorded, "engine", drive(recorded, station, executor, large.device)).frame()
    if signals:
        write_signals(list(executor.recorded.values()), folder / "signals.parquet")
    verified = rows[(rows.event == "done") & (rows.kind == "verify")]
    return [part.accepted.tolist() for _, part in verified.groupby("request")]


def describe(kind: Served, error: float) -> dict[str, Any]:
    """What a reader needs to judge a fit."""
    quantiles = np.quantile(kind.times_s, (0.1, 0.5, 0.9)).tolist()
    return {"steps": len(kind.times_s), "quantiles_s": quantiles, "mean_absolute_error": error}
