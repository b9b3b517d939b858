"""Run a scenario on this host's engine: start its nodes as processes, let them begin together, collect their logs."""

import os
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import torch

from engine.decoding.shared_tokenizer import check_shared_tokenizer
from engine.runtime import light
from engine.runtime.answers import Continuation, Continued
from engine.runtime.batch import Batched, serve_batch
from engine.runtime.clock import now_s
from engine.runtime.colocated import serve_colocated
from engine.runtime.continuations import continuations_of
from engine.runtime.device_lock import DeviceLock, file_lock, no_lock
from engine.runtime.drafter import DrafterNode
from engine.runtime.memory import check_room
from engine.runtime.node import LOOPBACK
from engine.runtime.positions import with_positions
from engine.runtime.process import NodeProcess
from engine.runtime.prompts import prompts_of
from engine.runtime.replayed import ReplayedFleet
from engine.runtime.verifier import VerifierNode
from fleet.chance.token import Token
from fleet.errors import InputError
from fleet.policies.group import One
from fleet.records.recorded import Log
from fleet.records.run import Run, make_run
from fleet.scenario.facts import crowds, models_of
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle
from fleet.scenario.settled import Fleet

CONTINUATIONS = Path(tempfile.gettempdir()) / "specfleet-continuations"
HEAD_START_S = 0.05  # from sending time zero to time zero itself, so that every process has read it before


class Served(msgspec.Struct, frozen=True):
    """A run on the engine, and the new tokens of each request that a real target decoded.

    `signals`: of each request's drafted tokens, where a batch recorded them.
    """

    run: Run
    outputs: dict[int, list[int]]
    signals: dict[int, list[Token]] = {}


def _drafter_body(pipe: Connection, fleet: Fleet, lock_file: Path | None) -> Log:
    node = DrafterNode(fleet, _lock(lock_file))
    node.open()
    pipe.send(("port", (node.port, node.fleet)))
    zero_s = pipe.recv()
    light.stop_on_message(pipe, node)
    return node.serve(zero_s)


def _verifier_body(
    pipe: Connection, fleet: Fleet, target: int, prompts: list[list[int]], port: int, lock_file: Path | None
) -> tuple[Log, dict[int, list[int]]]:
    node = VerifierNode(fleet, target, prompts, {0: f"{LOOPBACK}:{port}"}, _lock(lock_file))
    node.open()
    node.wait_for_welcomes(light.PATIENCE_S)
    pipe.send(("ready", None))
    log = node.serve(pipe.recv())
    return log, node.outputs


def _replayed_body(pipe: Connection, fleet: Fleet, continuations: list[Continuation], port: int) -> Log:
    replayed = ReplayedFleet(fleet, lambda _station: Continued(continuations), {0: f"{LOOPBACK}:{port}"})
    replayed.wait_for_welcomes(light.PATIENCE_S)
    pipe.send(("ready", None))
    return replayed.serve(pipe.recv())


def _colocated_body(
    _pipe: Connection, scenario: Scenario, prompts: list[list[int]]
) -> tuple[Run, dict[int, list[int]]]:
    return serve_colocated(scenario, prompts)


def _batch_body(_pipe: Connection, scenario: Scenario, prompts: list[list[int]], signals: bool) -> Batched:
    return serve_batch(scenario, prompts, signals)


def _lock(file: Path | None) -> DeviceLock:
    return file_lock(file) if file else no_lock


def check_can_run(fleet: Fleet) -> None:
    """Raise InputError where the scenario asks for what only the simulator can do yet, naming the key."""
    workload, drafters, verifiers = fleet.workload, fleet.drafters, fleet.verifiers
    for side, given in (("drafters", drafters), ("verifiers", verifiers)):
        if given.kind == "replayed" and given.device:
            raise InputError(f"{side}.device with {side}.kind = 'replayed': a replayed station has its own device")
    shared, elsewhere = fleet.devices.get(verifiers.device), drafters.count and drafters.device != verifiers.device
    simulated_only = {
        "drafters.count": drafters.count > 1,
        "drafters.limits_per_s": drafters.limits_per_s != (),
        "drafters.cache_tokens": drafters.cache_tokens > 0,
        "drafters.overlap": not fleet.in_turn,
        "drafters.lease_s": drafters.lease_s > 0,
        "faults": fleet.faults != (),
        "verifiers.device": bool(shared and shared.sharing == "one-process" and elsewhere),
        "verifiers.group": not isinstance(verifiers.group, One),
        "verifiers.allocate": verifiers.allocate is not None,
        "verifiers.patience_s": verifiers.patience.patience_s > 0,
        "workload.conversations": workload.conversations != "",
    }
    if fleet.batch is None:
        simulated_only |= {
            "workload.streams": workload.streams not in (0, verifiers.count),
            "workload.arrivals": workload.arrivals is not None,
            "workload.lengths": workload.lengths != "",
            "workload.prompt_tokens": not isinstance(workload.prompt_tokens, int),
            "workload.new_tokens": not isinstance(workload.new_tokens, int),
        }
    for key, asked in simulated_only.items():
        if asked:
            raise InputError(
                f"scenario {fleet.name!r}: the engine does not support this value of {key} yet; simulate the scenario"
            )


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


