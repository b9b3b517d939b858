"""Fleets that answer a question: alike targets and their drafters, each by equations, and the load that it may get."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Literal, NamedTuple

import msgspec
from msgspec import UNSET

from specfleet.experiments.plan.candidates import Candidate
from specfleet.experiments.plan.goals import Goal
from specfleet.experiments.plan.serving import LoadCurve, Rounds, behind_prefill, curve_of_target
from specfleet.fleet.errors import ContextError, InputError
from specfleet.fleet.hardware.profile import devices_in
from specfleet.fleet.scenario.arrivals import Gamma, Poisson
from specfleet.fleet.scenario.cost import per_million_tokens
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Late, Measure, Scenario
from specfleet.fleet.scenario.shared import Conversations
from specfleet.fleet.times.profile import HardwareProfile

MARGIN = 0.10
"""Share of capacity that a plan leaves free: equations overstate it by 0 to 10.5 % (35 servers in closed loops)."""

SHARING, OF_A_STAR = 4, 24  # targets of one drafter, at most: of servers, and of targets with one request each
TARGETS = 24  # of a fleet without a budget, at most, unless the load takes more
BEYOND_KNEE = 1.5  # times the targets that keep a drafter busy: more only wait
LATE: tuple[Late, ...] = ("skip", "decode")  # of late drafts, to try
EACH, ENOUGH = 12, 3  # requests of a simulation for each one in flight: usually, and at large loads, which vary less
LARGE = 20_000  # requests of a simulation from which on a load is large
WARM_UP = 0.2  # share of a simulation with arrivals that fills the fleet
RAMP = 4.0  # mean ages of a conversation's requests, until all of its turns arrive at their rate
BEGINNING = 1.85  # answers of a closed loop before its window, since all prompts come at once at first

Aim = Literal["hour", "token", "time"]
"""What the best fleet has least of, of those that meet the goals: cost of an hour, cost of a token, time."""


class Load(msgspec.Struct, frozen=True):
    """Requests that arrive in a second, a number always in flight, or a number at each target; the others are 0.

    `burstiness`: of arrivals, the shape of their gamma gaps; 1 is Poisson.
    """

    per_s: float = 0.0
    in_flight: int = 0
    each: int = 0
    burstiness: float = 1.0

    def times(self, factor: float) -> "Load":
        """Return a load so many times as large."""
        in_flight, each = round(self.in_flight * factor), round(self.each * factor)
        return Load(self.per_s * factor, in_flight, each, self.burstiness)

    def at_once(self, targets: int) -> int:
        """Requests in flight in a fleet of so many targets; 0 with arrivals."""
        return self.in_flight or self.each * targets

    @property
    def text(self) -> str:
        """The load in words."""
        if self.per_s:
            return f"{self.per_s:.4g}/s" + (f" (burstiness {self.burstiness:g})" if self.burstiness != 1 else "")
        return f"{self.each} in flight at each target" if self.each else f"{self.in_flight} in flight"


class Question(msgspec.Struct, frozen=True):
    """Which of the candidates' fleets serves a load best.

    - `devices`: the budget, how many of each kind; None for as many as it takes.
    - `targets`, `drafters`: numbers to try; () for all.
    """

    candidates: tuple[Candidate, ...]
    load: Load
    goals: tuple[Goal, ...] = ()
    devices: Mapping[str, int] | None = None
    targets: tuple[int, ...] = ()
    drafters: tuple[int, ...] = ()

    @property
    def aim(self) -> Aim:
        """The hour's cost where load or goals say what is enough; else a token's cost, or of a budget the time."""
        total = any(goal.metric == "throughput" for goal in self.goals)
        if (self.load.per_s and (self.goals or self.devices is None)) or (self.load.each and total):
            return "hour"
        return "token" if self.load.each else "time"


class Deployment(msgspec.Struct, frozen=True):
    """A fleet: `replicas` targets alike, `sharing` of them a drafter elsewhere, and `prefills` servers like them."""

    candidate: Candidate
    replicas: int
    depth: int = 0
    sharing: int = 1
    late: Late = "skip"
    prefills: int = 0

    @property
    def drafters(self) -> int:
        """Drafters elsewhere."""
        return self.replicas // self.sharing if self.candidate.method == "apart" else 0

    @property
    def servers(self) -> int:
        """Targets and prefill servers."""
        return self.replicas + self.prefills

    @property
    def at(self) -> str:
        """Its servers in words."""
        return f"{self.prefills} prefill + " * (self.prefills > 0) + f"{self.replicas} x {self.candidate.target}"

    @property
    def is_slow(self) -> bool:
        """Whether it is simulated event by event: prefill servers, and prefix caches with a drafter elsewhere."""
        return self.prefills > 0 or (self.drafters > 0 and self.candidate.base.verifiers.prefix_cache)

    @property
    def cost_per_hour(self) -> float:
        """What an hour of its devices costs."""
        return self.servers * self.candidate.target_per_hour + self.drafters * self.candidate.drafter_per_hour

    @property
    def devices(self) -> dict[str, int]:
        """Devices of each kind that it takes; by role where they have no names."""
        taken: Counter[str] = Counter()
        for place, stations in ((self.candidate.target, self.servers), (self.candidate.place, self.drafters)):
            if stations:
                kind, parallel = devices_in(place)
                taken[kind] += parallel * stations
        return dict(taken)

    @property
    def title(self) -> str:
        """The fleet in words."""
        drafts = f", {self.candidate.name}" + (f", depth {self.depth}" if self.depth else "")
        targets = "1 target" if self.sharing == 1 else f"{self.sharing} targets"
        waits = self.candidate.base.verifiers.max_num_seqs == 1 and self.late == "skip"  # as a star does
        late = "" if waits else f", {self.late} late drafts"
        elsewhere = f", {targets} a drafter{late}" if self.drafters else ""
        return f"{self.at}{drafts}{elsewhere}"

    def scenario(self, load: Load, requests: int) -> Scenario:
        """The fleet under a load, as a scenario. Requests go to the targets in turn."""
        replace, base = msgspec.structs.replace, self.candidate.base
        talks = self.candidate.base.workload.conversations  # which arrive, and not their turns
        per_s, at_once = load.per_s / (talks.mean_turns() if talks else 1), load.at_once(self.replicas)
        arrivals = Poisson(per_s) if per_s else None
        bursts = Gamma(per_s, load.burstiness) if load.burstiness != 1 else None
        streams = 0 if load.each == 1 else at_once
        stations = self.drafters or min(base.drafters.count, 1)
        measure = Measure(BEGINNING * at_once / requests)
        if load.per_s:
            measure = Measure(WARM_UP, "arrivals" if talks else "run")
            requests = max(requests, min(ramp_requests(load, talks), LARGE))
        depth = base.drafters.depth if base.verifiers.allocate is not None else self.depth or base.drafters.depth
        prefill = replace(base.verifiers.prefill, count=self.prefills) if self.prefills else UNSET
        return replace(
            base,
            name=self.title,
            workload=replace(base.workload, arrivals=bursts or arrivals, streams=streams, requests=requests),
            drafters=replace(base.drafters, depth=depth, count=stations),
            verifiers=replace(base.verifiers, count=self.replicas, late=self.late, prefill=prefill),
            measure=measure,
        )


class Estimate(NamedTuple):
    """What equations say of a fleet: the mean time of a request, and what a million tokens cost."""

    fleet: Deployment
    curve: LoadCurve
    request_s: float
    per_million: float

    @property
    def may_win(self) -> bool:
        """Whether the fleet carries the load, with the margin kept."""
        return self.request_s < math.inf

    @property
    def per_s(self) -> float:
        """Its capacity in requests a second."""
        return self.fleet.replicas * self.curve.capacity_per_s


def estimates(question: Question) -> tuple[list[Estimate], list[str]]:
    """Return all fleets, the best by equations first, and a note on each candidate that has no room for a request.

    Some may not carry the load. Raises InputError where no request fits, or no fleet carries the load.
    """
    every, left_out, reasons = list[Estimate](), list[tuple[str, str]](), list[InputError]()
    for candidate in question.candidates:
        before = len(every)
        try:
            fitting, note = _within_memory(candidate)
            every += _of_candidate(question, fitting)
            left_out += [("", note)] * bool(note)
        except InputError as error:  # its KV cache has no room, or its texts are too long
            reasons.append(error)
            beyond = f" beyond depth {every[-1].fleet.depth}" if len(every) > before else ""
            is_own = candidate.depths == (0,) or isinstance(error, ContextError)
            why = str(error) if is_own else f"the drafter and its cache have no room beside {candidate.target}"
            name = "" if isinstance(error, ContextError) else candidate.name  # more devices have no more positions
            left_out.append((name, f"left out: {candidate.name}{beyond}: {why}"))
    if not every:
        if reasons and isinstance(reasons[-1], ContextError):
            raise ContextError(f"{reasons[-1]}; a plan for servers draws answers up to a tenth longer than stated")
        raise reasons[-1] if reasons else InputError("plan: no fleet has such numbers of targets and drafters")
    hour = question.aim == "hour"
    every.sort(key=lambda made: (made.fleet.cost_per_hour if hour else 0.0, made.per_million, made.request_s))
    if not any(made.may_win for made in every):
        rate = (1 - MARGIN) * max(made.per_s for made in every)
        raise InputError(
            f"{question.load.text}: these devices carry up to about {rate:.3g}/s (equations, a margin of {MARGIN:.0%} "
            "kept); add devices"
        )
    most = {made.fleet.candidate.name: (1 - MARGIN) * made.per_s for made in sorted(every, key=lambda made: made.per_s)}
    few = most.keys() - {made.fleet.candidate.name for made in every if made.may_win}
    left_out += [("", f"left out: {name}: carries up to about {most[name]:.3g}/s (equations)") for name in sorted(few)]
    found = set[str]() if question.devices is None else {*most}
    return every, list(dict.fromkeys(note for name, note in left_out if name not in found))


def _of_candidate(question: Question, candidate: Candidate) -> Iterator[Estimate]:
    replace = msgspec.structs.replace
    is_open = candidate.method == "apart" and "late" not in candidate.stated
    for depth, late in product(candidate.depths, LATE if is_open else (candidate.base.verifiers.late,)):
        single = Deployment(candidate, 1, depth, late=late, prefills=int(bool(candidate.base.verifiers.prefill)))
        rounds = Rounds(resolve(single.scenario(Load(in_flight=1), candidate.base.workload.requests)))
        if is_open and late == "decode" and rounds.reached is None:  # time of plain steps is not known
            continue
        for sharing in _sharings(question, candidate, rounds):
            curve = curve_of_target(rounds, sharing)
            group = replace(single, replicas=sharing, sharing=sharing, prefills=0)
            for groups in _groups(question, group, curve):
                alike = replace(group, replicas=groups * sharing)
                for prefills in _prefills(question, alike):
                    made = replace(alike, prefills=prefills)
                    loaded = curve if not prefills else behind_prefill(curve, rounds.fleet, prefills / made.replicas)
                    request_s = mean_request_s(loaded, question.load, made.replicas)
                    closed_per_s = question.load.at_once(made.replicas) / (request_s + loaded.think_s)
                    tokens_per_s = rounds.answer * (question.load.per_s or closed_per_s)
                    yield Estimate(made, loaded, request_s, per_million_tokens(made.cost_per_hour, tokens_per_s))


def _within_memory(candidate: Candidate) -> tuple[Candidate, str]:
    """Return a candidate with a stated KV cache that fits beside its drafter, a note if it shrinks; or InputError."""
    profile, limits = candidate.base.profile, candidate.base.verifiers
    kv = profile.kv if isinstance(profile, HardwareProfile) else None
    if kv is None or not limits.kv_tokens:
        return candidate, ""
    if limits.kv_tokens > (room := kv.tokens(used=1.0)):
        raise InputError(f"plan: verifiers.kv_tokens = {limits.kv_tokens}: {candidate.target} has memory for {room}")
    room = kv.tokens(candidate.method in ("head", "block", "beside"), used=1.0)
    if limits.kv_tokens <= room:
        return candidate, ""
    limits = msgspec.structs.replace(limits, kv_tokens=max(room, 1))
    note = f"{candidate.name}: beside the drafter a KV cache of {room} tokens, for the stated one (estimated)"
    return msgspec.structs.replace(candidate, base=msgspec.structs.replace(candidate.base, verifiers=limits)), note


def _sharings(question: Question, candidate: Candidate, rounds: Rounds) -> range:
    """Numbers of targets of one drafter to try."""
    if candidate.method != "apart":
        return range(1, 2)
    most = SHARING if rounds.fleet.verifiers.batching.max_num_seqs > 1 else OF_A_STAR
    if rounds.draft_s(1) > 0:
        most = min(most, math.ceil(BEYOND_KNEE * rounds.alone_s(1) / rounds.draft_s(1)))
    return range(1, min(most, max(question.targets, default=most)) + 1)


def _groups(question: Question, group: Deployment, curve: LoadCurve) -> list[int]:
    """Numbers of drafters with their targets, or of targets without, to try."""
    load, sharing = question.load, group.replicas
    if question.devices is not None:
        most = min(question.devices.get(kind, 0) // count for kind, count in group.devices.items())
    else:
        fewest = math.ceil(load.per_s / ((1 - MARGIN) * curve.capacity_per_s * sharing))
        most = max(max(question.targets, default=TARGETS) // sharing, 2 * fewest if not question.targets else 1)
    if load.in_flight:
        most = min(most, load.in_flight // sharing)  # no target is without a request
    allowed = [
        groups
        for groups in range(1, most + 1)
        if (not question.targets or groups * sharing in question.targets)
        and (not question.drafters or group.candidate.method != "apart" or groups in question.drafters)
    ]
    if group.candidate.base.verifiers.prefill:
        return allowed
    return {"hour": allowed, "token": allowed[:1], "time": allowed[-1:]}[question.aim]


def _prefills(question: Question, group: Deployment) -> Sequence[int]:
    """Numbers of prefill servers to try beside a group: none, or as many as the budget has left, or up to that."""
    if not group.candidate.base.verifiers.prefill or question.devices is None:
        return (0,)
    kind, parallel = devices_in(group.candidate.target)
    most = (question.devices[kind] - group.devices[kind]) // parallel
    return range(1, most + 1)[0 if question.aim == "hour" else -1 :]


def ramp_requests(load: Load, talks: Conversations | None) -> int:
    """Return the requests of a simulation in which all turns arrive at their rate before it counts."""
    ramp_s = RAMP * talks.think_s * talks.mean_before() if talks else 0.0
    return math.ceil(load.per_s * ramp_s / WARM_UP)


def mean_request_s(curve: LoadCurve, load: Load, replicas: int) -> float:
    """Return the mean time of a request at that many targets under a load; infinite within MARGIN of capacity."""
    if not load.per_s:
        return curve.request_with(load.at_once(replicas) / replicas)
    per_s = load.per_s / replicas
    return curve.request_at(per_s) if per_s <= (1 - MARGIN) * curve.capacity_per_s else math.inf  # not to be shown


def requests_for(in_flight: float, least: int = 0) -> int:
    """Return the requests of a simulation with so many in flight: with fewer, most of them would begin at once."""
    return max(math.ceil(min(EACH * in_flight, max(ENOUGH * in_flight, LARGE))), least)
