"""Step times, outcomes, links and overhead of a measured run, read from its log for playback.

A simulation that plays back all parts reproduces the run. One that plays back some parts isolates the error of the
others. Values are played back in order at their station, stream or link; a simulation whose events differ continues
with the next value.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.records.replay import replay_stations
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.names import DRAFTER, ROUTER, verifier_name
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import streams_of
from specfleet.fleet.stations import messages
from specfleet.fleet.stations.build import stations
from specfleet.fleet.stations.messages import Instruction, Message, StepDone
from specfleet.fleet.stations.station import Plan, Start, Station
from specfleet.fleet.times.step import Step, StepKind

Part = Literal["steps", "acceptance", "overhead", "links"]
PARTS: tuple[Part, ...] = get_args(Part)
MECHANISM: tuple[Part, ...] = ("steps", "acceptance")

Sent = tuple[str, str, int, int, int]
"""Key of a message between stations: receiver, kind, tag, request and epoch (0 if it has none)."""


class Way(NamedTuple):
    """A message that arrived: its stations, when it left by the clock of the one, and came by that of the other."""

    sender: str
    receiver: str
    left_s: float
    arrived_s: float


class PlayedStep(NamedTuple):
    """Duration of a step, with the station's idle gap and the warm-up tokens before it."""

    duration_s: float
    idle_gap_s: float
    warm_tokens: int


class Playback(msgspec.Struct, frozen=True):
    """Parts of a measured run in the order of its log; `parts` are the played ones. Times are in seconds.

    - Steps. `steps`: by station and kind, each with its idle gap.
    - Acceptance. `outcomes`: by tag, request and kind, one tuple for each step.
    - Overhead. `starts_s`: by station, from when a step could begin to its start. `queued`: whether work had waited
      until then. `withdrawn_s`: by station, waits for a start that ended with nothing left to do, each with the number
      of steps before. `ends_s`: by station, from a step's end on its device until the station processed it. `joins_s`:
      by tag and request, from when a user could send a request until it came. `turns`: by device, the order of its
      stations, only played with all parts.
    - Links. `ways_s`: by message, from the end of the step that sent it until it arrived; a router's views, too.
    """

    parts: tuple[Part, ...] = ()
    run_digest: str = ""
    steps: dict[tuple[str, StepKind], list[PlayedStep]] = {}
    outcomes: dict[tuple[int, int, StepKind], list[Outcome]] = {}
    ways_s: dict[Sent, list[float]] = {}
    starts_s: dict[str, list[float]] = {}
    queued: dict[str, list[bool]] = {}
    ends_s: dict[str, list[float]] = {}
    joins_s: dict[tuple[int, int], float] = {}
    turns: dict[str, list[str]] = {}
    withdrawn_s: dict[str, list[tuple[int, float]]] = {}

    @property
    def whole(self) -> bool:
        """Whether all parts are played back."""
        return set(self.parts) == set(PARTS)


AFTER_S = 1e-9  # offset of an event that is ordered just after another


def parse_parts(texts: Sequence[str]) -> tuple[Part, ...]:
    """Return the named parts, in the order of PARTS; `all` is every part; InputError for anything else."""
    names = [name.strip() for text in texts for name in text.split(",")]
    unknown = [name for name in names if name not in (*PARTS, "all")]
    if unknown or not names:
        raise InputError(f"play back {', '.join(unknown) or 'nothing'}: allowed are all, {', '.join(PARTS)}")
    return PARTS if "all" in names else tuple(part for part in PARTS if part in names)


def sent_of(receiver: str, message: Message) -> Sent:
    """Return the key of a message to a station."""
    return receiver, type(message).__name__, message.tag, message.request, getattr(message, "epoch", 0)


def playback_of(run: Run, parts: Sequence[Part] = MECHANISM) -> Playback:
    """Read a run's log; InputError if it does not match its scenario, as that of one host of several."""
    return _read_log(run).playback(run.digest(), tuple(parts))


