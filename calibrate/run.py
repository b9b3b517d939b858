"""Calibrate: microbenchmarks of a model pair on this host, fitted into a hardware profile."""

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import torch

from calibrate.acceptance import accepted_lengths
from calibrate.assemble import Measurements, Points, merged, profile_from
from calibrate.fits import fit_step
from calibrate.fleets import FleetSetup, run_beside, run_loaded, run_over_gaps, run_plain, run_rounds, sharing_fleet
from calibrate.links import measure_round_trips
from calibrate.steadiness import MOST_ALONE, impossible_fit
from calibrate.steps import Series, draft_prefill_series, draft_series, measure, verify_prefill_series, verify_series
from engine.decoding.draft import Drafter
from engine.decoding.shared_tokenizer import check_shared_tokenizer
from engine.decoding.telemetry import host_facts
from engine.decoding.verify import Target
from engine.launch.bodies import THREADS
from engine.launch.serve import serve
from engine.node.build import load_target, new_drafter, new_target, with_positions
from engine.node.prompts import prompts_of
from engine.replayed.continuations import continuations_of
from fleet.errors import InputError, UnsteadyHostError
from fleet.scenario.lengths import mean_tokens
from fleet.scenario.provenance import provenance_of
from fleet.scenario.resolve import resolve
from fleet.scenario.resolved import Fleet
from fleet.scenario.scenario import Drafters, Scenario, Sharing, Verifiers, Workload
from fleet.scenario.workload import with_lengths
from fleet.times.profile import HardwareProfile
from fleet.times.step_time import StepTime

Report = Callable[[str], None]

SHORTEST_GAP_S = 0.001
WARM_UP_GAP = StepTime(base_s=0.03)  # the gap of StarSD's figure 6c
SATURATING = (6, 2.0)  # targets that never let the drafter pause; answers at once would make drafts 2 or 3 % faster
PARTLY = 4.0  # drafts that targets verify for where the drafter is loaded in part, irregularly


class Effort(msgspec.Struct, frozen=True):
    """How much to measure; counts of repetitions and grid points."""

    depths: tuple[int, ...] = tuple(range(1, 11))
    contexts: tuple[int, ...] = (64, 128, 192, 256)
    repeats: int = 5
    prompts: int = 72  # as many as a demo cell decodes, each with its pair there
    longest_gap_s: float = 0.1
    gap_rounds: int = 100  # of each pass
    warm_tokens: tuple[int, ...] = (0, 1, 2, 4)
    warm_rounds: int = 40
    loads: tuple[int, ...] = (1, 3)  # targets that load the drafter in part
    saturated_rounds: int = 300
    loaded_rounds: int = 150
    payloads_bytes: tuple[int, ...] = (64, 1024, 16 * 1024, 128 * 1024)
    pings: int = 60
    concurrent_targets: int = 3  # fleets of 1 .. so many targets run concurrently on one device
    sharing_requests: int = 12  # of each target that shares a device


QUICK = Effort(
    depths=(1, 3, 5, 8), contexts=(64, 160, 256), repeats=5, prompts=48, longest_gap_s=0.05, gap_rounds=80,
    warm_tokens=(0, 2), warm_rounds=30, loads=(2,), saturated_rounds=200, loaded_rounds=150,
    payloads_bytes=(64, 16 * 1024), pings=20, concurrent_targets=2, sharing_requests=8,
)  # fmt: skip


TURN_TARGETS = 2  # that take turns with their drafter: fewer would never wait for the device
STEPS = tuple(f"single steps, pass {number}" for number in (1, 2, 3))
IN_SERVICE = tuple(f"drafters in service, pass {number}" for number in (1, 2, 3))
STAGES = (
    STEPS[0], IN_SERVICE[0], "acceptance", "links", STEPS[1], IN_SERVICE[1], "warm-up tokens",
    "stations that share a device", STEPS[2], IN_SERVICE[2],
)  # fmt: skip


