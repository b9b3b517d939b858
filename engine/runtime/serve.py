"""Run a scenario on this host's engine: start its nodes as processes, let them begin together, collect logs."""

import os
import tempfile
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import torch

from engine.decoding.models import check_shared_tokenizer
from engine.runtime.batch import Batched, serve_batch
from engine.runtime.clock import now_s
from engine.runtime.continuations import stories_of
from engine.runtime.device_lock import Lease, file_lease, no_lease
from engine.runtime.drafter import DrafterNode
from engine.runtime.inprocess import serve_in_process
from engine.runtime.memory import check_room
from engine.runtime.node import Node
from engine.runtime.prompts import prompts_of
from engine.runtime.replayed import ReplayedFleet, Story
from engine.runtime.verifier import VerifierNode
from fleet.chance.token import Token
from fleet.errors import InputError
from fleet.policies.group import One
from fleet.policies.overlap import InTurn
from fleet.records.recorded import Log
from fleet.records.run import Run, make_run
from fleet.scenario.scenario import Scenario

STORIES = Path(tempfile.gettempdir()) / "specfleet-stories"
HEAD_START_S = 0.05  # between the order to begin and time zero, so that every process has read it


class Served(msgspec.Struct, frozen=True):
    """A run on the engine, and the new tokens of each request that a real target decoded.

    `signals`: of each request's drafted tokens, where a batch recorded them.
    """

    run: Run
    outputs: dict[int, list[int]]
    signals: dict[int, list[Token]] = {}


def _drafter_body(pipe: Connection, scenario: Scenario, lease_file: Path | None) -> Log:
    node = DrafterNode(scenario, _lease(lease_file))
    node.open()
    pipe.send(("port", (node.port, node.scenario)))
    zero_s = pipe.recv()
    threading.Thread(target=_stop_when_told, args=(pipe, node), daemon=True).start()
    return node.serve(zero_s)


def _stop_when_told(pipe: Connection, node: DrafterNode) -> None:
    pipe.recv()
    node.stop()


def _verifier_body(
    pipe: Connection, scenario: Scenario, target: int, prompts: list[list[int]], port: int, lease_file: Path | None
) -> tuple[Log, dict[int, list[int]]]:
    node = VerifierNode(scenario, target, prompts, port, _lease(lease_file))
    pipe.send(("ready", None))
    log = node.serve(pipe.recv())
    return log, node.outputs


def _replayed_body(pipe: Connection, scenario: Scenario, stories: list[Story], port: int) -> Log:
    fleet = ReplayedFleet(scenario, stories, port)
    pipe.send(("ready", None))
    return fleet.serve(pipe.recv())


def _one_process_body(
    _pipe: Connection, scenario: Scenario, prompts: list[list[int]]
) -> tuple[Run, dict[int, list[int]]]:
    return serve_in_process(scenario, prompts)


def _batch_body(_pipe: Connection, scenario: Scenario, prompts: list[list[int]], signals: bool) -> Batched:
    return serve_batch(scenario, prompts, signals)


def _lease(file: Path | None) -> Lease:
    return file_lease(file) if file else no_lease


def check_can_run(scenario: Scenario) -> None:
    """Raise InputError where the scenario asks for what the engine cannot do yet, naming the key."""
    workload, drafters, verifiers = scenario.workload, scenario.drafters, scenario.verifiers
    simulated_only = {
        "drafters.count": drafters.count > 1,
        "drafters.limits_per_s": drafters.limits_per_s != (),
        "drafters.cache_tokens": drafters.cache_tokens > 0,
        "drafters.overlap": not isinstance(drafters.overlap, InTurn),
        "verifiers.group": not isinstance(verifiers.group, One),
        "verifiers.allocate": verifiers.allocate is not None,
        "workload.conversations": workload.conversations != "",
    }
    if scenario.batch is None:
        simulated_only |= {
            "workload.streams": workload.streams not in (0, verifiers.count),
            "workload.arrivals": workload.arrivals is not None,
            "workload.prompt_tokens": not isinstance(workload.prompt_tokens, int),
            "workload.new_tokens": not isinstance(workload.new_tokens, int),
        }
    for key, asked in simulated_only.items():
        if asked:
            raise InputError(
                f"scenario {scenario.name!r}: the engine does not know {key} of this kind yet; simulate it"
            )


