"""Calibrate: timed steps, small fleets and acceptance of a model pair on this host, fitted into a hardware profile.

Loops of a target that drafts on its own device time all kinds of steps, at the rows and the lengths of the scenario.
Where drafters have devices of their own, small fleets add idleness, contention, delays and links.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from specfleet.calibration.assemble import fitted_steps_of, profile_of_pair, profile_of_target
from specfleet.calibration.fleets import FleetSetup, gaps_fleet, loaded_fleet, rounds_fleet, sharing_fleet
from specfleet.calibration.links import measure_round_trips
from specfleet.calibration.loops import (
    Elsewhere,
    covering,
    depths_of,
    in_blocks,
    loop_of,
    recording_loop,
    rows_of,
    run_loops,
)
from specfleet.calibration.measurements import Effort, Measurements, RunKind
from specfleet.calibration.stages import USUAL, Asked, Kept, Report, Stages, fingerprint_of, provenance_of, silent
from specfleet.calibration.steadiness import APART, DOUBTFUL, MAX_ALONE, REPEAT, accepted, impossible_fit
from specfleet.engine.decoding.telemetry import host_facts
from specfleet.engine.launch.processes import in_process
from specfleet.engine.launch.serve import serve
from specfleet.engine.node.build import check_models, largest_vocabulary, state_numbers, with_positions
from specfleet.engine.replayed.continuations import BATCH
from specfleet.fleet.acceptance.signals import write_signals
from specfleet.fleet.errors import InputError, UnsteadyHostError
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Drafters, Scenario, Verifiers, Workload
from specfleet.fleet.scenario.workload import mean_lengths
from specfleet.fleet.times.labels import Missing
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import StepTime

SHORTEST_GAP_S = 0.001
WARM_UP_GAP = StepTime(base_s=0.03)  # the gap of StarSD's figure 6c
SATURATING = (6, 2.0)  # targets that never let the drafter pause; answers at once would make drafts 2 or 3 % faster
PARTLY = 4.0  # drafts that targets verify for where the drafter is loaded in part, irregularly
TURN_TARGETS = 2  # that take turns with their drafter: fewer would never wait for the device
ACCEPTANCE, LINKS, WARM_UP = "acceptance", "links", "warm-up tokens"
TURNS = f"{TURN_TARGETS} targets that take turns with their drafter"
SAMPLED = "step times are of greedy decoding, acceptance is as the scenario samples"
NOT_MEASURED = {  # kinds of drafters, and what to do
    "found": "drafts in no time, as many tokens as it finds; calibrate it with drafters.place = 'target'",
    "replayed": "has no model to measure; give the kind of the drafter that it stands for, 'model' or 'eagle'",
}


class Planned(NamedTuple):
    """A stage to come: its name, the method of `Bench` that takes it, and whether a profile can do without."""

    name: str
    take: Callable[["Bench"], object]
    optional: bool = False


def plan_of(scenario: Scenario, effort: Effort) -> list[Planned]:
    """Return a calibration's stages, in order; passes are as far apart as they can be.

    >>> [stage.name for stage in plan_of(Scenario("star"), Effort(passes=1, concurrent_targets=1))][::2]
    ['steps of 1 row, pass 1 of 1', 'acceptance', 'warm-up tokens', '1 target at once with their drafter']
    """
    first, *others = [pass_of(scenario, effort, number) for number in range(effort.passes)]
    acceptance = [Planned(ACCEPTANCE, Bench.record_acceptance)] if scenario.drafters.count else []
    if is_served(scenario):
        return [*first, *chain(*others), *acceptance]
    sharing = [
        Planned(concurrent(targets), partial(Bench.contend, targets=targets), True)
        for targets in range(1, effort.concurrent_targets + 1)
    ]
    once = [*acceptance, Planned(LINKS, Bench.measure_links)]
    fleets = [Planned(WARM_UP, Bench.warm_up, True), Planned(TURNS, Bench.take_turns, True), *sharing]
    return [*first, *once, *chain(*others[:-1]), *fleets, *chain(*others[-1:])]


def pass_of(scenario: Scenario, effort: Effort, number: int) -> list[Planned]:
    """Return the stages of a pass: steps of all rows, and drafters in service, if they have devices of their own."""
    served = is_served(scenario)
    loops = [
        Planned(loops_name(rows, number, effort.passes), partial(Bench.time_steps, number=number, rows=rows), rows > 1)
        for rows in rows_of(scenario if served else pair_of(scenario, effort.prompts))
    ]
    name = f"drafters in service, pass {number + 1} of {effort.passes}"
    return loops if served else [*loops, Planned(name, partial(Bench.draft, name=name))]


def loops_name(rows: int, number: int, passes: int) -> str:
    """Return the name of a stage: steps of so many rows in a pass, or beyond these again."""
    which = f", pass {number + 1} of {passes}" if number < passes else " again"
    return f"steps of {rows} row{'s' * (rows > 1)}{which}"


def concurrent(targets: int) -> str:
    """Return the name of a stage: targets that run at once with their drafter."""
    return f"{targets} target{'s' * (targets > 1)} at once with their drafter"


def is_served(scenario: Scenario) -> bool:
    """Whether a scenario's target drafts on its own device, or decodes alone: loops then show all that it does."""
    drafters = scenario.drafters
    return drafters.place == "target" if drafters.count else scenario.verifiers.kind == "real"