def calibrate(
    scenario: Scenario,
    folder: Path,
    effort: Effort = Effort(),
    report: Report = lambda _stage: None,
) -> HardwareProfile:
    """Measure the scenario's model pair on this host, on the scenario's prompts, and fit a profile.

    `report` is called with the name of each stage as it begins; STAGES lists them. `folder`: where continuations
    are kept. A result that no steady host gives is measured once more. Raises UnsteadyHostError if a fit stays off.
    """
    bench = bench_of(pair_of(scenario, effort.prompts), folder, effort, report)
    bench.measure_pass(0)
    bench.measure_acceptance()
    bench.measure_links()
    bench.measure_pass(1)
    report("warm-up tokens")
    setup = bench.setup()
    bench.measured.warmed = [
        (tokens, run_rounds(setup, 1, WARM_UP_GAP, effort.warm_rounds, tokens)) for tokens in effort.warm_tokens
    ]
    report("stations that share a device")
    bench.share("turns", TURN_TARGETS)
    bench.contend()
    bench.measure_pass(2)
    return plausible(bench)


def plausible(bench: "Bench") -> HardwareProfile:
    """Return the profile of a calibration; measure again what no steady host gives."""
    profile = bench.profile()
    if (problem := impossible_fit(profile)) is not None:
        bench.report(f"single steps again: {problem}")
        bench.measure_grids()
        profile = bench.profile()
    if profile.measured["alone"] > MOST_ALONE:
        bench.report("stations that share a device again: a step that runs alone was slowed")
        bench.contend()
        profile = bench.profile()
    if (problem := impossible_fit(profile)) is not None:
        error = UnsteadyHostError(f"unsteady host: {problem}, twice; no profile is written; repeat on a quiet host")
        error.result = profile
        raise error
    return profile


@dataclass(frozen=True, slots=True)
class Bench:
    """A calibration in progress: the models on this host, and what was measured so far."""

    scenario: Scenario
    fleet: Fleet
    folder: Path
    effort: Effort
    report: Report
    drafter: Drafter
    target: Target
    prompts: list[list[int]]
    measured: Measurements = field(default_factory=Measurements)

    def setup(self) -> FleetSetup:
        """Return what small fleets need, with step times fitted to all points so far."""
        times = {name: fit_step(points)[0] for name, points in self.measured.points.items()}
        return FleetSetup(self.scenario, times, self.folder)

    def measure_pass(self, number: int) -> None:
        """Measure single steps and drafters in service once more.

        The passes are minutes apart: a shared host may be slow for longer than one of them.
        """
        self.report(STEPS[number])
        self.measure_grids()
        self.report(IN_SERVICE[number])
        measured, effort = self.measured, self.effort
        setup = self.setup()
        measured.saturated.append(run_loaded(setup, *SATURATING, effort.saturated_rounds))
        measured.with_gaps.extend(run_loaded(setup, targets, PARTLY, effort.loaded_rounds) for targets in effort.loads)
        measured.with_gaps.append(run_over_gaps(setup, SHORTEST_GAP_S, effort.longest_gap_s, effort.gap_rounds))
        measured.plain.append(run_plain(setup, effort.sharing_requests))

    def measure_grids(self) -> None:
        """Measure single steps once more, and add them to the points."""
        for name, points in self.measure_steps().items():
            self.measured.points[name] = merged(self.measured.points.get(name, []), points)

    def measure_links(self) -> None:
        """Measure round trips of messages."""
        self.report("links")
        sizes_bytes = self.effort.payloads_bytes
        round_trips_s = measure_round_trips(self.fleet, sizes_bytes, self.effort.pings)
        self.measured.round_trips_s = list(zip(sizes_bytes, round_trips_s, strict=True))

    def share(self, sharing: Sharing, targets: int) -> None:
        """Measure real targets and their drafter on one device, shared by that rule."""
        fleet = sharing_fleet(self.scenario, targets, self.effort.sharing_requests, sharing)
        self.measured.sharing.setdefault(sharing, []).append(serve(fleet, self.folder).run)

    def draft_beside(self) -> None:
        """Measure a target that drafts on its own device, a request at a time."""
        self.measured.beside.append(run_beside(self.setup(), 2 * self.effort.sharing_requests))

    def contend(self) -> None:
        """Measure concurrent stations of one device, in place of an earlier measurement."""
        self.measured.sharing.pop("contended", None)
        for targets in range(1, self.effort.concurrent_targets + 1):
            self.share("contended", targets)

    def measure_steps(self) -> Points:
        """Measure all kinds of steps, each over its grid, by the names of a profile."""
        depth, shape, depths = self.scenario.drafters.depth, self.scenario.drafters.shape, self.effort.depths
        if shape.kind != "chain":  # trees grow fast: a deeper one than the scenario's may be monstrous
            depths = (*(shallower for shallower in depths if shallower < depth), depth)
        fed = sorted({shape.nodes(levels) + 1 for levels in depths})
        contexts, how = self.effort.contexts, (self.prompts[0], self.effort.repeats)
        verifications = verify_series(self.target, *how, shape)
        grids: dict[str, tuple[Series, Sequence[int], Sequence[int]]] = {
            "draft": (draft_series(self.drafter, *how), depths, contexts),
            "verify": (verifications, fed, contexts),
            "decode": (verifications, [1], contexts),
            "draft_prefill": (draft_prefill_series(self.drafter, *how), contexts, (0,)),
            "verify_prefill": (verify_prefill_series(self.target, *how), contexts, (0,)),
        }
        return {name: measure(*grid) for name, grid in grids.items()}

    def measure_acceptance(self) -> None:
        """Measure the accepted lengths of the rounds of each prompt, in draft tokens."""
        self.report("acceptance")
        depth, new_tokens = self.scenario.drafters.depth, int(mean_tokens(self.scenario.workload.new_tokens))
        self.measured.accepted = [
            accepted_lengths(self.drafter, continuation, new_tokens, depth)
            for continuation in continuations_of(self.fleet, self.folder)
        ]

    def profile(self) -> HardwareProfile:
        """Return the profile that all measurements so far give, with its name, the models' sizes, and its source."""
        facts = host_facts()
        written = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        of_prompts = {"prompts_count": str(self.effort.prompts)}  # the first ones of the file
        return profile_from(
            self.measured,
            self.setup(),
            name=f"calibrated-{facts['machine']}",
            vocabulary=self.target.model.vocabulary,
            hidden=self.drafter.state_numbers,
            positions=self.fleet.drafters.positions,
            provenance=facts | {"written": written} | provenance_of(self.scenario) | of_prompts,
        )