def crowding(scenario: Scenario) -> str | None:
    """Say so where more models would run at once on this host's cores than the scenario knows of; else None."""
    real = scenario.verifiers.count if scenario.verifiers.kind == "real" else 0
    models, cores = scenario.drafters.count + real, os.cpu_count() or 1
    if scenario.devices or torch.cuda.is_available() or models <= cores:
        return None
    return (
        f"{models} models run on {cores} cores, while the scenario gives each a device of its own; a simulation of it "
        'will be too fast. Name the device that they share, [devices.host] sharing = "turns" or "contended".'
    )


def start_drafter(scenario: Scenario, lease_file: Path | None = None) -> tuple[Node, int, Scenario]:
    """Start the drafter's process; return it, its public port, and the scenario with what the drafter settled.

    It answers handshakes from now on.
    """
    drafter = Node("drafter", _drafter_body, scenario, lease_file)
    return drafter, *drafter.receive()


def serve(scenario: Scenario, stories_folder: Path = STORIES, signals: bool = False) -> Served:
    """Run the scenario on this host and return its records; `signals`: those of a batch's drafted tokens, too.

    Raises InputError for a scenario that the engine cannot run, NodeError if a process fails.
    """
    check_can_run(scenario)
    if scenario.drafters.count and scenario.drafters.kind == "model":
        check_shared_tokenizer(scenario.drafters.model, scenario.verifiers.model)
    check_room(scenario, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    if scenario.batch is not None:
        node = Node("batch", _batch_body, scenario, prompts_of(scenario), signals)
        try:
            batched = node.receive()
        finally:
            node.end()
        return Served(batched.run, batched.outputs, batched.signals)
    shared = scenario.devices.get(scenario.verifiers.device)
    if shared is not None and shared.sharing == "one-process":
        node = Node("co-located", _one_process_body, scenario, prompts_of(scenario))
        try:
            return Served(*node.receive())
        finally:
            node.end()
    with tempfile.TemporaryDirectory(prefix="specfleet-") as folder:
        leases = {name: Path(folder) / name for name, device in scenario.devices.items() if device.sharing == "turns"}
        nodes: list[Node] = []
        try:
            return _serve(scenario, stories_folder, leases, nodes)
        finally:
            for node in nodes:
                node.end()


def _serve(scenario: Scenario, stories_folder: Path, leases: dict[str, Path], nodes: list[Node]) -> Served:
    """Start the processes into `nodes`, shake hands, begin at one time zero, collect."""
    stories = stories_of(scenario, stories_folder) if scenario.verifiers.kind == "replayed" else []
    prompts = [] if stories else prompts_of(scenario)
    drafter, port = None, 0
    if scenario.drafters.count:
        drafter, port, scenario = start_drafter(scenario, leases.get(scenario.drafters.device))
        nodes.append(drafter)
    if stories:
        if scenario.verifiers.device:
            raise InputError("verifiers.device with verifiers.kind = 'replayed': a replayed target has its own device")
        targets = [Node("replayed targets", _replayed_body, scenario, stories, port)]
    else:
        lease_file = leases.get(scenario.verifiers.device)
        targets = [
            Node(f"target {target + 1}", _verifier_body, scenario, target, prompts, port, lease_file)
            for target in range(scenario.verifiers.count)
        ]
    nodes += targets
    for node in targets:
        node.receive()
    zero_s = now_s() + HEAD_START_S
    for node in nodes:
        node.tell(zero_s)
    log: Log = []
    outputs: dict[int, list[int]] = {}
    for node in targets:
        result = node.receive()
        if stories:
            log += result
        else:
            log += result[0]
            outputs |= result[1]
    if drafter is not None:
        drafter.tell("stop")
        log += drafter.receive()
    return Served(make_run(scenario, "engine", log), outputs)
