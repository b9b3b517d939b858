"""Calibrate a target that drafts on its own device: its steps as they are served, fitted into a profile.

Steps are not measured in loops. Rows that come and go have other caches, lengths and alignments than repeated ones.
Small runs of the scenario on calibration prompts, over rows, depths and contexts, show all of that.
"""

import datetime
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from scipy.optimize import nnls

from calibrate.fits import fit_batch_step
from calibrate.overheads import delays_of, overhead_of
from engine.decoding.models import CausalLM
from engine.decoding.telemetry import host_facts
from engine.launch.bodies import THREADS
from engine.net.clock import now_s
from engine.net.content import Content
from engine.node.aligned import AlignedExecutor
from engine.node.build import load_target, with_positions
from engine.node.prompts import prompts_of
from engine.node.real import verifier_node
from engine.node.serving import ServingExecutor
from engine.node.worker import Executor
from fleet.acceptance.models import Recorded
from fleet.acceptance.signals import SIGNALS_FILE, write_signals
from fleet.acceptance.token import Token
from fleet.policies.aligned import SameLength
from fleet.policies.outcome import Outcome
from fleet.records.run import Run, make_run
from fleet.scenario.provenance import provenance_of
from fleet.scenario.resolve import resolve
from fleet.scenario.scenario import Scenario, needs_of
from fleet.stations.messages import Message, StationEvent
from fleet.times.durations import extent, nodes_of
from fleet.times.mixed import Part, pass_s, together_s
from fleet.times.overhead import Overhead, Overheads, StationOverheads
from fleet.times.profile import HardwareProfile
from fleet.times.station_times import VerifierTimes
from fleet.times.step import Step
from fleet.times.step_time import StepTime

Report = Callable[[str], None]

ROWS = (1, 2, 4, 8, 16, 32)
FEWEST = 12  # requests of a small run
PROFILE_NAMES = {"prefill": "verify_prefill"}  # what a profile calls a target's steps, where it differs

Timed = list[tuple[Step, float]]
"""Steps and their times in seconds, without the first of each kind in a run, which is cold."""
Extent = tuple[int, int, int, int]
"""Tokens and context of the longest row, rows, and tokens of the others: what sets a step's time."""


class TargetGrid(msgspec.Struct, frozen=True):
    """Size of the measurement: passes over all numbers of rows and depths, and requests with recorded acceptance.

    There are several passes because a shared host is slow at times. Means of acceptance over 192 requests still differ
    by 5 % between sets of prompts. Depth 0 is a run without drafts.
    """

    passes: int = 3
    depths: tuple[int, ...] = (0, 1, 3, 5, 8)
    recorded: int = 384

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the stages, in order."""
        return (
            *(f"steps in service, pass {number + 1} of {self.passes}" for number in range(self.passes)),
            "acceptance",
        )


WHOLE, QUICK = TargetGrid(), TargetGrid(passes=1, depths=(0, 1, 4, 8), recorded=96)


def calibrate_target(
    scenario: Scenario, folder: Path, report: Report = lambda _stage: None, grid: TargetGrid = WHOLE
) -> HardwareProfile:
    """Measure a scenario's target on this host, on the scenario's prompts, up to its most rows.

    `folder` gets `signals.parquet`, the signals of every drafted token, where drafts are chains of a model's tokens.
    """
    torch.set_num_threads(THREADS)
    large, most = load_target(resolve(scenario)), scenario.verifiers.max_num_seqs
    depths = grid.depths if scenario.drafters.shape.kind == "chain" else (0, scenario.drafters.depth)
    if scenario.verifiers.aligned is not None:
        depths = tuple(depth for depth in depths if depth)
    rows = [*(size for size in ROWS if size < most), min(most, ROWS[-1])]
    served: Timed = []
    runs = []
    for number, stage in enumerate(grid.stages[:-1]):
        report(stage)
        parts = [of_rows(scenario, size, depth, number) for size in rows for depth in depths]
        runs += [serve_part(scenario, part, large, served) for part in parts]
    report(grid.stages[-1])
    accepted = record_acceptance(scenario, large, folder, grid.recorded)
    return profile_of_target(scenario, large, served, runs, accepted)


def of_rows(scenario: Scenario, rows: int, depth: int, seed: int) -> Scenario:
    """The scenario with so many rows, constant drafts of `depth`, and few requests, all of which wait at once."""
    replace, requests = msgspec.structs.replace, max(2 * rows, FEWEST)
    rule = scenario.verifiers.aligned
    if isinstance(rule, SameLength):
        rule = replace(rule, window=3 * rows)
    drafters = replace(scenario.drafters, depth=depth) if depth else replace(scenario.drafters, count=0, place="own")
    return replace(
        scenario,
        seed=seed,
        verifiers=replace(scenario.verifiers, count=1, max_num_seqs=rows, aligned=rule, allocate=None, kv_tokens=0),
        drafters=drafters,
        workload=replace(scenario.workload, requests=requests, streams=requests, arrivals=None),
    )


class Observed(Executor):
    """An executor whose steps are noted before they run."""

    def __init__(self, executor: Executor, steps: list[Step]) -> None:
        self.executor = executor
        self.steps = steps

    def receive(self, event: StationEvent, content: Content) -> None:
        """Take the content of an event."""
        self.executor.receive(event, content)

    def run(self, step: Step) -> tuple[Outcome, ...]:
        """Note a step, and run it."""
        self.steps.append(step)
        return self.executor.run(step)

    def resolved(self, step: Step, outcomes: tuple[Outcome, ...]) -> tuple[Outcome, ...]:
        """Return the outcomes at a step's end."""
        return self.executor.resolved(step, outcomes)

    def content_of(self, message: Message) -> Content:
        """Return the content of a message."""
        return self.executor.content_of(message)

    def release(self, tag: int) -> None:
        """Free what a request had."""
        self.executor.release(tag)


