"""Bodies of light processes. Without torch."""

import os
import sys
from multiprocessing.connection import Connection

from specfleet.engine.launch.bodies import LauncherPipe
from specfleet.fleet.scenario.resolved import Fleet


def modules_of_a_replayed_pair(_pipe: Connection, fleet: Fleet) -> list[str]:
    """Build a replayed drafter and its targets in this process; return the names of all loaded modules."""
    from specfleet.engine.replayed.drafter import replayed_drafter_node
    from specfleet.engine.replayed.targets import ReplayedFleet

    node = replayed_drafter_node(fleet)
    node.open()
    ReplayedFleet(fleet, {0: node.address})
    node.close()
    return list(sys.modules)


def reports_much(pipe: LauncherPipe, number: int) -> str:
    """Report so many numbers, after a message."""
    pipe.send(("ready", "ready"))
    pipe.connection.recv()
    for value in range(number):
        pipe.report(value)
    return "all"


def answers_late(pipe: LauncherPipe) -> str:
    """Answer after a message."""
    pipe.connection.recv()
    return "late"


def reports_and_dies(pipe: LauncherPipe) -> None:
    """Report once, and die."""
    pipe.report(1)
    os._exit(3)
