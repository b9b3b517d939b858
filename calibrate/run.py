"""Calibrate: microbenchmarks of a model pair on this host, fitted into a hardware profile."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from specfleet.calibration.assemble import profile_from
from specfleet.calibration.fits import fit_step, fits_of
from specfleet.calibration.fleets import (
    FleetSetup,
    beside_fleet,
    gaps_fleet,
    loaded_fleet,
    plain_fleet,
    rounds_fleet,
    sharing_fleet,
)
from specfleet.calibration.links import measure_round_trips
from specfleet.calibration.measurements import Effort, Measurements, SmallFleet
from specfleet.calibration.pair import decode_continuations, measure_acceptance, measure_steps
from specfleet.calibration.serving import accepted_in
from specfleet.calibration.stages import USUAL, Asked, Report, Stage, Stages, provenance_of, silent, stages_on_host
from specfleet.calibration.steadiness import MAX_ALONE, accepted, impossible_fit
from specfleet.engine.launch.processes import in_process
from specfleet.engine.launch.serve import serve
from specfleet.engine.node.build import check_models, with_positions
from specfleet.fleet.errors import InputError, UnsteadyHostError
from specfleet.fleet.scenario.lengths import mean_tokens
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
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
CONTINUATIONS, ACCEPTANCE, LINKS, WARM_UP = "continuations", "acceptance", "links", "warm-up tokens"
STEPS = tuple(f"single steps, pass {number}" for number in (1, 2, 3))
STEPS_AGAIN = "single steps again"
IN_SERVICE = tuple(f"drafters in service, pass {number}" for number in (1, 2, 3))
TURNS = f"{TURN_TARGETS} targets that take turns with their drafter"
BESIDE = "a target that drafts on its own device"
SAMPLED = "step times are of greedy decoding, acceptance is as the scenario samples"
NOT_MEASURED = {  # kinds of drafters, and what to do
    "lookup": "drafts in no time, as many tokens as it finds; calibrate it with drafters.place = 'target'",
    "replayed": "has no model to measure; give the kind of the drafter that it stands for, 'model' or 'eagle'",
}


def stages_of(effort: Effort) -> tuple[str, ...]:
    """Return the names of a calibration's stages, in order.

    >>> len(stages_of(Effort(concurrent_targets=2)))
    13
    """
    sharing = (TURNS, *map(concurrent, range(1, effort.concurrent_targets + 1)))
    passes = list(zip(STEPS, IN_SERVICE, strict=True))
    return (CONTINUATIONS, *passes[0], ACCEPTANCE, LINKS, *passes[1], WARM_UP, *sharing, *passes[2])


def concurrent(targets: int) -> str:
    """Return the name of a stage of targets that run at once with their drafter."""
    return f"{targets} target{'s' * (targets > 1)} at once with their drafter"


def optional_stages(effort: Effort) -> tuple[str, ...]:
    """Return the names of the stages that a profile can do without."""
    return (WARM_UP, TURNS, *map(concurrent, range(1, effort.concurrent_targets + 1)), BESIDE)


def calibrate(
    scenario: Scenario,
    folder: Path,
    effort: Effort = Effort(),
    report: Report = silent,
    note: Report = silent,
    asked: Asked = USUAL,
) -> HardwareProfile:
    """Measure the scenario's model pair on this host, on the scenario's prompts, and fit a profile.

    `folder` keeps the result of each stage; those of an earlier try of the same calibration on this host are not
    measured again. `report` is called with the name of each stage as it begins; `stages_of` lists them. `note` is
    called with a line on kept stages, and on each that is left out: for lack of memory, or as `asked`. A result that no
    steady host gives is measured once more. Raises UnsteadyHostError if a fit stays off, unless that is accepted;
    the next try measures only its steps anew. DeviceMemoryError if there is no memory for a stage that the profile
    needs.
    """
    bench = bench_of(pair_of(scenario, effort.prompts), folder, effort, report, note, asked, keep=True)
    measure_all(bench)
    return plausible(bench)


def measure_all(bench: "Bench") -> None:
    """Take all stages of a calibration once, in order."""
    bench.stages.begin(stages_of(bench.effort), optional_stages(bench.effort))
    bench.decode_continuations()
    bench.measure_pass(0)
    bench.measure_acceptance()
    bench.measure_links()
    bench.measure_pass(1)
    bench.warm_up()
    bench.take_turns()
    bench.contend()
    bench.measure_pass(2)


def plausible(bench: "Bench") -> HardwareProfile:
    """Return the profile of a calibration; measure again what no steady host gives."""
    profile = bench.profile()
    if (problem := impossible_fit(profile.measured)) is not None:
        bench.measure_steps(f"{STEPS_AGAIN}: {problem}")
        profile = bench.profile()
    if profile.measured.get("alone", 1.0) > MAX_ALONE:
        bench.contend(" again: a step that runs alone was slowed")
        profile = bench.profile()
    if (problem := impossible_fit(profile.measured)) is None:
        return profile
    bench.forget_steps()
    if bench.stages.asked.accept_unsteady:
        return accepted(profile, problem)
    error = UnsteadyHostError(f"unsteady host: {problem}, twice; no profile is written; repeat on a quiet host")
    error.result = profile
    raise error


@dataclass(frozen=True, slots=True)
class Bench:
    """A calibration in progress: its stages on this host, and what was measured so far.

    - `folder`: where continuations are kept.
    - `sampled`: the pair as its texts are sampled, for their acceptance; None where they are greedy.
    """

    scenario: Scenario
    fleet: Fleet
    folder: Path
    effort: Effort
    stages: Stages
    sampled: Scenario | None = None
    measured: Measurements = field(default_factory=Measurements)

    def setup(self) -> FleetSetup:
        """Return what small fleets need, with step times fitted to all points so far."""
        times = {name: fit_step(points)[0] for name, points in self.measured.points.items()}
        return FleetSetup(self.scenario, times)

    def decode_continuations(self) -> None:
        """Decode the target's text after all calibration prompts."""
        decode = partial(decode_continuations, self.fleet, self.folder)
        self._alone(CONTINUATIONS, decode)

    def measure_pass(self, number: int) -> None:
        """Measure single steps and drafters in service once more.

        The passes are minutes apart: a shared host may be slow for longer than one of them.
        """
        self.measure_steps(STEPS[number])
        setup, effort = self.setup(), self.effort
        gaps = gaps_fleet(setup, SHORTEST_GAP_S, effort.longest_gap_s, effort.gap_rounds)
        loaded = [loaded_fleet(setup, targets, PARTLY, effort.loaded_rounds) for targets in effort.loads]
        in_service: dict[SmallFleet, list[Scenario]] = {
            "saturated": [loaded_fleet(setup, *SATURATING, effort.saturated_rounds)],
            "with_gaps": [*loaded, gaps],
            "plain": [plain_fleet(self.scenario, effort.sharing_requests)],
        }
        self._serve(IN_SERVICE[number], in_service)

    def measure_steps(self, name: str) -> None:
        """Measure single steps once more, and add them to the points."""
        self._alone(name, partial(measure_steps, self.fleet, self.effort))

    def forget_steps(self) -> None:
        """Keep no stage of single steps that by itself gives an impossible fit; none at all if only all together do."""
        kept = {name: self.stages.kept.read(name, Measurements) for name in (*STEPS, STEPS_AGAIN)}
        fits = {name: fits_of(found[0].points) for name, found in kept.items() if found is not None}
        self.stages.kept.forget([name for name in fits if impossible_fit(fits[name])] or fits)

    def measure_acceptance(self) -> None:
        """Measure the accepted lengths of the rounds of each prompt, in draft tokens; of sampled texts in a fleet."""
        if self.sampled is None:
            measure = partial(measure_acceptance, self.fleet, self.folder)
            self._alone(ACCEPTANCE, measure)
        else:
            self._serve(ACCEPTANCE, {"sampled": [sharing_fleet(self.sampled, 1, self.effort.prompts, "turns")]})
            self.measured.accepted = [list(session) for session in accepted_in(self.measured.of("sampled"))]

    def measure_links(self) -> None:
        """Measure round trips of messages."""

        def measure() -> Measurements:
            sizes_bytes = self.effort.payloads_bytes
            round_trips_s = measure_round_trips(self.fleet, sizes_bytes, self.effort.pings)
            return Measurements(round_trips_s=list(zip(sizes_bytes, round_trips_s, strict=True)))

        self._take(Stage(LINKS, measure, Measurements))

    def warm_up(self) -> None:
        """Measure drafters that run warm-up tokens before each draft, and ones that do not."""
        setup, effort = self.setup(), self.effort
        fleets = [rounds_fleet(setup, 1, WARM_UP_GAP, effort.warm_rounds, tokens) for tokens in effort.warm_tokens]
        self._serve(WARM_UP, {"warmed": fleets}, "warm_up")

    def take_turns(self) -> None:
        """Measure real targets that share a device with their drafter, one step at a time."""
        fleet = sharing_fleet(self.scenario, TURN_TARGETS, self.effort.sharing_requests, "turns")
        self._serve(TURNS, {"turns": [fleet]}, "time_sliced")

    def contend(self, again: str = "") -> None:
        """Measure concurrent stations of one device, in place of an earlier measurement; `again`: why once more.

        Without room for one target beside its drafter, a target that drafts itself shows verifications in service.
        """
        self.measured.runs.pop("contended", None)
        for targets in range(1, self.effort.concurrent_targets + 1):
            fleet = sharing_fleet(self.scenario, targets, self.effort.sharing_requests, "contended")
            if not self._serve(f"{concurrent(targets)}{again}", {"contended": [fleet]}, "contention"):
                break
        if not self.measured.of("contended"):
            self.draft_beside()

    def draft_beside(self) -> None:
        """Measure a target that drafts on its own device, a request at a time."""
        fleet = beside_fleet(self.scenario, 2 * self.effort.sharing_requests)
        self._serve(BESIDE, {"beside": [fleet]}, "verify")

    def profile(self) -> HardwareProfile:
        """Return the profile that all measurements so far give, with its name, the models' sizes, and its source."""
        facts, measured = self.stages.provenance, self.measured
        texts = {"prompts_count": str(self.effort.prompts)} | ({"sampling": SAMPLED} if self.sampled else {})
        return profile_from(
            measured, self.setup(), self.stages.left_out, name=f"calibrated-{facts['machine']}",
            vocabulary=measured.vocabulary, hidden=measured.hidden, positions=self.fleet.drafters.positions,
            provenance=facts | provenance_of(self.scenario) | texts,
        )  # fmt: skip

    def _alone(self, name: str, work: Callable[[], Measurements]) -> None:
        """Take a stage of one process with models."""
        self._take(Stage(name, partial(in_process, name, work), Measurements))

    def _serve(
        self, name: str, fleets: Mapping[SmallFleet, Sequence[Scenario]], without: Missing | None = None
    ) -> bool:
        """Take a stage of small fleets, one after the other; return whether it was measured."""

        def measure() -> Measurements:
            runs = {kind: [serve(fleet, self.folder).run for fleet in of_kind] for kind, of_kind in fleets.items()}
            return Measurements(runs=runs)

        return self._take(Stage(name, measure, Measurements, without))

    def _take(self, stage: Stage[Measurements]) -> bool:
        taken = self.stages.take(stage)
        if taken is not None:
            self.measured.add(taken)
        return taken is not None


