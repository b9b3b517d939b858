"""What a measured run's steps took and yielded, its links and its stations: read from the log, to be played back.

A simulation that plays back all parts is that run again; one that plays back some of them says how much of its
error the others make. Everything is taken in the order in which it happened at its station, stream or link, so that a
simulation in which something else happens in between goes on with what comes next.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from fleet.errors import InputError
from fleet.policies.outcome import Outcome
from fleet.records.replay import replay_stations
from fleet.records.run import Run
from fleet.scenario.names import DRAFTER, ROUTER, verifier_name
from fleet.scenario.resolved import Fleet
from fleet.scenario.workload import streams_of
from fleet.stations.build import station_named, stations
from fleet.stations.messages import (
    TO_DRAFTER,
    TO_VERIFIER,
    Draft,
    DraftRequest,
    Finished,
    Instruction,
    Join,
    Leave,
    Message,
    Refusal,
    Routed,
    StepDone,
    View,
)
from fleet.stations.station import Plan, Start, Station
from fleet.times.step import Step, StepKind

Part = Literal["steps", "acceptance", "overhead", "links"]
PARTS: tuple[Part, ...] = get_args(Part)
MECHANISM: tuple[Part, ...] = ("steps", "acceptance")

SENT = DraftRequest | Draft | Leave | Refusal | View
Sent = tuple[str, str, int, int, int]
"""What names a message between stations: who gets it, its kind, tag, request and epoch (0 where it has none)."""


class PlayedStep(NamedTuple):
    """How long a step took, after how much idleness of its station and how many warm-up tokens."""

    duration_s: float
    idle_gap_s: float
    warm_tokens: int


class Playback(msgspec.Struct, frozen=True):
    """Parts of a measured run in the order of its log; `parts` says which of them are played back, times in seconds.

    Steps: `steps` by station and kind, each with what idleness before it there was.
    Acceptance: `outcomes` by tag, request and kind, a tuple a step.
    Overhead: `starts_s` by station, from the moment at which a step could have begun until it did, and `queued`,
    whether work had waited until that moment; `ends_s` by station, from the end of a step on its device until the
    station knew; `joins_s` by tag and request, from the moment at which a user could have asked until they did. `turns`
    by device, whose turn it was, is played back with all parts only.
    Links: `ways_s` by message, from the end of the step that sent it until it arrived; a router's news, too.
    """

    parts: tuple[Part, ...]
    run_digest: str
    steps: dict[tuple[str, StepKind], list[PlayedStep]]
    outcomes: dict[tuple[int, int, StepKind], list[Outcome]]
    ways_s: dict[Sent, list[float]]
    starts_s: dict[str, list[float]]
    queued: dict[str, list[bool]]
    ends_s: dict[str, list[float]]
    joins_s: dict[tuple[int, int], float]
    turns: dict[str, list[str]]

    def plays(self, part: Part) -> bool:
        """Whether a part is played back."""
        return part in self.parts

    @property
    def whole(self) -> bool:
        """Whether all of the run is played back."""
        return set(self.parts) == set(PARTS)


AFTER_S = 1e-9  # what is known just after something else

NOTHING_PLAYED = Playback((), "", {}, {}, {}, {}, {}, {}, {}, {})


def parse_parts(texts: Sequence[str]) -> tuple[Part, ...]:
    """Return the named parts, in the order of PARTS; `all` names each; InputError for anything else."""
    names = [name.strip() for text in texts for name in text.split(",")]
    unknown = [name for name in names if name not in (*PARTS, "all")]
    if unknown or not names:
        raise InputError(f"play back {', '.join(unknown) or 'nothing'}: allowed are all, {', '.join(PARTS)}")
    return PARTS if "all" in names else tuple(part for part in PARTS if part in names)


def sent_of(receiver: str, message: Message) -> Sent:
    """Return what names a message to a station."""
    return receiver, type(message).__name__, message.tag, message.request, getattr(message, "epoch", 0)


def playback_of(run: Run, parts: Sequence[Part] = MECHANISM) -> Playback:
    """Read a run's log; InputError where it is not the log of its scenario, or its times are of several clocks."""
    fleet = run.header.fleet
    log = _Log(fleet)
    watched = {name: log.watched(station) for name, station in stations(fleet).items()}
    contradictions = replay_stations(run, watched, lambda name: log.watched(station_named(fleet, name)))
    if contradictions:
        raise InputError(f"the run to play back is not one of its scenario: {contradictions[0]}")
    return log.playback(run.digest(), tuple(parts))


