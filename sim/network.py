"""The star in simulated time: one drafter, N verifiers, the links between them, and a user at every target."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
from simpy import Environment
from simpy.events import Event

from sim.servers import ContendedDevice, Device, OwnDevice, Server, TurnsDevice
from specfleet.acceptance import Sampler
from specfleet.durations import draft_durations, one_way_s, verifier_durations
from specfleet.fleet import DRAFTER, drafter_station, verifier_name, verifier_station
from specfleet.messages import (
    TO_DRAFTER,
    TO_VERIFIER,
    Finished,
    Ignored,
    Instruction,
    Join,
    Message,
    Outcome,
    Released,
)
from specfleet.pace import Pace
from specfleet.payload import payload_bytes
from specfleet.profile import RecentLoad
from specfleet.records import Log, RecordedStation
from specfleet.scenario import Scenario, acceptance_of, link_time, profile_of, turns_of, wake_up_s
from specfleet.station import Step
from specfleet.workload import Request, join_of, requests_of

DONE = (Outcome(),)


class Wire:
    """One direction of a link: messages arrive in the order in which they were sent, as over TCP, however late."""

    def __init__(self, env: Environment, server: Server, one_way_s: Callable[[int], float]) -> None:
        self.env = env
        self.server = server
        self.one_way_s = one_way_s
        self.under_way: deque[tuple[Message, int]] = deque()
        self.last_s = 0.0

    def send(self, message: Message, payload_bytes: int) -> None:
        """Let the message arrive at the server after its time on the way, and after all that were sent before."""
        now_s = self.env.now
        self.last_s = max(self.last_s, now_s + self.one_way_s(payload_bytes))
        self.under_way.append((message, payload_bytes))
        self.env.timeout(self.last_s - now_s).callbacks.append(self._arrive)

    def _arrive(self, arrival: Event) -> None:  # noqa: ARG002  (SimPy hands the event to its callbacks)
        self.server.deliver(*self.under_way.popleft())


class Star:
    """All servers of a scenario in one SimPy environment. `start` lets every target take its first request.

    `paces`: measured slowness over time of the hosts of some stations, by station name.
    """

    def __init__(self, env: Environment, scenario: Scenario, paces: Mapping[str, Pace] | None = None) -> None:
        self.env = env
        self.paces = paces or {}
        self.scenario = scenario
        self.profile = profile_of(scenario)
        # One random stream for each cause of randomness, so that a change in one leaves the others alone.
        streams = np.random.default_rng(scenario.seed).spawn(4)
        self.acceptance = Sampler(acceptance_of(scenario), scenario.drafters.depth, streams[0])
        self.devices = {name: self._shared_device(name) for name in scenario.devices}
        self.log: Log = []
        self.requests: list[Iterator[Request]] = []
        self.verifiers: list[Server] = []
        self.up: list[Wire] = []
        self.down: list[Wire] = []
        workload = scenario.workload
        self.size_of = partial(payload_bytes, temperature=workload.temperature, vocabulary=self.profile.vocabulary)
        self.drafter = self._drafter(streams[3]) if scenario.drafters.count else None
        for target, (steps, link) in enumerate(
            zip(streams[1].spawn(scenario.verifiers.count), streams[2].spawn(scenario.verifiers.count), strict=True)
        ):
            self.requests.append(requests_of(scenario, target))
            self.verifiers.append(self._verifier(target, steps))
            way_s = one_way_s(link_time(scenario, target), link)
            self.down.append(Wire(env, self.verifiers[target], way_s))
            if self.drafter:
                self.up.append(Wire(env, self.drafter, way_s))

    @property
    def stations(self) -> list[RecordedStation]:
        """All recorded stations."""
        servers = [*self.verifiers, *([self.drafter] if self.drafter else [])]
        return [server.recorded for server in servers]

    def start(self) -> None:
        """Let every target take its first request."""
        for target in range(len(self.verifiers)):
            self._next_request(target)

    def _drafter(self, rng: np.random.Generator) -> Server:
        station = RecordedStation(drafter_station(self.scenario), "simulated", self.log)
        pace = self.paces.get(DRAFTER)
        duration_s = draft_durations(self.scenario, rng, paced=pace is not None)
        device = self._device(self.scenario.drafters.device, self.profile.recent_load)
        return Server(
            self.env, station, device, duration_s, nothing, self._post,
            turnaround_s=self.profile.turnaround_s,
            wake_up_s=wake_up_s(self.scenario, self.scenario.drafters.device),
            pace=pace,
        )  # fmt: skip

    def _verifier(self, target: int, rng: np.random.Generator) -> Server:
        station = RecordedStation(verifier_station(self.scenario, target), "simulated", self.log)
        duration_s = verifier_durations(self.scenario, target, rng)
        verifiers = self.scenario.verifiers
        device = self._device(verifiers.device, None)
        outcomes, pace = partial(self._outcomes, target), self.paces.get(verifier_name(target))
        return Server(
            self.env, station, device, duration_s, outcomes, self._post,
            wake_up_s=wake_up_s(self.scenario, verifiers.device, verifiers.kind), pace=pace,
        )  # fmt: skip

    def _device(self, name: str, effect: RecentLoad | None) -> Device:
        return self.devices[name] if name else OwnDevice(effect)

    def _shared_device(self, name: str) -> Device:
        if self.scenario.devices[name].sharing == "contended":
            return ContendedDevice(self.profile.contention)
        turns = turns_of(self.scenario, name)
        return TurnsDevice(turns.handover_s if turns else 0.0)

    def _outcomes(self, target: int, step: Step) -> tuple[Outcome, ...]:
        if step.kind == "verify":
            return (Outcome(self.acceptance.draw(target, step.members[0].tokens)),)
        if step.kind == "prefill":
            self.acceptance.begin_session(target)
        return DONE

    def _post(self, instruction: Instruction) -> None:
        """Carry out what a station asks for."""
        if isinstance(instruction, TO_DRAFTER):
            self.up[instruction.tag].send(instruction, self.size_of(instruction))
        elif isinstance(instruction, TO_VERIFIER):
            self.down[instruction.tag].send(instruction, self.size_of(instruction))
        elif isinstance(instruction, Finished):
            self._next_request(instruction.tag)
        else:
            assert isinstance(instruction, Released | Ignored)

    def _next_request(self, target: int) -> None:
        """Let the target's user send the next request, if any is left, once the current instant is over."""
        request = next(self.requests[target], None)
        if request is not None:
            arrival = self.env.timeout(0)
            arrival.callbacks.append(partial(_join, self.verifiers[target], join_of(self.scenario, target, request)))


def _join(server: Server, join: Join, arrival: Event) -> None:  # noqa: ARG001  (SimPy's call)
    server.deliver(join)


def nothing(step: Step) -> tuple[Outcome, ...]:  # noqa: ARG001  (every outcome function is given its step)
    """Outcome of steps that yield nothing to decide on."""
    return DONE