def ways_of(run: Run) -> list[Way]:
    """Return the ways of all messages between stations, each by the clocks of its ends; InputError as `playback_of`."""
    log = _read_log(run)
    return [
        Way(sender, sent[0], left_s, arrived_s)
        for sent, arrivals in log.arrived_s.items()
        for sender, left_s, arrived_s in zip(log.senders[sent], log.sent_s[sent], arrivals, strict=False)
    ]


def finished_steps(run: Run) -> list[tuple[Step, StepDone]]:
    """Return the steps of a run with their ends, station by station; InputError as `playback_of`."""
    return _read_log(run).finished


def _read_log(run: Run) -> "_Log":
    fleet = run.header.fleet
    log = _Log(fleet)

    def watched(station: Station) -> Any:
        return _Watched(station, log)

    fresh = {name: watched(station) for name, station in stations(fleet).items()}
    contradictions = replay_stations(run, fresh, lambda name: watched(stations(fleet)[name]))
    if contradictions:
        raise InputError(f"the run to play back is not one of its scenario: {contradictions[0]}")
    return log


class _Log:
    """Events and plans of all stations of a fleet up to a time."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.steps: dict[tuple[str, StepKind], list[PlayedStep]] = defaultdict(list)
        self.outcomes: dict[tuple[int, int, StepKind], list[Outcome]] = defaultdict(list)
        self.finished: list[tuple[Step, StepDone]] = []
        self.ends_s: dict[str, list[float]] = defaultdict(list)
        self.sent_s: dict[Sent, list[float]] = defaultdict(list)
        self.senders: dict[Sent, list[str]] = defaultdict(list)
        self.arrived_s: dict[Sent, list[float]] = defaultdict(list)
        self.joined_s: dict[tuple[int, int], float] = {}
        self.finished_s: dict[int, dict[int, float]] = defaultdict(dict)  # by tag and request, the last of its parts
        self.withdrawn_s: dict[str, list[tuple[int, float]]] = defaultdict(list)
        # Ends (0) and starts (1) of steps: time, which, since when it could, station, whether it followed an own step.
        self.moments: list[tuple[float, int, float, str, bool]] = []

    def playback(self, run_digest: str, parts: tuple[Part, ...]) -> Playback:
        """Return the playback of those parts."""
        starts_s, queued, turns = self._starts()
        # Withdrawn starts only of stations that wait for no device of others.
        withdrawn_s = {name: waits for name, waits in self.withdrawn_s.items() if self._device_of(name) == name}
        return Playback(
            parts, run_digest, self.steps, self.outcomes, self._ways_s(), starts_s, queued,
            self.ends_s, self._joins_s(), turns, withdrawn_s,
        )  # fmt: skip

    def _ways_s(self) -> dict[Sent, list[float]]:
        """One-way delay of each message; a router is beside its targets, and no link leads to it from there."""
        return {
            sent: [arrived - left for left, arrived in zip(self.sent_s[sent], arrivals, strict=False)]
            for sent, arrivals in self.arrived_s.items()
            if sent[0] != ROUTER or sent[1] == messages.View.__name__
        }

    def _starts(self) -> tuple[dict[str, list[float]], dict[str, list[bool]], dict[str, list[str]]]:
        """Delay of each step from when station and device were free; whether work waited; each device's stations."""
        starts_s, queued = defaultdict[str, list[float]](list), defaultdict[str, list[bool]](list)
        turns = defaultdict[str, list[str]](list)
        freed_s: dict[str, float] = {}
        # At one instant, an end precedes a start: it frees the place.
        for time_s, begins, could_s, name, after_own in sorted(self.moments):
            device = self._device_of(name)
            if begins:
                free_s = freed_s.get(device, could_s)
                starts_s[name].append(time_s - max(could_s, free_s))
                queued[name].append(after_own or free_s > could_s)
                turns[device].append(name)
            else:
                freed_s[device] = time_s
        return starts_s, queued, turns

    def _device_of(self, station: str) -> str:
        """Return the time-sliced device of a station; its own name if it has none."""
        side = self.fleet.drafters if station.startswith(DRAFTER) else self.fleet.verifiers
        device = self.fleet.devices.get(side.device)
        return side.device if device is not None and device.sharing != "contended" else station

    def _joins_s(self) -> dict[tuple[int, int], float]:
        """Delay of each user's request from when it could be sent, which is after the previous one finished."""
        late_s = {}
        for tag, requests in streams_of(self.fleet).items():
            could_s = [0.0, *sorted(self.finished_s[tag].values())]
            for request, before_s in zip(requests, could_s, strict=False):
                place = tag, request.number
                if place in self.joined_s:
                    late_s[place] = self.joined_s[place] - max(before_s, request.not_before_s)
        return late_s