class _Begun(NamedTuple):
    """A step that began: at which station, when, since when it could, and whether a step of the station ended then."""

    station: str
    begun_s: float
    could_s: float
    after_own: bool


class _Log:
    """What all stations of a fleet have written so far."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.steps: dict[tuple[str, StepKind], list[PlayedStep]] = defaultdict(list)
        self.outcomes: dict[tuple[int, int, StepKind], list[Outcome]] = defaultdict(list)
        self.ends_s: dict[str, list[float]] = defaultdict(list)
        self.sent_s: dict[Sent, list[float]] = defaultdict(list)
        self.arrived_s: dict[Sent, list[float]] = defaultdict(list)
        self.joined_s: dict[tuple[int, int], float] = {}
        self.finished_s: dict[int, list[float]] = defaultdict(list)  # by tag
        self.begun: list[_Begun] = []
        self.done: list[tuple[float, str]] = []

    def watched(self, station: Station) -> Any:
        """Return the station, whose events and plans are noted here."""
        return _Watched(station, self)

    def playback(self, run_digest: str, parts: tuple[Part, ...]) -> Playback:
        """Return all of it, to play back those parts."""
        starts_s, queued, turns = self._starts()
        return Playback(
            parts, run_digest, dict(self.steps), dict(self.outcomes), self._ways_s(), starts_s, queued,
            dict(self.ends_s), self._joins_s(), turns,
        )  # fmt: skip

    def _ways_s(self) -> dict[Sent, list[float]]:
        """How long each message was on its way."""
        return {
            sent: [arrived - left for left, arrived in zip(self.sent_s[sent], arrivals, strict=False)]
            for sent, arrivals in self.arrived_s.items()
        }

    def _starts(self) -> tuple[dict[str, list[float]], dict[str, list[bool]], dict[str, list[str]]]:
        """How long each step did not begin although station and device could, and whether work had waited until then.

        Third: which stations began on each device, in order.
        """
        starts_s, queued = defaultdict[str, list[float]](list), defaultdict[str, list[bool]](list)
        turns = defaultdict[str, list[str]](list)
        freed_s: dict[str, float] = {}
        # An end comes before a beginning of the same instant: it is what makes room for it.
        moments = [(time_s, 0, time_s, name, False) for time_s, name in self.done]
        moments += [(one.begun_s, 1, one.could_s, one.station, one.after_own) for one in self.begun]
        for time_s, begins, could_s, name, after_own in sorted(moments):
            device = self._device_of(name)
            if begins:
                free_s = freed_s.get(device, could_s)
                starts_s[name].append(time_s - max(could_s, free_s))
                queued[name].append(after_own or free_s > could_s)
                turns[device].append(name)
            else:
                freed_s[device] = time_s
        return dict(starts_s), dict(queued), dict(turns)

    def _device_of(self, station: str) -> str:
        """Return the device on which a station takes turns with others; its own name where it waits for nobody."""
        side = self.fleet.drafters if station.startswith(DRAFTER) else self.fleet.verifiers
        device = self.fleet.devices.get(side.device)
        return side.device if device is not None and device.sharing != "contended" else station

    def _joins_s(self) -> dict[tuple[int, int], float]:
        """How long each user did not ask although it was time, and their request before was finished."""
        late_s = {}
        for tag, requests in streams_of(self.fleet).items():
            could_s = [0.0, *self.finished_s[tag]]
            for request, before_s in zip(requests, could_s, strict=False):
                place = tag, request.number
                if place in self.joined_s:
                    late_s[place] = self.joined_s[place] - max(before_s, request.not_before_s)
        return late_s


class _Watched:
    """A station that tells a log what it is told, what it answers and what it starts."""

    def __init__(self, station: Station, log: _Log) -> None:
        self.station = station
        self.log = log
        self.could_s: float | None = None  # since when it could begin its next step
        self.after_own = False  # whether its last step ended then
        self.begun_s = 0.0
        self.latest_s = -math.inf  # of what it was told, and of its plans

    @property
    def name(self) -> str:
        """Name of the station."""
        return self.station.name

    @property
    def running(self) -> Step | None:
        """The step that runs."""
        return self.station.running

    def handle(self, event: Any, now_s: float) -> list[Instruction]:
        """Note the event and what follows from it."""
        known_s = self.latest_s = self._known_s(now_s)
        if isinstance(event, StepDone):
            self._done(event, known_s)
        elif isinstance(event, Join):
            self.log.joined_s[event.tag, event.request] = known_s
        elif isinstance(event, SENT) and (self.name != ROUTER or isinstance(event, View)):
            self.log.arrived_s[sent_of(self.name, event)].append(known_s)
        followed = self.station.handle(event, now_s)
        for instruction in followed:
            self._answered(instruction, known_s)
        if not self.station.ready:
            self.could_s = None
        elif self.could_s is None:
            self.could_s, self.after_own = known_s, isinstance(event, StepDone)
        return followed

    def _known_s(self, now_s: float) -> float:
        """When the station knew of something: what came before something else, but was read later, just after that.

        A real station reads what came while it was busy with another thing; it has decided by then.
        """
        return now_s if now_s >= self.latest_s else self.latest_s + AFTER_S

    def _answered(self, instruction: Instruction, now_s: float) -> None:
        """Note that the station ends a request, or sends a message to another station."""
        if isinstance(instruction, Finished):
            self.log.finished_s[instruction.tag].append(now_s)
            return
        fleet = self.log.fleet
        message: SENT
        if isinstance(instruction, Routed):
            receiver, message = fleet.drafter_name(instruction.drafter), instruction.message
        elif isinstance(instruction, View):
            receiver, message = ROUTER, instruction
        elif isinstance(instruction, TO_VERIFIER):
            receiver, message = verifier_name(fleet.target_of(instruction.tag)), instruction
        elif isinstance(instruction, TO_DRAFTER) and not fleet.routed:  # a router is beside its targets: no way between
            receiver, message = fleet.drafter_name(fleet.drafter_of(instruction.tag)), instruction
        else:
            return
        self.log.sent_s[sent_of(receiver, message)].append(now_s)

    def plan(self, now_s: float) -> Plan:
        """Note what is begun."""
        plan = self.station.plan(now_s)
        if isinstance(plan, Start):
            self.latest_s = max(self.latest_s, now_s)
            could_s = now_s if self.could_s is None else self.could_s
            self.log.begun.append(_Begun(self.name, now_s, could_s, self.after_own))
            self.could_s, self.after_own, self.begun_s = None, False, now_s
        return plan

    def _done(self, event: StepDone, now_s: float) -> None:
        step = self.station.running
        if step is None or step.number != event.step:
            return
        played = PlayedStep(event.duration_s, step.idle_gap_s, step.warm_tokens)
        self.log.steps[self.name, step.kind].append(played)
        self.log.ends_s[self.name].append(now_s - self.begun_s - event.duration_s)
        self.log.done.append((now_s, self.name))
        for member, outcome in zip(step.members, event.outcomes, strict=True):
            self.log.outcomes[member.tag, member.request, step.kind].append(outcome)