def calibrate(scenario: Scenario, bench: "Bench", signals: Path) -> HardwareProfile:
    """Measure the scenario's model pair on this host, on the scenario's prompts, and fit a profile.

    `bench`: of the scenario, with nothing measured. `signals` gets those of every drafted token, where drafts are
    chains of a model's tokens on the target's device. A result that no steady host gives is measured once more. Raises
    UnsteadyHostError if a fit stays off, unless that is accepted; the next try measures only its steps anew.
    DeviceMemoryError if there is no memory for a stage that the profile needs.
    """
    plan = plan_of(scenario, bench.effort)
    bench.stages.begin([stage.name for stage in plan], [stage.name for stage in plan if stage.optional])
    bench.measure(plan)
    if bench.measured.signals:
        write_signals(bench.measured.signals, signals)
    return bench.profile() if bench.elsewhere else plausible(bench)


def plausible(bench: "Bench") -> HardwareProfile:
    """Return the profile of a calibration, marked where passes differ; measure again what no steady host gives."""
    profile = bench.profile()
    if (problem := impossible_fit(profile.measured["steps"])) is not None:
        for rows in bench.rows.copy():
            bench.time_steps(bench.effort.passes, rows, f": {problem}")
        profile = bench.profile()
    if profile.measured.get("alone", 1.0) > MAX_ALONE:
        bench.contend_again(" again: a step that runs alone was slowed")
        profile = bench.profile()
    if (problem := impossible_fit(profile.measured["steps"])) is None:
        share = profile.measured.get("passes_differ", 0.0)
        return accepted(profile, APART.format(share)) if share >= DOUBTFUL else profile
    bench.forget_steps()
    if bench.stages.asked.accept_unsteady:
        return accepted(profile, problem)
    error = UnsteadyHostError(f"unsteady host: {problem}, twice; no profile is written; {REPEAT}")
    error.result = profile
    raise error


