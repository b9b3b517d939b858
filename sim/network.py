"""A fleet in simulated time: drafters, targets, the links between them, and the arrival of requests."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np
from simpy import Environment
from simpy.events import Event

from specfleet.fleet.acceptance.sources import of_each, sources_of
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.records.playback import Playback
from specfleet.fleet.records.recorder import Log, RecordedStation
from specfleet.fleet.scenario.faults import Change, LinkFaults, moments
from specfleet.fleet.scenario.links import link_faults, linked_pairs, ways_of
from specfleet.fleet.scenario.resolved import Fleet, ResolvedDevice
from specfleet.fleet.scenario.workload import Request, streams_of
from specfleet.fleet.stations import build, messages
from specfleet.fleet.stations.drafter import DrafterStation
from specfleet.fleet.stations.messages import Instruction
from specfleet.fleet.stations.outcomes import Outcomes, nothing
from specfleet.fleet.stations.payload import sizes_of
from specfleet.fleet.stations.prefill import KvLink, PrefillStation
from specfleet.fleet.stations.station import Station
from specfleet.fleet.times import durations
from specfleet.fleet.times.effects import NEVER_IDLE, IdleEffect
from specfleet.fleet.times.overhead import Overhead
from specfleet.fleet.times.step import Step
from specfleet.sim.faults import FallibleServer
from specfleet.sim.playback import PlayedOutcomes, played_delays, played_durations
from specfleet.sim.servers import (
    ContendedDevice,
    Device,
    GatheringDevice,
    Server,
    TimeSlicedDevice,
    drawn_delays,
)
from specfleet.sim.wires import Way, Wire


class Network:
    """All servers and links of a fleet. `start` schedules the first requests and all faults.

    - `playback`: a measured run, parts of which replace random draws.
    """

    def __init__(self, env: Environment, fleet: Fleet, playback: Playback | None = None) -> None:
        self.env = env
        self.fleet = fleet
        self.playback = playback or Playback()
        self.fallible = bool(fleet.faults or fleet.verifiers.patience.patience_s or fleet.drafters.lease_s)
        self.devices = {name: _shared_device(name, device, self.playback) for name, device in fleet.devices.items()}
        ways_s = self.playback.ways_s if "links" in self.playback.parts else {}
        self.ways_s = {sent: deque(max(way_s, 0.0) for way_s in of_sent) for sent, of_sent in ways_s.items()}
        self.log: Log = []
        self.requests = {tag: iter(requests) for tag, requests in streams_of(fleet).items()}
        self.open: dict[int, Request] = {}  # incomplete requests, by tag
        self.scheduled = 0  # requests with a scheduled arrival
        self.wires: dict[tuple[int, int], tuple[Wire, Wire]] = {}  # down and up, by target and drafter
        self.views: list[Wire] = []  # of each drafter to the router
        self.router: Server | None = None
        self.drafter_tokens: dict[int, int] = {}  # committed tokens at the drafter, by tag
        self.size_of = sizes_of(fleet)
        prefills = min(fleet.verifiers.servers - fleet.verifiers.count, len(self.requests))  # others have none
        _, targets, links, drafters, self.jitters = sources_of(fleet.seed)
        played = "acceptance" in self.playback.parts
        self.outcomes: Outcomes | PlayedOutcomes = PlayedOutcomes(self.playback) if played else Outcomes(fleet)
        self.servers = self._star(targets, links, drafters)
        self.prefills = [self._prefill(*numbered) for numbered in enumerate(targets.spawn(prefills))]
        self.servers += self.prefills

    def start(self) -> None:
        """Schedule the first request of each stream, and all faults."""
        for tag in self.requests:
            self._next_request(tag)
        servers = {server.station.name: server for server in self.servers if isinstance(server, FallibleServer)}
        for moment in moments(self.fleet.faults):
            timeout = self.env.timeout(moment.time_s)
            timeout.callbacks.append(partial(self._fault, servers[moment.node], moment.change))

    def _fault(self, server: FallibleServer, change: Change, _timeout: Event) -> None:
        """Apply a fault, unless all requests are complete. A restarted target receives its open requests again."""
        if change in ("kill", "stall") and not self.open and not self.scheduled:
            return
        was_dead = server.dead
        server.change(change)
        if was_dead and not server.dead:
            for tag, request in sorted(self.open.items()):
                if self._owner(tag) is server:
                    server.deliver(build.join_of(self.fleet, tag, request))

    def _star(
        self, targets: np.random.Generator, links: np.random.Generator, drafters: np.random.Generator
    ) -> list[Server]:
        """Build all servers and links; the targets come first."""
        M, N = self.fleet.drafters.stations, self.fleet.verifiers.count
        drafting = [self._drafter(drafter, rng) for drafter, rng in enumerate(of_each(drafters, M))]
        verifying = [self._verifier(target, rng) for target, rng in enumerate(targets.spawn(N))]
        for (target, drafter), sources in ways_of(linked_pairs(self.fleet, self.requests), links).items():
            link, ends = self.fleet.link(target, drafter).time, (target, drafter)
            down_s, up_s = durations.one_way_s(link, sources.down), durations.one_way_s(link, sources.up)
            down = self._wire(verifying[target], down_s, self._link_faults(*ends, "down"))
            up = self._wire(drafting[drafter], up_s, self._link_faults(*ends, "up")) if M else down
            # AMUSD: a draft that ends as a rollback arrives was sent before; only a link's time makes rounded sums.
            up.yields = bool(M) and not self.fleet.in_turn and link.mean_s(1) > 0
            self.wires[ends] = down, up
        if not self.fleet.routed:
            return [*verifying, *drafting]
        recorded = RecordedStation(build.router_station(self.fleet), "simulated", self.log)
        self.router = Server(self.env, recorded, Device(), lambda _step: 0.0, nothing, partial(self._post, -1))
        self.views = [self._wire(self.router, lambda _payload: 0.0) for _ in drafting]
        return [*verifying, *drafting, self.router]

    def _wire(self, server: Server, way_s: Way, faults: LinkFaults | None = None) -> Wire:
        return Wire(self.env, server, way_s, faults, self.ways_s)

    def _link_faults(self, target: int, drafter: int, way: Literal["down", "up"]) -> LinkFaults | None:
        return link_faults(self.fleet, target, drafter, way) if self.fleet.faults else None

    def _drafter(self, drafter: int, rng: np.random.Generator) -> Server:
        station, times = build.drafter_station(self.fleet, drafter), self.fleet.drafter_times(drafter)
        duration_s, device = durations.draft_durations(times, rng), self._device(self.fleet.drafters.device)
        return self._server(station, device, duration_s, nothing, times.overhead, drafter, times.idle)

    def _verifier(self, target: int, rng: np.random.Generator, prefill: PrefillStation | None = None) -> Server:
        """Build a target, or a prefill server like it."""
        verifiers, shape = self.fleet.verifiers, self.fleet.drafters.shape
        station, times = prefill or build.verifier_station(self.fleet, target), self.fleet.verifier_times(target)
        drafts = None
        if verifiers.drafts is not None:
            drafts = durations.LocalDraftTimes(self.fleet.drafter_times(0), self.outcomes.drafting(station))
        if verifiers.aligned is not None and drafts is not None:
            device: Device = GatheringDevice()
            duration_s = durations.aligned_durations(times, shape, rng, drafts)
        else:
            device, duration_s = self._device(verifiers.device), durations.verifier_durations(times, shape, rng, drafts)
        server = self._server(station, device, duration_s, self.outcomes.at(station, verifiers.aligned), times.overhead)
        server.yields = not self.fleet.in_turn  # AMUSD: a token that is drafted as a verification ends is ready
        return server

    def _prefill(self, server: int, rng: np.random.Generator) -> Server:
        prefill, station = self.fleet.verifiers.prefill, build.prefill_station(self.fleet, server)
        assert prefill is not None
        link = KvLink(prefill, rng.spawn(1)[0])
        built = self._verifier(0, rng, station)
        built.post = partial(self._hand_over, link, station)
        return built

    def _server(
        self,
        station: Station,
        device: Device,
        duration_s: durations.Duration,
        outcomes: Callable[[Step], tuple[Outcome, ...]],
        overhead: Overhead,
        drafter: int = -1,
        idle: IdleEffect = NEVER_IDLE,
    ) -> Server:
        """Build a server with drawn or played-back steps and overhead. `drafter`: its number if it is one."""
        recorded = RecordedStation(station, "simulated", self.log)
        delays = drawn_delays(overhead, self.jitters.spawn(1)[0])
        if "overhead" in self.playback.parts:
            delays = played_delays(self.playback, station.name)
        if "steps" in self.playback.parts:
            duration_s = played_durations(self.playback, station.name, duration_s, idle)
        post = partial(self._post, drafter)
        if not self.fallible:
            return Server(self.env, recorded, device, duration_s, outcomes, post, delays)
        server = FallibleServer(self.env, recorded, device, duration_s, outcomes, post, delays)
        server.fresh = partial(self._fresh, station.name)
        return server

    def _fresh(self, name: str) -> tuple[Station, Callable[[Step], tuple[Outcome, ...]]]:
        station = build.stations(self.fleet)[name]
        return station, nothing if isinstance(station, DrafterStation) else self.outcomes.at(station)

    def _device(self, name: str) -> Device:
        return self.devices[name] if name else Device()

    def _post(self, sender: int, instruction: Instruction) -> None:
        """Carry out an instruction of a station; `sender` is its number if it is a drafter."""
        if isinstance(instruction, messages.TO_DRAFTER):
            if self.router is None:
                self._send_up(instruction, self.fleet.drafter_of(instruction.tag))
            else:
                self.router.deliver(instruction)
        elif isinstance(instruction, messages.TO_VERIFIER):
            down, _ = self.wires[self.fleet.target_of(instruction.tag), sender]
            down.send(instruction, self.size_of(instruction, 0))
        elif isinstance(instruction, messages.Routed):
            self._send_up(instruction.message, instruction.drafter)
        elif isinstance(instruction, messages.View):
            self.views[sender].send(instruction, 0)
        elif isinstance(instruction, messages.Finished):
            del self.open[instruction.tag]
            self._next_request(instruction.tag, self.fleet.request_s)
        else:
            assert isinstance(instruction, messages.Released | messages.Ignored)

    def _hand_over(self, link: KvLink, station: PrefillStation, instruction: Instruction) -> None:
        """Carry out an instruction of a prefill server: a complete prompt goes to its decode server."""
        if not isinstance(instruction, messages.Finished):
            return
        tag, request = instruction.tag, self.open[instruction.tag]
        computing_s = station.computing_s.pop(tag)
        if request.new_tokens > 1:
            join, size = build.handed_over(self.fleet, tag, request), build.kv_bytes(self.fleet, request)
            arrival = self.env.timeout(link.way_s(size, self.env.now, computing_s))
            arrival.callbacks.append(lambda _: self._owner(tag).deliver(join, size))
        else:
            self._post(-1, instruction)

    def _send_up(self, message: messages.DraftRequest | messages.Leave, drafter: int) -> None:
        """Send a message to a drafter; requests carry the hidden states of newly committed tokens."""
        states = 0
        if isinstance(message, messages.DraftRequest):
            states = message.base - (1 if message.opening else self.drafter_tokens[message.tag])
            self.drafter_tokens[message.tag] = message.base
        _, up = self.wires[self.fleet.target_of(message.tag), drafter]
        up.send(message, self.size_of(message, states))

    def _next_request(self, tag: int, after_s: float = 0.0) -> None:
        """Schedule a stream's next request, after all else of this time; `after_s`: what it takes outside steps."""
        request = next(self.requests[tag], None)
        if request is not None:
            self.scheduled += 1
            after_s += request.think_s
            if "overhead" in self.playback.parts:
                after_s = max(0.0, self.playback.joins_s.get((tag, request.number), 0.0))
            arrival = self.env.timeout(max(0.0, request.not_before_s - self.env.now) + after_s)
            arrival.callbacks.append(partial(self._join, tag, request))

    def _join(self, tag: int, request: Request, _arrival: Event) -> None:
        self.scheduled -= 1
        self.open[tag] = request
        first = self.prefills[build.prefill_of(self.fleet, tag)] if self.prefills else self._owner(tag)
        first.deliver(build.join_of(self.fleet, tag, request))

    def _owner(self, tag: int) -> Server:
        """Return the target of a stream."""
        return self.servers[self.fleet.target_of(tag)]


def _shared_device(name: str, device: ResolvedDevice, playback: Playback) -> Device:
    """Build a shared device. Played-back times already include the cost of sharing."""
    if device.sharing == "contended":
        return ContendedDevice((1.0,) if "steps" in playback.parts else device.contention)
    return TimeSlicedDevice(playback.turns.get(name, []) if playback.whole else [])
