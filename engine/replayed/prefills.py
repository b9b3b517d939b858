"""Replayed prefill servers: all of a fleet in one process without a model, which targets call for their prompts.

A prompt takes the time that the scenario gives. Its KV cache has no bytes here: its message is held until they would
have arrived over the stated link.
"""

import threading
import time
from collections.abc import Mapping
from functools import partial

import numpy as np

from specfleet.engine.net.actions import Deliver
from specfleet.engine.net.connections import ConnectionTable
from specfleet.engine.net.content import NOTHING
from specfleet.engine.net.handshake import Prompt
from specfleet.engine.net.limits import max_bytes
from specfleet.engine.net.links import stated_links
from specfleet.engine.net.server import ServerEnd
from specfleet.engine.net.socket_thread import TICK_S
from specfleet.engine.net.sockets import Sockets
from specfleet.engine.node.node import HERE, Site
from specfleet.engine.replayed.targets import ReplayedFleet, ReplayedTarget
from specfleet.fleet.acceptance.sources import sources_of
from specfleet.fleet.records.recorder import Log
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import streams_of
from specfleet.fleet.stations.build import join_of, kv_bytes, prefill_of, prefill_station
from specfleet.fleet.stations.messages import Finished, Instruction, Join
from specfleet.fleet.stations.prefill import KvLink, PrefillStation


class ReplayedPrefill(ReplayedTarget):
    """A prefill server of a process, with the times of the first target, and its link."""

    def __init__(self, home: "ReplayedPrefills", station: PrefillStation, rng: np.random.Generator, zero_s: float):
        assert home.fleet.verifiers.prefill
        self.computing_s = station.computing_s
        self.link = KvLink(home.fleet.verifiers.prefill, rng.spawn(1)[0])
        self.prompts = home.prompts
        super().__init__(home, 0, zero_s, station, rng)

    def begin(self) -> None:
        """Wait for prompts."""

    @property
    def goes(self) -> bool:
        """Whether it may get another prompt."""
        return self.running is not None or not self.home.stopping

    def receive(self, action: Deliver, time_s: float) -> None:
        """Take a prompt."""
        assert isinstance(action.event, Join)
        self.deliver(action.event, NOTHING, time_s)

    def _post(self, instruction: Instruction, time_s: float) -> None:
        """Send a complete prompt to its target; it is due once its KV cache has arrived, if anything is to follow."""
        if isinstance(instruction, Finished):
            tag, number = instruction.tag, instruction.request
            request, computing_s = self.prompts[tag, number], self.computing_s.pop(tag)
            if request.new_tokens > 1:
                time_s += self.link.way_s(kv_bytes(self.home.fleet, request), time_s, computing_s)
            self.home.post(Prompt(tag, number), NOTHING, time_s)


class ReplayedPrefills(ReplayedFleet):
    """The replayed prefill servers of a fleet, with a server for all targets. It ends by `stop`."""

    ends = False

    def __init__(self, fleet: Fleet, site: Site = HERE) -> None:
        self.prompts = {
            (tag, request.number): request for tag, requests in streams_of(fleet).items() for request in requests
        }
        super().__init__(fleet, {}, range(fleet.verifiers.servers - fleet.verifiers.count), site=site)
        self.address, self.server_of = self.sockets.bound, partial(prefill_of, fleet)
        self.greeter = threading.Thread(target=self._greet, name="greeter", daemon=True)
        self.serving = False

    def connected(self, addresses: Mapping[int, str], site: Site) -> tuple[ConnectionTable, Sockets]:
        """Return its server."""
        joins = {place: join_of(self.fleet, place[0], request) for place, request in self.prompts.items()}
        server = ServerEnd(self.fleet, time.time_ns(), prompts=joins)
        sockets = Sockets(site.address, None, max_bytes(self.fleet), site.keys)
        return ConnectionTable(server, links=stated_links(self.fleet)), sockets

    def servers(self, zero_s: float) -> Mapping[int, ReplayedTarget]:
        """Return its stations, by number."""
        fleet, count = self.fleet, self.fleet.verifiers.count
        sources = sources_of(fleet.seed).targets.spawn(fleet.verifiers.servers)[count:]
        return {
            number: ReplayedPrefill(self, prefill_station(fleet, number), sources[number], zero_s)
            for number in self.numbers
        }

    def open(self) -> None:
        """Welcome targets until `serve` begins."""
        self.greeter.start()

    def _greet(self) -> None:
        while not self.serving:
            self._turn(TICK_S)

    def serve(self, zero_s: float) -> Log:
        """Serve until `stop`."""
        self.serving = True
        self.sockets.wake()
        self.greeter.join()
        return super().serve(zero_s)
