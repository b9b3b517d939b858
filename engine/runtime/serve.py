"""Run a scenario on this host's engine: start its nodes as processes, let them begin together, collect their logs."""

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from engine.decoding.shared_tokenizer import check_shared_tokenizer
from engine.runtime import bodies
from engine.runtime.clock import now_s
from engine.runtime.continuations import continuations_of
from engine.runtime.memory import check_room
from engine.runtime.observer import Observing, Together, Watch
from engine.runtime.placement import devices_of, visible_gpus
from engine.runtime.positions import with_positions
from engine.runtime.power import Device
from engine.runtime.process import NodeProcess, end_all
from engine.runtime.prompts import prompts_of
from engine.runtime.runnable import check_can_run
from engine.runtime.served import Served, measured
from engine.runtime.starting import nodes_of, start_drafters, start_router, start_targets, targets_hit
from engine.runtime.supervisor import Place, Supervisor
from fleet.records.recorded import Log
from fleet.records.run import make_run
from fleet.scenario.facts import crowds, models_of
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle
from fleet.scenario.settled import Fleet

CONTINUATIONS = Path(tempfile.gettempdir()) / "specfleet-continuations"
HEAD_START_S = 0.05  # from sending time zero to time zero itself, so that every process has read it before


def crowding(fleet: Fleet) -> str | None:
    """Return a warning where a scenario has more devices than this host has GPUs, or more models than it has cores."""
    gpus, cores = len(visible_gpus()), os.cpu_count() or 1
    if gpus:
        devices = 1 if fleet.batch is not None else len(set(devices_of(fleet).values()))
        if devices <= gpus:
            return None
        few = f"{gpus} GPU" + "s" * (gpus > 1)
        return f"{devices} devices of the scenario share {few}; its simulation will be too fast"
    if not crowds(fleet, cores):
        return None
    return (
        f"{models_of(fleet)} models run on {cores} cores, while the scenario gives each a device of its own; its "
        "simulation will be too fast. Name the device that they share, as the scenario that `specfleet calibrate` "
        'writes does: [devices.host] sharing = "turns" or "contended".'
    )


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
        batched, node = _alone(observing, "batch", bodies.batch_body, scenario, prompts_of(fleet), signals)
        return measured(Served(batched.run, batched.outputs, batched.signals), [node])
    shared = fleet.devices.get(fleet.verifiers.device)
    if shared is not None and shared.sharing == "one-process":
        left, node = _alone(observing, "co-located", bodies.colocated_body, scenario, prompts_of(fleet))
        return measured(Served(*left), [node])
    with tempfile.TemporaryDirectory(prefix="specfleet-") as folder:
        lock_files = {name: Path(folder) / name for name, device in fleet.devices.items() if device.sharing == "turns"}
        places: list[Place] = []
        try:
            log, outputs, fleet = _serve(fleet, continuations_folder, lock_files, places, Path(folder), observing)
        finally:
            end_all(node for place in places for node in place.nodes)
    observing.end()
    nodes = [node for place in places for node in place.nodes]
    return measured(Served(make_run(scenario, "engine", log, fleet, len(visible_gpus())), outputs), nodes)


def _alone(observing: Observing, name: str, body: Callable[..., Any], *arguments: Any) -> tuple[Any, NodeProcess]:
    """Run all of a scenario in one process; return what it leaves, and the process."""
    node = NodeProcess(name, body, *arguments, **observing.of(name, measures=True))
    try:
        return node.receive(), node
    finally:
        node.end()


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
    addresses, fleet = start_drafters(fleet, lock_files.get(fleet.drafters.device), run, places, observing)
    if fleet.routed and (not replayed or targets_hit(fleet)):
        addresses = start_router(fleet, addresses, places)
    targets = start_targets(fleet, texts, addresses, lock_files.get(fleet.verifiers.device), run, places, observing)
    for place in targets:
        place.node.receive(nodes_of(places))
    zero_s = now_s() + HEAD_START_S
    for place in places:
        place.node.send(zero_s)
        place.state = "serving"
    log, outputs = Supervisor(places, fleet.faults, zero_s).run()
    return log, outputs, fleet
