"""Run a scenario on this host's engine: start its nodes as processes, let them begin together, collect their logs."""

import os
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch

from engine.decoding.folders import read_config
from engine.decoding.models import folder_of
from engine.decoding.shared_tokenizer import check_shared_tokenizer
from engine.runtime import light
from engine.runtime.answers import Continuation, Continued
from engine.runtime.batch import Batched, serve_batch
from engine.runtime.clock import now_s
from engine.runtime.colocated import serve_colocated
from engine.runtime.continuations import continuations_of
from engine.runtime.device_lock import DeviceLock, file_lock, no_lock
from engine.runtime.drafter import DrafterNode
from engine.runtime.journal import FIRST, Life
from engine.runtime.launcher_pipe import LauncherPipe
from engine.runtime.memory import check_room
from engine.runtime.node import LOOPBACK
from engine.runtime.observer import UNOBSERVED, Observing, Together, Watch
from engine.runtime.positions import with_positions
from engine.runtime.power import Device
from engine.runtime.process import NodeProcess, end_all
from engine.runtime.prompts import prompts_of
from engine.runtime.replayed import ReplayedFleet
from engine.runtime.router import RouterNode
from engine.runtime.runnable import check_can_run
from engine.runtime.served import Served, measured
from engine.runtime.supervisor import Place, Supervisor, first_life
from engine.runtime.verifier import VerifierNode
from fleet.records.recorded import Log, Origin
from fleet.records.run import Run, make_run
from fleet.scenario.facts import crowds, models_of
from fleet.scenario.faults import NodeFault
from fleet.scenario.names import ROUTER, verifier_name
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle
from fleet.scenario.settled import Fleet

CONTINUATIONS = Path(tempfile.gettempdir()) / "specfleet-continuations"
HEAD_START_S = 0.05  # from sending time zero to time zero itself, so that every process has read it before


def _drafter_body(pipe: LauncherPipe, fleet: Fleet, lock_file: Path | None, number: int, life: Life = FIRST) -> Log:
    node = DrafterNode(fleet, _lock(lock_file), port=life.port, number=number, life=life)
    node.open()
    pipe.send(("port", (node.port, node.fleet)))
    zero_s = pipe.recv()
    light.stop_on_message(pipe, node)
    with light.reported(pipe, fleet, node.stations, zero_s, [node.worker]):
        return node.serve(zero_s)


def _verifier_body(
    pipe: LauncherPipe,
    fleet: Fleet,
    target: int,
    prompts: list[list[int]],
    addresses: dict[int, str],
    lock_file: Path | None,
    life: Life = FIRST,
) -> tuple[Log, dict[int, list[int]]]:
    node = VerifierNode(fleet, target, prompts, addresses, _lock(lock_file), life=life)
    node.open()
    if not life.number:  # one that was killed decodes alone until it is welcomed
        node.wait_for_welcomes(light.PATIENCE_S)
    pipe.send(("ready", None))
    zero_s = pipe.recv()
    with light.reported(pipe, fleet, node.stations, zero_s, [node.worker]):
        log = node.serve(zero_s)
    return log, node.outputs


def _router_body(pipe: LauncherPipe, fleet: Fleet, addresses: dict[int, str], vocabulary: int) -> Log:
    node = RouterNode(fleet, addresses, vocabulary)
    node.open()
    node.wait_for_welcomes(light.PATIENCE_S)
    pipe.send(("port", node.port))
    zero_s = pipe.recv()
    light.stop_on_message(pipe, node)
    with light.reported(pipe, fleet, node.stations, zero_s):
        return node.serve(zero_s)


def _replayed_body(
    pipe: LauncherPipe,
    fleet: Fleet,
    continuations: list[Continuation],
    addresses: dict[int, str],
    numbers: Sequence[int] | None = None,
    life: Life = FIRST,
) -> Log:
    replayed = ReplayedFleet(fleet, lambda _station: Continued(continuations), addresses, numbers, life=life)
    if not life.number:
        replayed.wait_for_welcomes(light.PATIENCE_S)
    pipe.send(("ready", None))
    zero_s = pipe.recv()
    with light.reported(pipe, fleet, replayed.stations, zero_s):
        return replayed.serve(zero_s)


def _colocated_body(
    pipe: LauncherPipe, scenario: Scenario, prompts: list[list[int]]
) -> tuple[Run, dict[int, list[int]]]:
    return serve_colocated(scenario, prompts, partial(light.reported, pipe))


def _batch_body(pipe: LauncherPipe, scenario: Scenario, prompts: list[list[int]], signals: bool) -> Batched:
    return serve_batch(scenario, prompts, signals, partial(light.reported, pipe))


def _lock(file: Path | None) -> DeviceLock:
    return file_lock(file) if file else no_lock


def crowding(fleet: Fleet) -> str | None:
    """Return a warning where more models would run at once than this host has cores, and no device is shared."""
    cores = os.cpu_count() or 1
    if torch.cuda.is_available() or not crowds(fleet, cores):
        return None
    return (
        f"{models_of(fleet)} models run on {cores} cores, while the scenario gives each a device of its own; its "
        "simulation will be too fast. Name the device that they share, as the scenario that `specfleet calibrate` "
        'writes does: [devices.host] sharing = "turns" or "contended".'
    )


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
    return NodeProcess(name, _drafter_body, fleet, lock_file, number, life, **observing.of(name, measures=number == 0))


