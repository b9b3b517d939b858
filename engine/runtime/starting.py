"""How the processes of a run are started: which there are, whom they call, and the life that each begins with."""

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
from engine.runtime.placement import gpus_of, visible_gpus
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


def _drafter_process(
    fleet: Fleet, lock_file: Path | None, number: int, observing: Observing, life: Life
) -> NodeProcess:
    name = fleet.drafter_name(number)
    if fleet.drafters.kind == "replayed":
        return NodeProcess(
            f"replayed {name}", light.drafter_body, fleet, number, life, light=True, **observing.of(name)
        )
    return NodeProcess(
        name,
        bodies.drafter_body,
        fleet,
        lock_file,
        number,
        life,
        gpu=gpus_of(fleet, visible_gpus()).get(name, ""),
        **observing.of(name, measures=number == 0),
    )


def start_drafters(
    fleet: Fleet, lock_file: Path | None, run: Path, places: list[Place], observing: Observing
) -> tuple[dict[int, str], Fleet]:
    """Start all drafters into `places`; return their addresses, and the fleet with the first one's admission.

    The others, which are told it, load their models at once. `run`: the folder of the run.
    """
    addresses: dict[int, str] = {}
    origin: Origin = "replayed" if fleet.drafters.kind == "replayed" else "real"
    for numbers in ([0], range(1, fleet.drafters.count)) if fleet.drafters.count else ():
        started: dict[int, Place] = {}
        for number in numbers:
            name = fleet.drafter_name(number)
            start = partial(_drafter_process, fleet, lock_file, number, observing)
            started[number] = Place(name, origin, start, ends=False, life=first_life(name, fleet.faults, run))
            places.append(started[number])
            started[number].begin()
        for number, place in started.items():
            port, fleet = place.node.receive(nodes_of(places))
            place.life = msgspec.structs.replace(place.life, port=port)
            addresses[number] = f"{LOOPBACK}:{port}"
    return addresses, fleet


def start_router(fleet: Fleet, addresses: dict[int, str], places: list[Place]) -> dict[int, str]:
    """Start the router's process into `places`; return the address that targets are to have in the drafters' place."""
    asked = [(fleet.verifiers.model, "target")] if fleet.verifiers.kind == "real" else []
    asked += [(fleet.drafters.model, "drafter")] if fleet.drafters.kind == "model" else []
    vocabulary = max((int(read_config(folder_of(model, role)).vocab_size) for model, role in asked), default=0)

    def start(_life: Life) -> NodeProcess:
        return NodeProcess("router", bodies.router_body, fleet, addresses, vocabulary)

    places.append(Place(ROUTER, "real", start, ends=False))
    return {0: f"{LOOPBACK}:{places[-1].begin().receive(nodes_of(places))}"}


def start_targets(
    fleet: Fleet,
    texts: Sequence[Any],
    addresses: dict[int, str],
    lock_file: Path | None,
    run: Path,
    places: list[Place],
    observing: Observing,
) -> list[Place]:
    """Start all targets into `places`, and return them. Replayed ones share a process, but for those that faults hit.

    `texts`: the prompts of real targets, the continuations of replayed ones beside real drafters.
    """
    replayed = fleet.verifiers.kind == "replayed"
    groups = _processes_of_replayed(fleet) if replayed else [[target] for target in range(fleet.verifiers.count)]
    origin: Origin = "replayed" if replayed else "real"
    started: list[Place] = []
    for numbers in groups:
        name = verifier_name(numbers[0]) if len(numbers) == 1 else ""
        start = partial(_targets_process, fleet, numbers, texts, addresses, lock_file, observing)
        started.append(Place(name, origin, start, ends=True, life=first_life(name, fleet.faults, run)))
        places.append(started[-1])
        started[-1].begin()
    return started


def _targets_process(
    fleet: Fleet,
    numbers: list[int],
    texts: Sequence[Any],
    addresses: dict[int, str],
    lock_file: Path | None,
    observing: Observing,
    life: Life,
) -> NodeProcess:
    """Start the process of these targets, of one where it is real."""
    if fleet.verifiers.kind != "replayed":
        name = f"target {numbers[0] + 1}"
        measures = not fleet.drafters.count and numbers[0] == 0
        return NodeProcess(
            name,
            bodies.verifier_body,
            fleet,
            numbers[0],
            texts,
            addresses,
            lock_file,
            life,
            gpu=gpus_of(fleet, visible_gpus()).get(verifier_name(numbers[0]), ""),
            **observing.of(name, measures),
        )
    name = "replayed targets" if len(numbers) > 1 else f"replayed target {numbers[0] + 1}"
    if fleet.drafters.kind == "replayed":
        return NodeProcess(name, light.targets_body, fleet, addresses, numbers, life, light=True, **observing.of(name))
    return NodeProcess(name, bodies.replayed_body, fleet, texts, addresses, numbers, life, **observing.of(name))


def targets_hit(fleet: Fleet) -> list[int]:
    """Return the targets that a fault stops: each needs a process of its own, and with one of them the router does."""
    hit = {fault.node for fault in fleet.faults if isinstance(fault, NodeFault)}
    return [target for target in range(fleet.verifiers.count) if verifier_name(target) in hit]


def _processes_of_replayed(fleet: Fleet) -> list[list[int]]:
    """Return which replayed targets share a process: all that no fault stops."""
    alone = targets_hit(fleet)
    others = [target for target in range(fleet.verifiers.count) if target not in alone]
    return [*([target] for target in alone), *([others] if others else [])]


def nodes_of(places: Sequence[Place]) -> list[NodeProcess]:
    """Return the processes of those places that have one."""
    return [place.node for place in places if place.nodes]
