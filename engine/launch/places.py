"""The places of a fleet's nodes: each makes the node of a process, in a run or started by hand."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from specfleet.engine.launch.processes import NodeProcess
from specfleet.engine.node.build import largest_vocabulary, state_numbers
from specfleet.engine.node.real import drafter_node, verifier_node
from specfleet.engine.node.router import router_node
from specfleet.engine.node.write_ahead_log import FIRST, Life, Served
from specfleet.engine.replayed.drafter import replayed_drafter_node
from specfleet.engine.replayed.targets import ReplayedFleet
from specfleet.fleet.scenario.names import ROUTER, verifier_name
from specfleet.fleet.scenario.resolved import Fleet

State = Literal["starting", "serving", "stalled", "dead", "done"]


@dataclass
class Place:
    """A process of a run, in all its lives.

    - `station`: its name in faults; empty if the process has several stations.
    - `name`: of the process. `make(site)`: makes its node. `replayed`: whether it has no model.
    - `ends`: whether it ends by itself, when its requests are done.
    - `life`, `node`: the last one, and its process. `recovered`: rows and texts of all lives.
    """

    station: str
    name: str
    make: Callable[..., Any]
    replayed: bool = False
    ends: bool = False
    life: Life = FIRST
    node: NodeProcess = field(init=False)
    state: State = "starting"
    recovered: Served = field(default_factory=lambda: Served([], {}))

    @property
    def goes(self) -> bool:
        """Whether it has a process that is still running."""
        return self.state in ("starting", "serving", "stalled")


def drafter_place(fleet: Fleet, number: int, lock_file: Path | None = None) -> Place:
    """Return the place of a drafter. `lock_file`: of a device that it shares by time slices."""
    name = fleet.drafter_name(number)
    if fleet.drafters.kind == "replayed":
        return Place(name, f"replayed {name}", partial(replayed_drafter_node, fleet, number), replayed=True)
    return Place(name, name, partial(drafter_node, fleet, number, lock_file))


def router_place(fleet: Fleet, addresses: Mapping[int, str]) -> Place:
    """Return the place of the router. `addresses`: of the drafters, by number."""
    vocabulary, numbers = largest_vocabulary(fleet), state_numbers(fleet)
    return Place(ROUTER, ROUTER, partial(router_node, fleet, addresses, vocabulary, state_numbers=numbers))


def targets_place(
    fleet: Fleet,
    numbers: Sequence[int],
    texts: Sequence[Any],
    addresses: Mapping[int, str],
    lock_file: Path | None = None,
    signals: bool = False,
) -> Place:
    """Return the place of targets: of one if it is real.

    - `texts`: the prompts of a real one, or the continuations of replayed ones.
    - `addresses`, `lock_file`, `signals`: see `verifier_node`.
    """
    number = numbers[0]
    station = verifier_name(number) if len(numbers) == 1 else ""
    if fleet.verifiers.kind == "replayed":
        name = "replayed targets" if len(numbers) > 1 else f"replayed target {number + 1}"
        return Place(station, name, partial(ReplayedFleet, fleet, addresses, numbers, texts), replayed=True, ends=True)
    make = partial(verifier_node, fleet, number, texts, addresses, lock_file, signals=signals)
    return Place(station, f"target {number + 1}", make, ends=True)
