"""Calibrate a batch: its steps as a batch station serves them, over rows, depths and contexts, fitted into a profile.

Steps are not measured in loops. A batch with rows that come and go has other caches, lengths and alignments than a
repeated one. Small runs of the scenario's own rule on calibration prompts show all of that.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec
import torch

from calibrate.batch_profile import BatchMeasured, TimedSteps, profile_of_batch
from engine.decoding.models import CausalLM
from engine.launch.bodies import THREADS
from engine.node.batch import drive, executor_of
from engine.node.build import load_target
from engine.node.capacity import with_positions
from engine.node.prompts import prompts_of
from fleet.acceptance.signals import SIGNALS_FILE, write_signals
from fleet.policies.ragged import Slots
from fleet.records.run import make_run
from fleet.scenario.resolve import resolve
from fleet.scenario.scenario import Batch, Scenario
from fleet.stations.build import batch_station
from fleet.times.durations import extent, nodes_of
from fleet.times.profile import HardwareProfile
from fleet.times.step import Step

Report = Callable[[str], None]

SIZES = (1, 2, 4, 8, 16)
FEWEST = 12  # requests of a small run


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
    large, measured = load_target(resolve(scenario)), BatchMeasured()
    for number, stage in enumerate(grid.stages[:-1]):
        report(stage)
        measure_pass(scenario, large, number, measured, grid)
    report(grid.stages[-1])
    return finish(scenario, large, measured, folder, grid)


def measure_pass(
    scenario: Scenario, large: CausalLM, number: int, measured: BatchMeasured, grid: BatchGrid = WHOLE
) -> None:
    """Measure one pass over all sizes and depths: a small run of each."""
    torch.set_num_threads(THREADS)
    for size in sizes_up_to(largest_of(scenario)):
        for depth in grid.depths if scenario.drafters.shape.kind == "chain" else [scenario.drafters.depth]:
            serve_part(scenario, of_size(scenario, size, depth, number), large, measured)


def finish(
    scenario: Scenario, large: CausalLM, measured: BatchMeasured, folder: Path, grid: BatchGrid = WHOLE
) -> HardwareProfile:
    """Record acceptance, and return the profile of all measurements."""
    torch.set_num_threads(THREADS)
    return profiled(scenario, large, measured, record_acceptance(scenario, large, folder, grid.recorded))


def profiled(
    scenario: Scenario, large: CausalLM, measured: BatchMeasured, accepted: list[list[int]]
) -> HardwareProfile:
    """Return the profile of all measurements; `accepted`: accepted tokens by request and round."""
    profile = profile_of_batch(scenario, large.vocabulary, measured, accepted)
    return msgspec.structs.replace(profile, positions=with_positions(resolve(scenario)).drafters.positions)


def largest_of(scenario: Scenario) -> int:
    """Rows of the scenario's batch."""
    assert scenario.batch is not None
    return scenario.batch.rule.size


def sizes_up_to(largest: int) -> list[int]:
    """Batch sizes that are measured."""
    return [*(size for size in SIZES if size < largest), largest]


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


def serve_part(scenario: Scenario, part: Scenario, large: CausalLM, measured: BatchMeasured) -> None:
    """Serve a small run, `part`; add its steps, and the delays around them.

    Where the scenario's length rule looks at drafted tokens, they are read here too, because that takes time; lengths
    stay constant.
    """
    assert scenario.batch is not None
    allocate, shape = scenario.batch.allocate, scenario.drafters.shape
    fleet = with_positions(resolve(part))
    station = batch_station(fleet)
    executor = executor_of(fleet, station, large, prompts_of(fleet))
    if allocate is not None:
        executor.signals = allocate.needs == "signals"
        executor.watch = (lambda _tag, _nats: False) if allocate.watches else None
    steps: list[Step] = []
    executor.on_step = steps.append
    run = make_run(part, "engine", drive(fleet, station, executor, large.device), fleet)
    rows = run.frame()
    done = rows[rows.event == "done"].drop_duplicates("step").set_index("step")
    extents = [
        extent(step, scenario.batch.padded, nodes_of(step, shape) if step.kind == "verify" else None) for step in steps
    ]
    begun: set[str] = set()
    for step, size in zip(steps, extents, strict=True):
        if step.kind in begun:
            kind = measured.served.setdefault(step.kind, TimedSteps())
            kind.extents.append(size)
            kind.times_s.append(float(done.duration_s[step.number]))
        begun.add(step.kind)  # the first one of a kind is cold
    measured.runs.append(run)


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
    fleet = with_positions(resolve(recorded))
    station = batch_station(fleet)
    signals = scenario.drafters.shape.kind == "chain" and scenario.drafters.kind != "lookup"
    executor = executor_of(fleet, station, large, prompts_of(fleet), signals)
    rows = make_run(recorded, "engine", drive(fleet, station, executor, large.device)).frame()
    if signals:
        write_signals(list(executor.recorded.values()), folder / SIGNALS_FILE)
    verified = rows[(rows.event == "done") & (rows.kind == "verify")]
    return [part.accepted.tolist() for _, part in verified.groupby("request")]