@dataclass(frozen=True, slots=True)
class Bench:
    """A calibration in progress: its stages on this host, and what was measured so far.

    - `scenario`: of small fleets; greedy, where drafters have devices of their own.
    - `looped`: of loops, with a target that drafts on its own device. `sampled`: the same as its texts are sampled.
    - `served`: whether loops are all.
    - `folder`: where continuations are kept.
    - `rows`: of loops, those that have room.
    """

    scenario: Scenario
    looped: Scenario
    sampled: Scenario
    served: bool
    folder: Path
    effort: Effort
    stages: Stages
    elsewhere: Elsewhere | None
    rows: list[int]
    measured: Measurements = field(default_factory=Measurements)

    def setup(self) -> FleetSetup:
        """Return what small fleets need, with the laws of all steps so far."""
        return FleetSetup(self.scenario, fitted_steps_of(self.looped, self.measured.of("loops")).laws)

    def measure(self, planned: Iterable[Planned]) -> None:
        """Take stages, one after the other."""
        for stage in planned:
            stage.take(self)

    def draft(self, name: str) -> None:
        """Measure drafters in service once more, in a stage of that name."""
        setup, effort = self.setup(), self.effort
        gaps = gaps_fleet(setup, SHORTEST_GAP_S, effort.longest_gap_s, effort.gap_rounds)
        loaded = [loaded_fleet(setup, targets, PARTLY, effort.loaded_rounds) for targets in effort.loads]
        saturated = loaded_fleet(setup, *SATURATING, effort.saturated_rounds)
        self._serve(name, {"saturated": [saturated], "with_gaps": [*loaded, gaps]})

    def time_steps(self, number: int, rows: int, why: str = "") -> None:
        """Time the steps of loops of so many rows in a pass, if there is room for them; `why`: once more."""
        if rows not in self.rows:
            return
        depths = (self.elsewhere.depths if self.elsewhere else ()) or depths_of(self.looped)
        loops = [loop_of(self.looped, rows, depth, number, self.effort.requests) for depth in depths]
        name, fewer = loops_name(rows, number, self.effort.passes), self.rows[: self.rows.index(rows)]
        measure = partial(self._run_loops, loops, "loops")
        if not self._take(name + why, measure, "rows" if fewer else None):
            self.rows[:] = fewer

    def forget_steps(self) -> None:
        """Keep no stage of steps that by itself gives an impossible fit; none at all if only all together do."""
        passes = self.effort.passes
        names = [loops_name(rows, number, passes) for number in range(passes + 1) for rows in self.rows]
        kept = {name: self.stages.kept.read(name, Measurements) for name in names}
        found = {name: fitted_steps_of(self.looped, read[0].of("loops")).fits for name, read in kept.items() if read}
        self.stages.kept.forget([name for name, fits in found.items() if impossible_fit(fits)] or found)

    def record_acceptance(self) -> None:
        """Measure the accepted lengths of the rounds of each prompt, in draft tokens, and the signals of chains."""
        scenario, prompts = self.sampled, self.effort.recorded if self.served else self.effort.prompts
        if not scenario.drafters.count:
            return
        loop, drafters = recording_loop(scenario, prompts, self.rows[-1] if self.served else BATCH), scenario.drafters
        signals = self.served and drafters.shape.kind == "chain" and not (drafters.finds or drafters.first)
        self._take(ACCEPTANCE, partial(self._run_loops, [loop], "recorded", signals))

    def measure_links(self) -> None:
        """Measure round trips of messages."""

        def measure() -> Measurements:
            sizes_bytes = self.effort.payloads_bytes
            round_trips_s = measure_round_trips(sizes_bytes, self.effort.pings)
            return Measurements(round_trips_s=list(zip(sizes_bytes, round_trips_s, strict=True)))

        self._take(LINKS, measure)

    def warm_up(self) -> None:
        """Measure drafters that run warm-up tokens before each draft, and ones that do not."""
        setup, effort = self.setup(), self.effort
        fleets = [rounds_fleet(setup, 1, WARM_UP_GAP, effort.warm_rounds, tokens) for tokens in effort.warm_tokens]
        self._serve(WARM_UP, {"warmed": fleets}, "warm_up")

    def take_turns(self) -> None:
        """Measure real targets that share a device with their drafter, one step at a time."""
        fleet = sharing_fleet(self.scenario, TURN_TARGETS, self.effort.sharing_requests, "turns")
        self._serve(TURNS, {"turns": [fleet]}, "time_sliced")

    def contend(self, targets: int, again: str = "") -> None:
        """Measure concurrent stations of one device, if fewer targets had room; `again`: why once more."""
        if len(self.measured.of("contended")) == targets - 1:
            fleet = sharing_fleet(self.scenario, targets, self.effort.sharing_requests, "contended")
            self._serve(f"{concurrent(targets)}{again}", {"contended": [fleet]}, "contention")

    def contend_again(self, why: str) -> None:
        """Measure concurrent stations once more, in place of the earlier measurement."""
        self.measured.runs.pop("contended", None)
        for targets in range(1, self.effort.concurrent_targets + 1):
            self.contend(targets, why)

    def profile(self) -> HardwareProfile:
        """Return the profile that all measurements so far give, with its name, the models' sizes, and its source."""
        measured, recorded, loops = self.measured, self.measured.of("recorded"), self.measured.of("loops")
        facts, left_out = self.stages.provenance | provenance_of(self.sampled), self.stages.left_out
        profile = profile_of_target(self.looped, loops, recorded[0] if recorded else None, left_out, facts)
        if self.served:
            return profile
        sampling = {"sampling": SAMPLED} if self.sampled.workload.temperature else {}
        provenance = profile.provenance | {"prompts_count": str(self.effort.prompts)} | sampling
        fleet = with_positions(resolve(self.scenario))
        sizes = {"vocabulary": largest_vocabulary(fleet), "hidden": state_numbers(fleet)}
        return profile_of_pair(replace(profile, provenance=provenance, **sizes), measured, self.scenario)

    def _run_loops(self, loops: Sequence[Scenario], kind: RunKind, signals: bool = False) -> Measurements:
        """Run loops on another engine, or in one process of ours."""
        if self.elsewhere:
            return Measurements({kind: [self.elsewhere.run(loop) for loop in loops]})
        results = in_process("target", run_loops, loops, self.sampled.workload, signals)
        return Measurements(
            {kind: [run for run, _ in results]},
            signals=[tokens for _, recorded in results for tokens in recorded.values()] if signals else [],
        )

    def _serve(self, name: str, fleets: Mapping[RunKind, Sequence[Scenario]], without: Missing | None = None) -> bool:
        """Take a stage of small fleets, one after the other; return whether it was measured."""

        def measure() -> Measurements:
            runs = {kind: [serve(fleet, self.folder).run for fleet in of_kind] for kind, of_kind in fleets.items()}
            return Measurements(runs)

        return self._take(name, measure, without)

    def _take(self, name: str, measure: Callable[[], Measurements], without: Missing | None = None) -> bool:
        taken = self.stages.take(name, measure, without)
        if taken is not None:
            self.measured.add(taken)
        return taken is not None


