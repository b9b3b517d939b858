"""Calibrate a batch: its steps as a batch station serves them, over rows, depths and contexts, fitted into a profile.

Steps are not measured in loops. A batch with rows that come and go has other caches, lengths and alignments than a
repeated one. Small runs of the scenario's own rule on calibration prompts show all of that.
"""

import datetime
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from calibrate.fits import fit_batch_step
from calibrate.overheads import delays_of, overhead_of
from engine.decoding.models import CausalLM
from engine.decoding.telemetry import host_facts
from engine.launch.bodies import THREADS
from engine.node.batch import BatchExecutor, drive, executor_of
from engine.node.build import load_target, with_positions
from engine.node.prompts import prompts_of
from fleet.acceptance.models import Recorded
from fleet.acceptance.signals import SIGNALS_FILE, write_signals
from fleet.policies.ragged import Slots
from fleet.records.run import Run, make_run
from fleet.scenario.provenance import provenance_of
from fleet.scenario.resolve import resolve
from fleet.scenario.scenario import Batch, Scenario
from fleet.stations.build import batch_station
from fleet.times.durations import extent, nodes_of
from fleet.times.overhead import Overheads, StationOverheads
from fleet.times.profile import HardwareProfile
from fleet.times.step import Step

Report = Callable[[str], None]

SIZES = (1, 2, 4, 8, 16)
FEWEST = 12  # requests of a small run
PROFILE_NAMES = {"prefill": "verify_prefill"}  # what a profile calls a batch's steps, where it differs


Served = dict[str, list[tuple[tuple[int, int, int, int], float]]]
"""Steps in service by kind, without the first in each run: the variables of their times, and those times."""