def serve_part(scenario: Scenario, part: Scenario, large: CausalLM, served: Timed) -> Run:
    """Serve a small run, `part`, and add its steps.

    Where the scenario's length rule looks at drafted tokens, they are read here too, because that takes time; lengths
    stay constant.
    """
    rule = scenario.verifiers.allocate
    signals = rule is not None and rule.needs == "signals"
    run, steps, _ = run_part(part, large, signals, watches=rule is not None and rule.watches)
    rows = run.frame()
    done = rows[rows.event == "done"].drop_duplicates("step").set_index("step")
    begun: set[str] = set()
    for step in steps:
        if step.kind in begun:
            served.append((step, float(done.duration_s[step.number])))
        begun.add(step.kind)
    return run


def run_part(
    part: Scenario, large: CausalLM, signals: bool = False, watches: bool = False
) -> tuple[Run, list[Step], dict[int, list[Token]]]:
    """Run the target of a small run; return its records, its steps and the signals of its drafts.

    - `watches`: whether the entropy of every drafted token is read.
    """
    fleet = with_positions(resolve(part))
    node = verifier_node(fleet, 0, prompts_of(fleet), {}, signals=signals, model=large)
    executor, steps = node.worker.executor, list[Step]()
    if watches and isinstance(executor, ServingExecutor | AlignedExecutor):
        executor.watch = lambda _tag, _nats: False
    node.worker.executor = Observed(executor, steps)
    return make_run(part, "engine", node.serve(now_s()), fleet), steps, node.signals


def record_acceptance(scenario: Scenario, large: CausalLM, folder: Path, requests: int) -> list[list[int]]:
    """Decode so many calibration prompts with the scenario's depth; return accepted tokens by request and round."""
    recorded = of_rows(scenario, min(scenario.verifiers.max_num_seqs, ROWS[-1]), scenario.drafters.depth, scenario.seed)
    recorded = msgspec.structs.replace(
        recorded,
        # What a draft is worth is no matter of the rows' alignment; one rule throws accepted tokens away.
        verifiers=msgspec.structs.replace(recorded.verifiers, aligned=None),
        workload=msgspec.structs.replace(recorded.workload, requests=requests, streams=requests),
    )
    signals = scenario.drafters.shape.kind == "chain" and scenario.drafters.kind != "lookup"
    run, _, of_tokens = run_part(recorded, large, signals or needs_of(scenario) != "lengths")
    if signals:
        write_signals(list(of_tokens.values()), folder / SIGNALS_FILE)
    rows = run.frame()
    verified = rows[(rows.event == "done") & (rows.kind == "verify")]
    return [part.accepted.tolist() for _, part in verified.groupby("request")]