def bench_of(
    scenario: Scenario,
    folder: Path,
    effort: Effort,
    report: Report = silent,
    note: Report = silent,
    elsewhere: Elsewhere | None = None,
    asked: Asked = USUAL,
    keep: bool = False,
) -> Bench:
    """Return the calibration of a scenario, with nothing measured.

    `keep`: whether `folder` keeps the result of each stage; those of an earlier try of the same calibration on this
    host are not measured again. `report` is called with the name of each stage as it begins; `plan_of` lists them.
    `note` is called with a line on kept stages, and on each that is left out: for lack of memory, or as `asked`.
    `elsewhere`: another engine that runs the loops.
    """
    served = elsewhere is not None or is_served(scenario)
    pair = scenario if served else pair_of(scenario, effort.prompts)
    if elsewhere is None:
        check_models(resolve(pair))
    facts, version = in_process("facts of this host", host_facts), elsewhere.version if elsewhere else ""
    kept = Kept(folder if keep else None, fingerprint_of(scenario, effort, facts | {"engine": version}))
    stages = Stages(kept, report, note, facts, asked, notes=elsewhere.notes if elsewhere else [])
    # Texts of others are as long as the scenario's: no server takes repeated ones as it takes others.
    texts, greedy = scenario.workload if elsewhere else covering(scenario.workload), {}
    of_its_own = replace(pair.workload, shared=None, conversations=None)  # loops have texts that share nothing
    beside = replace(pair, drafters=replace(pair.drafters, place="target"), workload=of_its_own)
    if not served:
        greedy = {"temperature": 0.0, "top_k": 0, "top_p": 1.0}
        if pair.workload.temperature:
            note(f"note: {SAMPLED}")
    fleets = replace(pair, workload=replace(pair.workload, **greedy))
    looped = replace(beside, workload=replace(texts, **greedy))
    if not served:  # as many rows at once as continuations have
        looped = in_blocks(looped, scenario.verifiers)
        beside = replace(beside, verifiers=replace(beside.verifiers, max_num_seqs=BATCH))
    return Bench(fleets, looped, beside, served, folder, effort, stages, elsewhere, list(rows_of(pair)))


def pair_of(scenario: Scenario, prompts: int) -> Scenario:
    """What is measured of a scenario: its models, its drafts, and prompts of its typical length.

    Prompts are read in its chunks, by as many rows as each target has. It states no link: those of this host are
    measured.
    """
    drafters, verifiers, workload = scenario.drafters, scenario.verifiers, scenario.workload
    prompt, answer = mean_lengths(workload)
    if reason := NOT_MEASURED.get("found" if drafters.finds else drafters.kind):
        raise InputError(f"scenario {scenario.name!r}: drafters.kind = {drafters.kind!r} {reason}")
    streams = workload.streams or max(drafters.count, verifiers.count)
    rows = verifiers.max_num_seqs if workload.arrivals else -(-streams // verifiers.count)
    return Scenario(
        name=f"calibration of {scenario.name}", seed=scenario.seed, precision=scenario.precision,
        drafters=Drafters(
            kind=drafters.kind, model=drafters.model, depth=drafters.depth, shape=drafters.shape, first=drafters.first
        ),
        verifiers=Verifiers(
            model=verifiers.model, rule=verifiers.rule, max_num_seqs=min(rows, verifiers.max_num_seqs),
            max_num_batched_tokens=verifiers.max_num_batched_tokens,
        ),
        workload=Workload(
            prompts=workload.prompts, prompt_tokens=int(prompt), new_tokens=int(answer), requests=prompts,
            temperature=workload.temperature, top_k=workload.top_k, top_p=workload.top_p,
        ),
    )  # fmt: skip
