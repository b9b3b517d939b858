"""A budget of devices, and the fleets that can be made of it: alike targets, each on some devices, and drafters."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from specfleet.experiments.plan.candidates import LOOKUP, Asked, Candidate, acceptance_of, candidates_of
from specfleet.experiments.plan.goals import Goal
from specfleet.experiments.plan.serving import LoadCurve, load_curve
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.passes import precisions_of
from specfleet.fleet.hardware.profile import devices_in, placed_of
from specfleet.fleet.hardware.shipped import device_of, shape_of
from specfleet.fleet.scenario.arrivals import Poisson
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Late, Measure, Scenario

FORM = "write COUNTxDEVICE, several with commas: 8xh100,4xl40s"
MAX_TARGETS = 4  # of one drafter
LATE: tuple[Late, ...] = ("skip", "decode")  # of late drafts, to try
PARALLEL = (1, 2, 4, 8)  # devices of a target: one host's
PRECISIONS = ("bf16", "fp8")  # of weights, to try
EACH, ENOUGH = 8, 3  # requests of a simulation for each one in flight: at least, and at large loads, which vary less
LARGE = 30_000  # requests of a simulation from which on a load is large
WARM_UP = 0.2  # share of a simulation with arrivals that fills the fleet
BEGINNING = 1.85  # answers of a closed loop before its window, since all prompts come at once at first


class Load(msgspec.Struct, frozen=True):
    """Requests that arrive in a second, or a number that is always in flight; the other is 0."""

    per_s: float = 0.0
    in_flight: int = 0

    def times(self, factor: float) -> "Load":
        """Return a load so many times as large."""
        return Load(self.per_s * factor, round(self.in_flight * factor))

    @property
    def text(self) -> str:
        """The load in words."""
        return f"{self.per_s:.3g}/s" if self.per_s else f"{self.in_flight} in flight"


class FleetQuestion(msgspec.Struct, frozen=True):
    """What to build of a budget.

    - `devices`: how many of each kind.
    - `asked`: the target, MODEL, MODEL:PRECISION or a place, drafters, acceptance, link, prices, lengths of requests.
    - `depth`: of all drafts; 0 to search.
    """

    devices: Mapping[str, int]
    asked: Asked
    load: Load
    goals: tuple[Goal, ...] = ()
    depth: int = 0

    @property
    def by_cost(self) -> bool:
        """Whether the cheapest fleet is asked for, since goals say what is enough; else the fastest."""
        return bool(self.goals and self.load.per_s)


class Deployment(msgspec.Struct, frozen=True):
    """A fleet: `replicas` targets alike, `sharing` of them for each drafter elsewhere."""

    candidate: Candidate
    replicas: int
    depth: int = 0
    sharing: int = 1
    late: Late = "skip"

    @property
    def drafters(self) -> int:
        """Drafters elsewhere."""
        return self.replicas // self.sharing if self.candidate.method == "apart" else 0

    @property
    def cost_per_hour(self) -> float:
        """What an hour of its devices costs."""
        return self.replicas * self.candidate.target_per_hour + self.drafters * self.candidate.drafter_per_hour

    @property
    def devices(self) -> dict[str, int]:
        """Devices of each kind that it takes."""
        taken: Counter[str] = Counter()
        for place, stations in ((self.candidate.target, self.replicas), (self.candidate.name, self.drafters)):
            if stations:
                kind, parallel = devices_in(place)
                taken[kind] += parallel * stations
        return dict(taken)

    @property
    def title(self) -> str:
        """The fleet in words."""
        drafts = f", {self.candidate.name}" + (f", depth {self.depth}" if self.depth else "")
        targets = "1 target" if self.sharing == 1 else f"{self.sharing} targets"
        elsewhere = f", {targets} a drafter, {self.late} late drafts" if self.drafters else ""
        return f"{self.replicas} x {self.candidate.target}{drafts}{elsewhere}"

    def scenario(self, load: Load, requests: int) -> Scenario:
        """The fleet under a load, as a scenario. Requests go to the targets in turn."""
        replace, base = msgspec.structs.replace, self.candidate.base
        arrivals = Poisson(load.per_s) if load.per_s else None
        warm_up = WARM_UP if load.per_s else BEGINNING * load.in_flight / requests
        stations = self.drafters or min(base.drafters.count, 1)
        return replace(
            base,
            name=self.title,
            workload=replace(base.workload, arrivals=arrivals, streams=load.in_flight, requests=requests),
            drafters=replace(base.drafters, depth=self.depth or base.drafters.depth, count=stations),
            verifiers=replace(base.verifiers, count=self.replicas, late=self.late),
            measure=Measure(warm_up),
        )


class Estimate(NamedTuple):
    """What equations say of a fleet: the mean time of a request."""

    fleet: Deployment
    curve: LoadCurve
    request_s: float


def budget_of(text: str) -> dict[str, int]:
    """Read `8xh100,4xl40s`; InputError for anything else, and for an unknown device."""
    devices: dict[str, int] = {}
    for part in text.split(","):
        count, times, kind = part.strip().partition("x")
        if not times or not count.isdecimal() or not 0 < int(count) <= 4096 or kind in devices:
            raise InputError(f"--devices {text}: {FORM}")
        device_of(kind)
        devices[kind] = int(count)
    return devices


def estimates(question: FleetQuestion) -> list[Estimate]:
    """Return all fleets of a budget, the fastest first, by equations; some may not carry the load.

    Raises InputError where the model does not fit, or no fleet carries the load.
    """
    acceptance_of(question.asked.acceptance)
    found: list[Estimate] = []
    reasons = []
    drafts, priced = tuple(_draft_places(question)), tuple(f"@{kind}" for kind in question.devices)
    for place in _target_places(question):
        try:
            placed_of(place)
        except InputError as error:
            reasons.append(error)
            continue
        made, _ = candidates_of(msgspec.structs.replace(question.asked, target=place, drafts=drafts, priced=priced))
        for one in made:
            try:
                found += _of_candidate(question, one)
            except InputError as error:  # its KV cache has no room
                reasons.append(error)
    if not found and reasons:
        raise reasons[-1]
    found.sort(key=lambda one: one.request_s)
    if found[0].request_s == float("inf"):
        rate = max(one.fleet.replicas * float(one.curve.per_s[-1]) for one in found)
        raise InputError(f"{question.load.text}: these devices carry up to about {rate:.3g}/s (equations); add devices")
    return found


def _target_places(question: FleetQuestion) -> Iterator[str]:
    """Yield the places of a target: the user's, or every number of each device and every precision."""
    text = question.asked.target
    if "@" in text:
        _check_fits(question, "--target", text)
        yield text
        return
    model, colon, precision = text.partition(":")
    tried = PRECISIONS[:1] if shape_of(model).experts_in else PRECISIONS  # published ones are not quantised again
    for kind, count in question.devices.items():
        own = [precision] if colon else [one for one in tried if one in precisions_of(device_of(kind))]
        yield from (f"{model}@{n}x{kind}:{one}" for n in PARALLEL if n <= count for one in own)


