"""Bodies of light processes: replayed stations, which need no torch and do not import it."""

import threading
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection

from engine.runtime.answers import Drawn
from engine.runtime.journal import FIRST, Life
from engine.runtime.node import Node
from engine.runtime.replayed import ReplayedFleet
from engine.runtime.replayed_drafter import ReplayedDrafterNode
from fleet.records.recorded import Log
from fleet.scenario.settled import Fleet
from fleet.stations.outcomes import Outcomes

PATIENCE_S = 60.0  # for nodes of one host to find each other


def drafter_body(pipe: Connection, fleet: Fleet, number: int = 0, life: Life = FIRST) -> Log:
    """Serve as replayed drafter `number` until told to stop."""
    node = ReplayedDrafterNode(fleet, port=life.port, number=number, life=life)
    node.open()
    pipe.send(("port", (node.port, fleet)))
    zero_s = pipe.recv()
    stop_on_message(pipe, node)
    return node.serve(zero_s)


def targets_body(
    pipe: Connection,
    fleet: Fleet,
    addresses: dict[int, str],
    numbers: Sequence[int] | None = None,
    life: Life = FIRST,
) -> Log:
    """Decode the requests of these replayed targets (all) with replayed drafters, or without any.

    Targets that were killed before do not wait for their drafters: they decode alone until they are welcomed.
    """
    targets = ReplayedFleet(fleet, partial(Drawn, Outcomes(fleet)), addresses, numbers, life=life)
    if not life.number:
        targets.wait_for_welcomes(PATIENCE_S)
    pipe.send(("ready", None))
    return targets.serve(pipe.recv())


def stop_on_message(pipe: Connection, node: Node) -> None:
    """Stop a node when something more comes through the pipe."""

    def wait() -> None:
        pipe.recv()
        node.stop()

    threading.Thread(target=wait, daemon=True).start()