def start_drafter(fleet: Fleet, lock_file: Path | None = None) -> tuple[NodeProcess, int, Fleet]:
    """Start the drafter's process; return it, its public port, and the fleet with the admission that it settled.

    It answers handshakes from now on.
    """
    if fleet.drafters.kind == "replayed":
        drafter = NodeProcess("replayed drafter", light.drafter_body, fleet, light=True)
    else:
        drafter = NodeProcess("drafter", _drafter_body, fleet, lock_file)
    return drafter, *drafter.receive()


def serve(scenario: Scenario, continuations_folder: Path = CONTINUATIONS, signals: bool = False) -> Served:
    """Run the scenario on this host and return its records; `signals`: those of a batch's drafted tokens, too.

    Raises InputError for a scenario that the engine cannot run, NodeError if a process fails.
    """
    fleet = with_positions(settle(scenario))
    check_can_run(fleet)
    if fleet.drafters.count and fleet.drafters.kind == "model":
        check_shared_tokenizer(fleet.drafters.model, fleet.verifiers.model)
    check_room(fleet, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    if fleet.batch is not None:
        node = NodeProcess("batch", _batch_body, scenario, prompts_of(fleet), signals)
        try:
            batched = node.receive()
        finally:
            node.end()
        return Served(batched.run, batched.outputs, batched.signals)
    shared = fleet.devices.get(fleet.verifiers.device)
    if shared is not None and shared.sharing == "one-process":
        node = NodeProcess("co-located", _colocated_body, scenario, prompts_of(fleet))
        try:
            return Served(*node.receive())
        finally:
            node.end()
    with tempfile.TemporaryDirectory(prefix="specfleet-") as folder:
        lock_files = {name: Path(folder) / name for name, device in fleet.devices.items() if device.sharing == "turns"}
        nodes: list[NodeProcess] = []
        try:
            log, outputs, fleet = _serve(fleet, continuations_folder, lock_files, nodes)
        finally:
            for node in nodes:
                node.end()
    return Served(make_run(scenario, "engine", log, fleet), outputs)


def _serve(
    fleet: Fleet, continuations_folder: Path, lock_files: dict[str, Path], nodes: list[NodeProcess]
) -> tuple[Log, dict[int, list[int]], Fleet]:
    """Start the processes into `nodes`, connect them, begin at one time zero; collect logs and outputs.

    The fleet that comes back knows the admission that its drafter settled.
    """
    replayed, drawn = fleet.verifiers.kind == "replayed", fleet.drafters.kind == "replayed"
    continuations = continuations_of(fleet, continuations_folder) if replayed and not drawn else []
    prompts = [] if replayed else prompts_of(fleet)
    drafter, port = None, 0
    if fleet.drafters.count:
        drafter, port, fleet = start_drafter(fleet, lock_files.get(fleet.drafters.device))
        nodes.append(drafter)
    if drawn:
        targets = [NodeProcess("replayed targets", light.targets_body, fleet, port, light=True)]
    elif replayed:
        targets = [NodeProcess("replayed targets", _replayed_body, fleet, continuations, port)]
    else:
        lock_file = lock_files.get(fleet.verifiers.device)
        targets = [
            NodeProcess(f"target {target + 1}", _verifier_body, fleet, target, prompts, port, lock_file)
            for target in range(fleet.verifiers.count)
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
        result = node.receive()
        if replayed:
            log += result
        else:
            log += result[0]
            outputs |= result[1]
    if drafter is not None:
        drafter.send("stop")
        log += drafter.receive()
    return log, outputs, fleet
