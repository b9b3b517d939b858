"""A real target's node: one process with the target model, its user's requests, and lines to its drafters."""

import time
from collections.abc import Callable, Mapping, Sequence

from engine.runtime.build import load_target, new_streams, new_target
from engine.runtime.control import timing_of
from engine.runtime.device_lock import DeviceLock, no_lock
from engine.runtime.exchange import Exchange
from engine.runtime.executors import VerifyExecutor
from engine.runtime.keys import Keys
from engine.runtime.limits import most_bytes
from engine.runtime.line import Line
from engine.runtime.node import Node
from engine.runtime.sockets import Sockets
from engine.runtime.stated_links import stated_links
from fleet.records.recorded import RecordedStation
from fleet.scenario.settled import Fleet
from fleet.scenario.workload import streams_of
from fleet.stations.build import joins_of, verifier_station


class VerifierNode(Node):
    """A node with the target model, as target number `target`. `prompts[i]` holds the token ids of request i.

    `addresses`: of the doors that it asks for drafts, tcp://HOST:PORT by the number of the drafter; of the router alone
    where there is one.
    """

    def __init__(
        self,
        fleet: Fleet,
        target: int,
        prompts: Sequence[Sequence[int]],
        addresses: Mapping[int, str],
        lock: DeviceLock = no_lock,
        say: Callable[[str], None] = lambda _line: None,
        keys: Keys | None = None,
    ) -> None:
        self.fleet = fleet
        model = load_target(fleet)
        streams = {tag: own for tag, own in streams_of(fleet).items() if fleet.target_of(tag) == target}
        rows = len(streams) if fleet.streams else 1  # of a stream a request, nobody knows how many are open at a time
        self.executor = VerifyExecutor(
            new_target(fleet, model, room=(max(rows, 1), fleet.room.longest_row)),
            new_streams(fleet, prompts),
            sends_hidden=fleet.drafters.kind == "eagle",
            signals=fleet.needs != "lengths",
        )
        speculates = fleet.drafters.count > 0
        if speculates and not fleet.routed:
            addresses = {drafter: addresses[drafter] for drafter in sorted({fleet.drafter_of(tag) for tag in streams})}
        super().__init__(
            RecordedStation(verifier_station(fleet, target), "real"),
            self.executor,
            lines_to(fleet, target, addresses, model.vocabulary) if speculates else None,
            Sockets(None, addresses, most_bytes(fleet, model.vocabulary), keys) if speculates else None,
            users={tag: joins_of(fleet, tag, own) for tag, own in streams.items()},
            opens_s={request.number: request.not_before_s for own in streams.values() for request in own},
            timing=timing_of(model.device),
            lock=lock,
            say=say,
        )

    @property
    def outputs(self) -> dict[int, list[int]]:
        """The new tokens of every finished request."""
        return self.executor.outputs


def lines_to(fleet: Fleet, target: int, addresses: Mapping[int, str], vocabulary: int = 0) -> Exchange:
    """Return the lines of a target to its drafters; each stream's go to its own drafter, or all to the router."""
    life = time.time_ns()
    lines = {
        drafter: Line(
            fleet,
            target,
            life,
            drafter=drafter,
            port=drafter,
            name=address.removeprefix("tcp://"),
            vocabulary=vocabulary,
        )
        for drafter, address in addresses.items()
    }
    line_of = (lambda _tag: min(lines)) if fleet.routed else fleet.drafter_of
    return Exchange(lines=lines, line_of=line_of, links=stated_links(fleet))