class BatchGrid(msgspec.Struct, frozen=True):
    """Size of the measurement: passes over all sizes and depths, and requests with recorded acceptance.

    There are several passes because a shared host is slow at times. Means of acceptance over 192 requests still differ
    by 5 % between sets of prompts.
    """

    passes: int = 3
    depths: tuple[int, ...] = (1, 3, 5, 8)
    recorded: int = 384

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the stages, in order."""
        return (*(f"batches, pass {number + 1} of {self.passes}" for number in range(self.passes)), "acceptance")


WHOLE, QUICK = BatchGrid(), BatchGrid(passes=1, depths=(1, 4, 8), recorded=96)


def calibrate_batch(
    scenario: Scenario, folder: Path, report: Report = lambda _stage: None, grid: BatchGrid = WHOLE
) -> HardwareProfile:
    """Measure the scenario's batch on this host, on the scenario's prompts; its size may be any up to the largest.

    `folder` gets `signals.parquet`, the signals of every drafted token, where drafts are chains of a model's tokens.
    """
    assert scenario.batch is not None
    torch.set_num_threads(THREADS)
    large, largest = load_target(resolve(scenario)), scenario.batch.rule.size
    depths = grid.depths if scenario.drafters.shape.kind == "chain" else [scenario.drafters.depth]
    served: Served = defaultdict(list)
    runs = []
    for number, stage in enumerate(grid.stages[:-1]):
        report(stage)
        for size in (*(size for size in SIZES if size < largest), largest):
            runs += [serve_part(scenario, of_size(scenario, size, depth, number), large, served) for depth in depths]
    report(grid.stages[-1])
    accepted = record_acceptance(scenario, large, folder, grid.recorded)
    return profile_of_batch(scenario, large, served, runs, accepted)


def of_size(scenario: Scenario, size: int, depth: int, seed: int) -> Scenario:
    """The scenario with batches of `size`, constant drafts of `depth`, and few and short requests."""
    assert scenario.batch is not None
    rule = scenario.batch.rule
    changes = {"size": size} | ({"window": 3 * size} if hasattr(rule, "window") else {})
    workload = msgspec.structs.replace(scenario.workload, requests=max(2 * size, FEWEST), streams=0, arrivals=None)
    return msgspec.structs.replace(
        scenario,
        seed=seed,
        batch=Batch(msgspec.structs.replace(rule, **changes), padded=scenario.batch.padded),
        drafters=msgspec.structs.replace(scenario.drafters, depth=depth),
        workload=workload,
    )


def serve_part(scenario: Scenario, part: Scenario, large: CausalLM, served: Served) -> Run:
    """Serve a small run, `part`, and add its steps by kind.

    Where the scenario's length rule looks at drafted tokens, they are read here too, because that takes time; lengths
    stay constant.
    """
    assert scenario.batch is not None
    allocate, shape = scenario.batch.allocate, scenario.drafters.shape
    steps: list[Step] = []

    def observe(executor: BatchExecutor) -> None:
        executor.on_step = steps.append
        if allocate is not None:
            executor.signals = allocate.needs == "signals"
            executor.watch = (lambda _tag, _nats: False) if allocate.watches else None

    run, _ = run_part(part, large, observe)
    rows = run.frame()
    done = rows[rows.event == "done"].drop_duplicates("step").set_index("step")
    begun: set[str] = set()
    for step in steps:
        if step.kind in begun:
            nodes = nodes_of(step, shape) if step.kind == "verify" else None
            variables = extent(step, scenario.batch.padded, nodes)
            served[step.kind].append((variables, float(done.duration_s[step.number])))
        begun.add(step.kind)  # the first one of a kind is cold
    return run


def run_part(part: Scenario, large: CausalLM, prepare: Callable[[BatchExecutor], None]) -> tuple[Run, BatchExecutor]:
    """Run the batch of a small run; return its records and its executor, which `prepare` gets before the first step."""
    fleet = with_positions(resolve(part))
    station = batch_station(fleet)
    executor = executor_of(fleet, station, large, prompts_of(fleet))
    prepare(executor)
    return make_run(part, "engine", drive(fleet, station, executor, large.device), fleet), executor


def record_acceptance(scenario: Scenario, large: CausalLM, folder: Path, requests: int) -> list[list[int]]:
    """Decode so many calibration prompts with the scenario's depth; return accepted tokens by request and round."""
    assert scenario.batch is not None
    recorded = of_size(scenario, scenario.batch.rule.size, scenario.drafters.depth, scenario.seed)
    recorded = msgspec.structs.replace(
        recorded,
        # What a draft is worth is no matter of the batch rule, of which one throws accepted tokens away.
        batch=Batch(Slots(scenario.batch.rule.size), padded=False),
        workload=msgspec.structs.replace(recorded.workload, requests=requests),
    )
    signals = scenario.drafters.shape.kind == "chain" and scenario.drafters.kind != "lookup"

    def observe(executor: BatchExecutor) -> None:
        executor.signals = executor.signals or signals

    run, executor = run_part(recorded, large, observe)
    if signals:
        write_signals(list(executor.recorded.values()), folder / SIGNALS_FILE)
    rows = run.frame()
    verified = rows[(rows.event == "done") & (rows.kind == "verify")]
    return [part.accepted.tolist() for _, part in verified.groupby("request")]


def profile_of_batch(
    scenario: Scenario, large: CausalLM, served: Served, runs: list[Run], accepted: list[list[int]]
) -> HardwareProfile:
    """Return the profile that the measurements give. `accepted`: accepted tokens by request and round."""
    assert scenario.batch is not None
    times, fits, facts = dict[str, Any](), dict[str, Any](), host_facts()
    for name, steps in served.items():
        extents, times_s = zip(*steps, strict=True)
        times[PROFILE_NAMES.get(name, name)], error = fit_batch_step(extents, times_s)
        quantiles_s = np.quantile(times_s, (0.1, 0.5, 0.9)).tolist()
        fits[name] = {"steps": len(times_s), "quantiles_s": quantiles_s, "mean_absolute_error": error}
    return HardwareProfile(
        name=f"calibrated-batch-{facts['machine']}",
        **times,
        overhead=Overheads(StationOverheads(target=overhead_of(delays_of(runs, drafters=False)))),
        acceptance=Recorded(scenario.drafters.depth, tuple(map(tuple, accepted))),
        vocabulary=large.vocabulary,
        positions=runs[0].header.fleet.drafters.positions,
        provenance=facts
        | {"written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}
        | provenance_of(scenario)
        | {"rule": str(scenario.batch.rule.__struct_config__.tag), "largest": str(scenario.batch.rule.size)},
        measured={"steps": fits},
    )
