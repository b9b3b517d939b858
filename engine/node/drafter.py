"""The drafter's node: one process that drafts for every target that connects to it (StarSD, algorithm 1)."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from engine.decoding.draft import Drafter
from engine.decoding.telemetry import timed
from engine.net.connections import ConnectionTable
from engine.net.keys import Keys
from engine.net.limits import max_bytes
from engine.net.links import lossy_links, stated_links
from engine.net.server import ServerEnd
from engine.net.sockets import Sockets
from engine.node.build import AnyDrafter, new_drafter, new_streams
from engine.node.capacity import rows_at_drafter
from engine.node.device_lock import device_lock
from engine.node.executors import DraftExecutor
from engine.node.node import LOOPBACK, Node
from engine.node.write_ahead_log import FIRST, Life, open_log, recorded_station
from fleet.scenario.resolved import Fleet
from fleet.stations.build import drafter_station


class DrafterNode(Node):
    """A node with a draft model and a server at `address`:`port`.

    - `number`: of the drafter in the fleet, from 0.
    - `lock_file`: of a device that it shares by time slices.
    - `life`: of its process.

    Its `fleet` has the admission resolved.
    """

    def __init__(
        self,
        fleet: Fleet,
        lock_file: Path | None = None,
        address: str = LOOPBACK,
        port: int = 0,
        number: int = 0,
        keys: Keys | None = None,
        say: Callable[[str], None] = lambda _line: None,
        life: Life = FIRST,
    ) -> None:
        drafter = new_drafter(fleet, room=(rows_at_drafter(fleet, number), fleet.room.longest_row))
        self.fleet = fleet
        executor = DraftExecutor(drafter, new_streams(fleet), ahead=not fleet.in_turn)
        executor.drafter.warm_up(8)  # the first steps of a process are slow
        life.wait_until_back()
        vocabulary, state_numbers = _inputs(drafter)
        sockets = Sockets(f"{address}:{port}", max_bytes=max_bytes(fleet, vocabulary, state_numbers), keys=keys)
        self.port = sockets.bound_port
        super().__init__(
            recorded_station(life, drafter_station(fleet, number), "real", open_log(life)),
            executor,
            ConnectionTable(
                ServerEnd(fleet, time.time_ns(), vocabulary, state_numbers, number), links=stated_links(fleet, number)
            ),
            sockets,
            timed=partial(timed, device=drafter.device),
            lock=device_lock(lock_file),
            say=say,
            life=life,
            lossy=lossy_links(fleet, number, life.number),
        )


def _inputs(drafter: AnyDrafter) -> tuple[int, int]:
    """Return the vocabulary of a drafter's inputs, and the numbers of a token's hidden states; 0 for any."""
    return (drafter.model.vocabulary, drafter.state_numbers) if isinstance(drafter, Drafter) else (0, 0)
