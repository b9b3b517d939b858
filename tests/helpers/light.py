"""Bodies of light processes that list their modules. Without torch."""

import sys
from multiprocessing.connection import Connection

from fleet.scenario.resolved import Fleet


def modules_of_a_replayed_pair(_pipe: Connection, fleet: Fleet) -> list[str]:
    """Build a replayed drafter and its targets in this process; return the names of all loaded modules."""
    from engine.launch import bodies
    from engine.node.node import LOOPBACK
    from engine.replayed.drafter import replayed_drafter_node

    node = replayed_drafter_node(fleet)
    node.open()
    bodies.ReplayedFleet(fleet, {0: f"{LOOPBACK}:{node.port}"})
    node.close()
    return list(sys.modules)