def laws_of(scenario: Scenario, served: Timed) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fit a law to each kind of step, by the profile's name; return them, and how well they fit.

    Steps with parts of several kinds shape no law; their error is that of the rule that combines the laws.
    """
    shape, aligned = scenario.drafters.shape, scenario.verifiers.aligned is not None
    steps_of: dict[str, list[tuple[Extent, float]]] = defaultdict(list)
    for step, time_s in served:
        plain = step.kind not in ("chunk", "mixed") and not any(read_beside(step))
        if plain and (aligned or step.kind != "draft_prefill"):
            nodes = nodes_of(step, shape) if step.kind == "verify" else None
            steps_of[PROFILE_NAMES.get(step.kind, step.kind)].append((extent(step, aligned, nodes), time_s))
    laws, fits = dict[str, Any](), dict[str, Any]()
    for name, steps in steps_of.items():
        laws[name], fits[name] = fitted(steps)
    read = None if aligned or "draft" not in laws else fit_reading(laws["draft"], served)
    if read is not None:
        laws["draft_prefill"], fits["draft_prefill"] = read
    mixed = [(step, time_s) for step, time_s in served if step.kind == "mixed"]
    if mixed and {"verify", "verify_prefill", "decode"} <= laws.keys():
        times = VerifierTimes(0, laws["verify"], laws["verify_prefill"], laws["decode"], Overhead())
        errors = [abs(pass_s(times, step, shape) / time_s - 1) for step, time_s in mixed]
        fits["mixed"] = described([time_s for _, time_s in mixed], float(np.mean(errors)))
    return laws, fits


def fitted(steps: Sequence[tuple[Extent, float]]) -> tuple[StepTime, dict[str, Any]]:
    """Fit a law to the extents and times of steps; return it, and how well it fits."""
    extents, times_s = zip(*steps, strict=True)
    law, error = fit_batch_step(extents, times_s)
    return law, described(times_s, error)


def described(times_s: Sequence[float], error: float) -> dict[str, Any]:
    """Describe the times of steps, and the mean absolute error of their law."""
    quantiles_s = np.quantile(times_s, (0.1, 0.5, 0.9)).tolist()
    return {"steps": len(times_s), "quantiles_s": quantiles_s, "mean_absolute_error": error}


def read_beside(step: Step) -> list[int]:
    """Return the tokens of prompts that each row of a drafter's step reads before its draft."""
    return [max(member.behind - member.tokens - 1, 0) for member in step.members]


def fit_reading(draft: StepTime, served: Timed) -> tuple[StepTime, dict[str, Any]] | None:
    """Fit the time in which a target's drafter reads a prompt: what a step takes beyond its draft.

    The first pass of a draft reads the prompt, too, so neither is measured alone; the error is that of both together.
    None without such steps.
    """
    tokens, drafts_s, times_s = [], [], []
    for step, time_s in served:
        read = read_beside(step)
        if step.kind.startswith("draft") and any(read):
            drafts = [Part(member.tokens, member.base, 1, False) for member in step.members if member.tokens]
            tokens.append((np.count_nonzero(read), sum(read)))
            drafts_s.append(together_s(draft, drafts) if drafts else 0.0)
            times_s.append(time_s)
    if not times_s:
        return None
    rest_s = np.maximum(np.array(times_s) - drafts_s, 0.0)
    fixed_s, token_s = nnls(np.array(tokens, dtype=float), rest_s)[0].tolist()
    fitted_s = np.array(tokens) @ [fixed_s, token_s] + drafts_s
    return StepTime(fixed_s, token_s), described(times_s, float(np.median(np.abs(fitted_s / times_s - 1))))


def profile_of_target(
    scenario: Scenario, large: CausalLM, served: Timed, runs: list[Run], accepted: list[list[int]]
) -> HardwareProfile:
    """Return the profile that the measurements give. `accepted`: accepted tokens by request and round."""
    (laws, fits), facts, rule = laws_of(scenario, served), host_facts(), scenario.verifiers.aligned
    return HardwareProfile(
        name=f"calibrated-target-{facts['machine']}",
        **laws,
        overhead=Overheads(StationOverheads(target=overhead_of(delays_of(runs, drafters=False)))),
        acceptance=Recorded(scenario.drafters.depth, tuple(map(tuple, accepted))),
        vocabulary=large.vocabulary,
        positions=runs[-1].header.fleet.drafters.positions,
        provenance=facts
        | {"written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}
        | provenance_of(scenario)
        | {"rows": str(min(scenario.verifiers.max_num_seqs, ROWS[-1]))}
        | ({"aligned": str(rule.__struct_config__.tag)} if rule else {}),
        measured={"steps": fits},
    )