def bench_of(
    scenario: Scenario,
    folder: Path,
    effort: Effort,
    report: Report = silent,
    note: Report = silent,
    asked: Asked = USUAL,
    keep: bool = False,
) -> Bench:
    """Return the calibration of a scenario's pair, with nothing measured; `keep`: whether `folder` keeps results."""
    check_models(resolve(scenario))
    effort = effort.up_to(int(mean_tokens(scenario.workload.prompt_tokens)))
    stages = stages_on_host(scenario, effort, folder if keep else None, report, note, asked)
    greedy = replace(scenario, workload=replace(scenario.workload, temperature=0.0, top_k=0, top_p=1.0))
    sampled = scenario if scenario.workload.temperature else None
    if sampled:
        note(f"note: {SAMPLED}")
    return Bench(greedy, with_positions(resolve(greedy)), folder, effort, stages, sampled)


def pair_of(scenario: Scenario, prompts: int) -> Scenario:
    """What is measured of a scenario: its models, its drafts, and prompts of its typical length.

    Prompts are read in its chunks. It states no link: those of this host are measured.
    """
    drafters, verifiers, workload = scenario.drafters, scenario.verifiers, scenario.workload
    prompt, answer = mean_lengths(workload)
    if reason := NOT_MEASURED.get(drafters.kind):
        raise InputError(f"scenario {scenario.name!r}: drafters.kind = {drafters.kind!r} {reason}")
    return Scenario(
        name=f"calibration of {scenario.name}",
        seed=scenario.seed,
        precision=scenario.precision,
        drafters=Drafters(kind=drafters.kind, model=drafters.model, depth=drafters.depth, shape=drafters.shape),
        verifiers=Verifiers(
            model=verifiers.model, rule=verifiers.rule, max_num_batched_tokens=verifiers.max_num_batched_tokens
        ),
        workload=Workload(
            prompts=workload.prompts,
            prompt_tokens=int(prompt),
            new_tokens=int(answer),
            requests=prompts,
            temperature=workload.temperature,
            top_k=workload.top_k,
            top_p=workload.top_p,
        ),
    )