def _draft_places(question: FleetQuestion) -> Iterator[str]:
    """Yield the drafters; a small model without a place may run on any kind of the budget that holds it."""
    for text in question.asked.drafts:
        if "@" in text:
            _check_fits(question, "--draft", text)
            yield text
        elif text == LOOKUP or shape_of(text).head:
            yield text
        else:
            yield from [place for kind in question.devices if _holds(place := f"{text}@{kind}")] or [text]


def _holds(place: str) -> bool:
    """Whether a model fits on its device."""
    try:
        placed_of(place)
    except InputError:
        return False
    return True


def _check_fits(question: FleetQuestion, option: str, place: str) -> None:
    kind, parallel = devices_in(place)
    if question.devices.get(kind, 0) < parallel:
        raise InputError(f"{option} {place}: takes {parallel} x {kind}, which --devices does not have")


def _of_candidate(question: FleetQuestion, one: Candidate) -> Iterator[Estimate]:
    apart = one.method == "apart"
    for depth in one.depths_to_try(question.depth):
        drafters = msgspec.structs.replace(one.base.drafters, depth=max(depth, 1))
        fleet = resolve(msgspec.structs.replace(one.base, drafters=drafters))
        for sharing in range(1, MAX_TARGETS + 1) if apart else (1,):
            curve = load_curve(fleet, depth, sharing)
            group = Deployment(one, sharing, depth, sharing)  # a drafter and its targets, or one target
            most = min(question.devices.get(kind, 0) // count for kind, count in group.devices.items())
            if question.load.in_flight:
                most = min(most, question.load.in_flight // sharing)  # no target is without a request
            for groups in range(1 if question.by_cost else max(most, 1), most + 1):
                for late in LATE if apart else LATE[:1]:
                    made = Deployment(one, groups * sharing, depth, sharing, late)
                    yield Estimate(made, curve, mean_request_s(curve, question.load, made.replicas))


def enough_for(in_flight: float) -> int:
    """Return the least requests of a simulation with so many in flight."""
    return math.ceil(min(EACH * in_flight, max(ENOUGH * in_flight, LARGE)))


def mean_request_s(curve: LoadCurve, load: Load, replicas: int) -> float:
    """Return the mean time of a request at that many targets under a load; infinite if they do not carry it."""
    return curve.request_at(load.per_s / replicas) if load.per_s else curve.request_with(load.in_flight / replicas)