def _start_drafters(
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
            port, fleet = place.node.receive(_nodes(places))
            place.life = msgspec.structs.replace(place.life, port=port)
            addresses[number] = f"{LOOPBACK}:{port}"
    return addresses, fleet


def _start_router(fleet: Fleet, addresses: dict[int, str], places: list[Place]) -> dict[int, str]:
    """Start the router's process into `places`; return the address that targets are to have in the drafters' place."""
    asked = [(fleet.verifiers.model, "target")] if fleet.verifiers.kind == "real" else []
    asked += [(fleet.drafters.model, "drafter")] if fleet.drafters.kind == "model" else []
    vocabulary = max((int(read_config(folder_of(model, role)).vocab_size) for model, role in asked), default=0)

    def start(_life: Life) -> NodeProcess:
        return NodeProcess("router", _router_body, fleet, addresses, vocabulary)

    places.append(Place(ROUTER, "real", start, ends=False))
    return {0: f"{LOOPBACK}:{places[-1].begin().receive(_nodes(places))}"}


def _start_targets(
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
            name, _verifier_body, fleet, numbers[0], texts, addresses, lock_file, life, **observing.of(name, measures)
        )
    name = "replayed targets" if len(numbers) > 1 else f"replayed target {numbers[0] + 1}"
    if fleet.drafters.kind == "replayed":
        return NodeProcess(name, light.targets_body, fleet, addresses, numbers, life, light=True, **observing.of(name))
    return NodeProcess(name, _replayed_body, fleet, texts, addresses, numbers, life, **observing.of(name))


def _hit(fleet: Fleet) -> list[int]:
    """Return the targets that a fault stops: each needs a process of its own, and with one of them the router does."""
    hit = {fault.node for fault in fleet.faults if isinstance(fault, NodeFault)}
    return [target for target in range(fleet.verifiers.count) if verifier_name(target) in hit]


def _processes_of_replayed(fleet: Fleet) -> list[list[int]]:
    """Return which replayed targets share a process: all that no fault stops."""
    alone = _hit(fleet)
    others = [target for target in range(fleet.verifiers.count) if target not in alone]
    return [*([target] for target in alone), *([others] if others else [])]


def _nodes(places: Sequence[Place]) -> list[NodeProcess]:
    return [place.node for place in places if place.nodes]


def serve(
    scenario: Scenario,
    continuations_folder: Path = CONTINUATIONS,
    signals: bool = False,
    watch: Watch | None = None,
    power: Device | Literal[""] = "",
) -> Served:
    """Run the scenario on this host and return its records; `signals`: those of a batch's drafted tokens, too.

    `watch` is told twice a second what all nodes have done, and once at the end. `power`: the device whose clock, power
    and energy are measured. Raises InputError for a scenario that the engine cannot run, NodeError if a process fails,
    NodeDiedError if it is killed.
    """
    fleet = with_positions(settle(scenario))
    check_can_run(fleet)
    if fleet.drafters.count and fleet.drafters.kind == "model":
        check_shared_tokenizer(fleet.drafters.model, fleet.verifiers.model)
    check_room(fleet, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    observing = Observing(None if watch is None else Together(watch), power)
    if fleet.batch is not None:
        node = NodeProcess(
            "batch", _batch_body, scenario, prompts_of(fleet), signals, **observing.of("batch", measures=True)
        )
        try:
            batched = node.receive()
        finally:
            node.end()
        return measured(Served(batched.run, batched.outputs, batched.signals), [node])
    shared = fleet.devices.get(fleet.verifiers.device)
    if shared is not None and shared.sharing == "one-process":
        node = NodeProcess(
            "co-located", _colocated_body, scenario, prompts_of(fleet), **observing.of("co-located", measures=True)
        )
        try:
            return measured(Served(*node.receive()), [node])
        finally:
            node.end()
    with tempfile.TemporaryDirectory(prefix="specfleet-") as folder:
        lock_files = {name: Path(folder) / name for name, device in fleet.devices.items() if device.sharing == "turns"}
        places: list[Place] = []
        try:
            log, outputs, fleet = _serve(fleet, continuations_folder, lock_files, places, Path(folder), observing)
        finally:
            end_all(node for place in places for node in place.nodes)
    observing.end()
    nodes = [node for place in places for node in place.nodes]
    return measured(Served(make_run(scenario, "engine", log, fleet), outputs), nodes)


def _serve(
    fleet: Fleet,
    continuations_folder: Path,
    lock_files: dict[str, Path],
    places: list[Place],
    run: Path,
    observing: Observing,
) -> tuple[Log, dict[int, list[int]], Fleet]:
    """Start the processes into `places`, connect them, begin at one time zero; collect logs and outputs.

    The fleet that comes back knows the admission that its drafter settled. `run`: a folder for what must outlive a
    process.
    """
    replayed, drawn = fleet.verifiers.kind == "replayed", fleet.drafters.kind == "replayed"
    texts: Sequence[Any] = (
        [] if drawn else continuations_of(fleet, continuations_folder) if replayed else prompts_of(fleet)
    )
    addresses, fleet = _start_drafters(fleet, lock_files.get(fleet.drafters.device), run, places, observing)
    if fleet.routed and (not replayed or _hit(fleet)):
        addresses = _start_router(fleet, addresses, places)
    targets = _start_targets(fleet, texts, addresses, lock_files.get(fleet.verifiers.device), run, places, observing)
    for place in targets:
        place.node.receive(_nodes(places))
    zero_s = now_s() + HEAD_START_S
    for place in places:
        place.node.send(zero_s)
        place.state = "serving"
    log, outputs = Supervisor(places, fleet.faults, zero_s).run()
    return log, outputs, fleet
