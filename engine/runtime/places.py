"""The places of a run: drafters, the router and targets, each started as a process of its own."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from engine.decoding.folders import read_config
from engine.decoding.models import folder_of
from engine.runtime import bodies, light
from engine.runtime.journal import FIRST, Life
from engine.runtime.node import LOOPBACK
from engine.runtime.observer import UNOBSERVED, Observing
from engine.runtime.process import NodeProcess
from engine.runtime.supervisor import Place, first_life
from fleet.records.recorded import Origin
from fleet.scenario.faults import NodeFault
from fleet.scenario.names import ROUTER, verifier_name
from fleet.scenario.settled import Fleet


def start_drafter(fleet: Fleet, lock_file: Path | None = None, number: int = 0) -> tuple[NodeProcess, int, Fleet]:
    """Start a drafter's process; return it, its public port, and the fleet with the admission that it settled.

    It answers handshakes from now on.
    """
    drafter = _drafter_process(fleet, lock_file, number, UNOBSERVED, FIRST)
    return drafter, *drafter.receive()


class Starting(msgspec.Struct, frozen=True):
    """What all processes of a run are started with.

    `folder`: for what must outlive a process; `lock_files`: of shared devices by name. `places` grows as they start.
    """

    folder: Path
    lock_files: dict[str, Path]
    observing: Observing
    places: list[Place]

    def add(self, place: Place) -> Place:
        """Start the process of a place; those that stand beside it are waited for, too."""
        place.begin()
        self.places.append(place)
        return place

    @property
    def nodes(self) -> list[NodeProcess]:
        """The processes that were started so far."""
        return [place.node for place in self.places]


def start_drafters(fleet: Fleet, starting: Starting) -> tuple[dict[int, str], Fleet]:
    """Start all drafters; return their addresses, and the fleet with the admission that the first one settled.

    The others, which are told it, load their models at once.
    """
    addresses: dict[int, str] = {}
    origin: Origin = "replayed" if fleet.drafters.kind == "replayed" else "real"
    lock_file = starting.lock_files.get(fleet.drafters.device)
    for numbers in ([0], range(1, fleet.drafters.count)) if fleet.drafters.count else ():
        started: dict[int, Place] = {}
        for number in numbers:
            name = fleet.drafter_name(number)
            start = partial(_drafter_process, fleet, lock_file, number, starting.observing)
            life = first_life(name, fleet.faults, starting.folder)
            started[number] = starting.add(Place(name, origin, start, ends=False, life=life))
        for number, place in started.items():
            port, fleet = place.node.receive(starting.nodes)
            place.life = msgspec.structs.replace(place.life, port=port)
            addresses[number] = f"{LOOPBACK}:{port}"
    return addresses, fleet


def _drafter_process(
    fleet: Fleet, lock_file: Path | None, number: int, observing: Observing, life: Life
) -> NodeProcess:
    name = fleet.drafter_name(number)
    told = observing.of(_in_life(name, life), measures=number == 0 and fleet.drafters.kind != "replayed")
    if fleet.drafters.kind == "replayed":
        return NodeProcess(f"replayed {name}", light.drafter_body, fleet, number, life, light=True, **told)
    return NodeProcess(name, bodies.drafter_body, fleet, lock_file, number, life, **told)


def start_router(fleet: Fleet, addresses: dict[int, str], starting: Starting) -> dict[int, str]:
    """Start the router's process; return the address that targets are to have in the drafters' place."""
    asked = [(fleet.verifiers.model, "target")]
    asked += [(fleet.drafters.model, "drafter")] if fleet.drafters.kind == "model" else []
    vocabulary = max(int(read_config(folder_of(model, role)).vocab_size) for model, role in asked)

    def start(_life: Life) -> NodeProcess:
        return NodeProcess("router", bodies.router_body, fleet, addresses, vocabulary)

    place = starting.add(Place(ROUTER, "real", start, ends=False))
    return {0: f"{LOOPBACK}:{place.node.receive(starting.nodes)}"}


def start_targets(fleet: Fleet, texts: Sequence[Any], addresses: dict[int, str], starting: Starting) -> None:
    """Start all targets, and wait until they are ready. Replayed ones share a process, but for those that faults hit.

    `texts`: the prompts of real targets, the continuations of replayed ones beside real drafters.
    """
    replayed = fleet.verifiers.kind == "replayed"
    origin: Origin = "replayed" if replayed else "real"
    groups = _processes_of_replayed(fleet) if replayed else [[target] for target in range(fleet.verifiers.count)]
    started: list[Place] = []
    for numbers in groups:
        name = verifier_name(numbers[0]) if len(numbers) == 1 else ""
        start = partial(_targets_process, fleet, numbers, texts, addresses, starting)
        life = first_life(name, fleet.faults, starting.folder)
        started.append(starting.add(Place(name, origin, start, ends=True, life=life)))
    for place in started:
        place.node.receive(starting.nodes)


def _processes_of_replayed(fleet: Fleet) -> list[list[int]]:
    """Return which replayed targets share a process: all that no fault stops."""
    hit = {fault.node for fault in fleet.faults if isinstance(fault, NodeFault)}
    alone = [[target] for target in range(fleet.verifiers.count) if verifier_name(target) in hit]
    others = [target for target in range(fleet.verifiers.count) if [target] not in alone]
    return [*alone, others] if others else alone


def _targets_process(
    fleet: Fleet,
    numbers: list[int],
    texts: Sequence[Any],
    addresses: dict[int, str],
    starting: Starting,
    life: Life,
) -> NodeProcess:
    """Start the process of these targets, of one where it is real."""
    name = f"target {numbers[0] + 1}" if len(numbers) == 1 else "targets"
    if fleet.verifiers.kind != "replayed":
        lock_file = starting.lock_files.get(fleet.verifiers.device)
        told = starting.observing.of(_in_life(name, life), measures=not fleet.drafters.count and numbers == [0])
        return NodeProcess(name, bodies.verifier_body, fleet, numbers[0], texts, addresses, lock_file, life, **told)
    told = starting.observing.of(_in_life(name, life))
    if fleet.drafters.kind == "replayed":
        body, arguments = light.targets_body, (fleet, addresses, numbers, life)
        return NodeProcess(f"replayed {name}", body, *arguments, light=True, **told)
    return NodeProcess(f"replayed {name}", bodies.replayed_body, fleet, texts, addresses, numbers, life, **told)


def _in_life(name: str, life: Life) -> str:
    """What reports of a process stand under: what its earlier lives have done is done."""
    return f"{name} again {life.number}" if life.number else name
