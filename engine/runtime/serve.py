"""Run a scenario on this host's engine: start its nodes as processes, let them begin together, collect their logs."""

import os
import tempfile
from functools import partial
from pathlib import Path
from typing import Literal

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
from engine.runtime.launcher_pipe import LauncherPipe
from engine.runtime.memory import check_room
from engine.runtime.node import LOOPBACK
from engine.runtime.observer import UNOBSERVED, Observing, Together, Watch
from engine.runtime.positions import with_positions
from engine.runtime.power import Device
from engine.runtime.process import NodeProcess
from engine.runtime.prompts import prompts_of
from engine.runtime.replayed import ReplayedFleet
from engine.runtime.router import RouterNode
from engine.runtime.runnable import check_can_run
from engine.runtime.served import Served, measured
from engine.runtime.verifier import VerifierNode
from fleet.records.recorded import Log
from fleet.records.run import Run, make_run
from fleet.scenario.facts import crowds, models_of
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle
from fleet.scenario.settled import Fleet

CONTINUATIONS = Path(tempfile.gettempdir()) / "specfleet-continuations"
HEAD_START_S = 0.05  # from sending time zero to time zero itself, so that every process has read it before


def _drafter_body(pipe: LauncherPipe, fleet: Fleet, lock_file: Path | None, number: int) -> Log:
    node = DrafterNode(fleet, _lock(lock_file), number=number)
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
) -> tuple[Log, dict[int, list[int]]]:
    node = VerifierNode(fleet, target, prompts, addresses, _lock(lock_file))
    node.open()
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
    pipe: LauncherPipe, fleet: Fleet, continuations: list[Continuation], addresses: dict[int, str]
) -> Log:
    replayed = ReplayedFleet(fleet, lambda _station: Continued(continuations), addresses)
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
    drafter = _drafter_process(fleet, lock_file, number)
    return drafter, *drafter.receive()


def _drafter_process(
    fleet: Fleet, lock_file: Path | None, number: int, observing: Observing = UNOBSERVED
) -> NodeProcess:
    name = fleet.drafter_name(number)
    if fleet.drafters.kind == "replayed":
        return NodeProcess(f"replayed {name}", light.drafter_body, fleet, number, light=True, **observing.of(name))
    return NodeProcess(name, _drafter_body, fleet, lock_file, number, **observing.of(name, measures=number == 0))


def _start_drafters(
    fleet: Fleet, lock_file: Path | None, nodes: list[NodeProcess], observing: Observing
) -> tuple[dict[int, str], Fleet]:
    """Start all drafters into `nodes`; return their addresses, and the fleet with the admission that the first settled.

    The others, which are told it, load their models at once.
    """
    addresses: dict[int, str] = {}
    for numbers in ([0], range(1, fleet.drafters.count)) if fleet.drafters.count else ():
        started = {number: _drafter_process(fleet, lock_file, number, observing) for number in numbers}
        nodes += started.values()
        for number, node in started.items():
            port, fleet = node.receive()
            addresses[number] = f"{LOOPBACK}:{port}"
    return addresses, fleet


def _start_router(fleet: Fleet, addresses: dict[int, str], nodes: list[NodeProcess]) -> dict[int, str]:
    """Start the router's process into `nodes`; return the address that targets are to have instead of the drafters'."""
    asked = [(fleet.verifiers.model, "target")]
    asked += [(fleet.drafters.model, "drafter")] if fleet.drafters.kind == "model" else []
    vocabulary = max(int(read_config(folder_of(model, role)).vocab_size) for model, role in asked)
    router = NodeProcess("router", _router_body, fleet, addresses, vocabulary)
    nodes.append(router)
    return {0: f"{LOOPBACK}:{router.receive()}"}


def serve(
    scenario: Scenario,
    continuations_folder: Path = CONTINUATIONS,
    signals: bool = False,
    watch: Watch | None = None,
    power: Device | Literal[""] = "",
) -> Served:
    """Run the scenario on this host and return its records; `signals`: those of a batch's drafted tokens, too.

    `watch` is told twice a second what all nodes have done, and once at the end. `power`: the device whose clock, power
    and energy are measured. Raises InputError for a scenario that the engine cannot run, NodeError if a process fails.
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
        nodes: list[NodeProcess] = []
        try:
            log, outputs, fleet = _serve(fleet, continuations_folder, lock_files, nodes, observing)
        finally:
            for node in nodes:
                node.end()
    observing.end()
    return measured(Served(make_run(scenario, "engine", log, fleet), outputs), nodes)


def _serve(
    fleet: Fleet,
    continuations_folder: Path,
    lock_files: dict[str, Path],
    nodes: list[NodeProcess],
    observing: Observing,
) -> tuple[Log, dict[int, list[int]], Fleet]:
    """Start the processes into `nodes`, connect them, begin at one time zero; collect logs and outputs.

    The fleet that comes back knows the admission that its drafter settled.
    """
    replayed, drawn = fleet.verifiers.kind == "replayed", fleet.drafters.kind == "replayed"
    continuations = continuations_of(fleet, continuations_folder) if replayed and not drawn else []
    prompts = [] if replayed else prompts_of(fleet)
    addresses, fleet = _start_drafters(fleet, lock_files.get(fleet.drafters.device), nodes, observing)
    if fleet.routed and not replayed:
        addresses = _start_router(fleet, addresses, nodes)
    servers = list(nodes)
    if drawn:
        targets = [
            NodeProcess("replayed targets", light.targets_body, fleet, addresses, light=True, **observing.of("targets"))
        ]
    elif replayed:
        targets = [
            NodeProcess("replayed targets", _replayed_body, fleet, continuations, addresses, **observing.of("targets"))
        ]
    else:
        lock_file = lock_files.get(fleet.verifiers.device)
        targets = [
            NodeProcess(
                name,
                _verifier_body,
                fleet,
                target,
                prompts,
                addresses,
                lock_file,
                **observing.of(name, measures=not servers and target == 0),
            )
            for target in range(fleet.verifiers.count)
            for name in [f"target {target + 1}"]
        ]
    nodes += targets
    for node in targets:
        node.receive()
    zero_s = now_s() + HEAD_START_S
    for node in nodes:
        node.send(zero_s)
    log: Log = []
    outputs: dict[int, list[int]] = {}
    for node in targets:
        result = node.receive(beside=nodes)
        if replayed:
            log += result
        else:
            log += result[0]
            outputs |= result[1]
    for node in reversed(servers):  # the router before its drafters
        node.send("stop")
        log += node.receive(beside=servers)
    return log, outputs, fleet