class _Watched:
    """Wraps a station and notes its inputs, outputs and plans."""

    def __init__(self, station: Station, log: _Log) -> None:
        self.station = station
        self.log = log
        self.could_s: float | None = None  # when its next step could begin
        self.after_own = False  # whether its last step ended then
        self.begun_s = 0.0
        self.latest_s = -math.inf  # times of its inputs, and of its plans

    def __getattr__(self, name: str) -> Any:
        return getattr(self.station, name)

    def handle(self, event: Any, now_s: float) -> list[Instruction]:
        """Note the event and what follows from it."""
        # A busy station reads several events late; it processes them right after one another.
        known_s = self.latest_s = now_s if now_s >= self.latest_s else self.latest_s + AFTER_S
        if isinstance(event, StepDone):
            self._done(event, known_s)
        elif isinstance(event, messages.Join) and not event.computed:
            self.log.joined_s[event.tag, event.request] = known_s
        elif isinstance(event, Message):
            self.log.arrived_s[sent_of(self.name, event)].append(known_s)
        followed = self.station.handle(event, now_s)
        for instruction in followed:
            self._answered(instruction, known_s)
        if not self.station.ready:
            if self.could_s is not None:
                self.log.withdrawn_s[self.name].append((self.station.steps_started, known_s - self.could_s))
            self.could_s = None
        elif self.could_s is None:
            self.could_s, self.after_own = known_s, isinstance(event, StepDone)
        return followed

    def _answered(self, instruction: Instruction, now_s: float) -> None:
        """Note that the station ends a request, or sends a message to another station."""
        if isinstance(instruction, messages.Finished):
            ends_s, request = self.log.finished_s[instruction.tag], instruction.request
            ends_s[request] = max(now_s, ends_s.get(request, now_s))
            return
        fleet = self.log.fleet
        message: Message
        if isinstance(instruction, messages.Routed):
            receiver, message = fleet.drafter_name(instruction.drafter), instruction.message
        elif isinstance(instruction, messages.View):
            receiver, message = ROUTER, instruction
        elif isinstance(instruction, messages.TO_VERIFIER):
            receiver, message = verifier_name(fleet.target_of(instruction.tag)), instruction
        elif isinstance(instruction, messages.TO_DRAFTER):
            drafter = ROUTER if fleet.routed else fleet.drafter_name(fleet.drafter_of(instruction.tag))
            receiver, message = drafter, instruction
        else:
            return
        sent = sent_of(receiver, message)
        self.log.sent_s[sent].append(now_s)
        self.log.senders[sent].append(self.name)

    def plan(self, now_s: float) -> Plan:
        """Note the started step."""
        plan = self.station.plan(now_s)
        if isinstance(plan, Start):
            self.latest_s = max(self.latest_s, now_s)
            could_s = now_s if self.could_s is None else self.could_s
            self.log.moments.append((now_s, 1, could_s, self.name, self.after_own))
            self.could_s, self.after_own, self.begun_s = None, False, now_s
        return plan

    def _done(self, event: StepDone, now_s: float) -> None:
        step = self.station.running
        if step is None or step.number != event.step:
            return
        self.log.finished.append((step, event))
        played = PlayedStep(event.duration_s, step.idle_gap_s, step.warm_tokens)
        self.log.steps[self.name, step.kind].append(played)
        self.log.ends_s[self.name].append(now_s - self.begun_s - event.duration_s)
        self.log.moments.append((now_s, 0, now_s, self.name, False))
        for member, outcome in zip(step.members, event.outcomes, strict=True):
            self.log.outcomes[member.tag, member.request, step.kind_of(member)].append(outcome)