def bench_of(scenario: Scenario, folder: Path, effort: Effort, report: Report) -> Bench:
    """Load the scenario's pair."""
    if scenario.drafters.kind == "model":
        check_shared_tokenizer(scenario.drafters.model, scenario.verifiers.model)
    torch.set_num_threads(THREADS)
    fleet = with_positions(resolve(scenario))
    target = new_target(fleet, load_target(fleet))
    drafter = new_drafter(fleet, target.model)
    assert isinstance(drafter, Drafter)
    return Bench(scenario, fleet, folder, effort, report, drafter, target, prompts_of(fleet))


def pair_of(scenario: Scenario, prompts: int) -> Scenario:
    """What is measured of a scenario: its models, its drafts, and prompts of its typical length, decoded greedily.

    It states no link: those of this host are measured.
    """
    drafters, workload = scenario.drafters, scenario.workload
    if drafters.kind == "lookup":
        raise InputError(
            f"scenario {scenario.name!r}: drafters.kind = 'lookup' drafts in no time, as many tokens as it finds; "
            "calibrate it with drafters.place = 'target'"
        )
    return Scenario(
        name=f"calibration of {scenario.name}",
        seed=scenario.seed,
        precision=scenario.precision,
        drafters=Drafters(kind=drafters.kind, model=drafters.model, depth=drafters.depth, shape=drafters.shape),
        verifiers=Verifiers(model=scenario.verifiers.model),
        workload=Workload(
            prompts=workload.prompts,
            prompt_tokens=int(mean_tokens(with_lengths(workload).prompt_tokens)),
            new_tokens=int(mean_tokens(with_lengths(workload).new_tokens)),
            requests=prompts,
        ),
    )
