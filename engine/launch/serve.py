"""Runs a scenario on this host's engine: starts its nodes as processes, and collects their logs."""

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch

from engine.decoding.folders import read_config
from engine.decoding.models import folder_of
from engine.decoding.shared_tokenizer import check_shared_tokenizer
from engine.launch.bodies import node_body, whole_body
from engine.launch.placement import gpus_of, visible_gpus
from engine.launch.processes import NodeProcess, end_all
from engine.launch.runnable import check_can_run
from engine.launch.supervisor import ProcessLives, Supervisor, first_life
from engine.launch.watched import Observing, Watch, Watched
from engine.net.clock import now_s
from engine.node.batch import serve_batch
from engine.node.capacity import check_room, with_positions
from engine.node.colocated import serve_colocated
from engine.node.drafter import DrafterNode
from engine.node.node import LOOPBACK
from engine.node.observer import Observed
from engine.node.power import Device
from engine.node.prompts import prompts_of
from engine.node.router import RouterNode
from engine.node.verifier import VerifierNode
from engine.node.write_ahead_log import FIRST, Life
from engine.replayed.continuations import continuations_of
from engine.replayed.drafter import ReplayedDrafterNode
from engine.replayed.targets import ReplayedFleet
from fleet.acceptance.token import Token
from fleet.records.power import curves_of
from fleet.records.recorder import Log, Origin
from fleet.records.run import Run, make_run
from fleet.records.samples import PowerSample
from fleet.scenario.faults import NodeFault
from fleet.scenario.names import ROUTER, verifier_name
from fleet.scenario.resolve import resolve
from fleet.scenario.resolved import Fleet
from fleet.scenario.scenario import Scenario

CONTINUATIONS = Path(tempfile.gettempdir()) / "specfleet-continuations"
HEAD_START_S = 0.05  # from sending time zero to time zero, so that every process has read it before


class EngineRun(msgspec.Struct, frozen=True):
    """A run on the engine.

    - `outputs`: new tokens of each request of a real target.
    - `signals`: of each request's drafted tokens, if a batch recorded them.
    - `samples`: of a device's power.
    """

    run: Run
    outputs: dict[int, list[int]]
    signals: dict[int, list[Token]] = {}
    samples: tuple[PowerSample, ...] = ()


def serve(
    scenario: Scenario,
    continuations_folder: Path = CONTINUATIONS,
    signals: bool = False,
    watch: Watch | None = None,
    power: Device | Literal[""] = "",
) -> EngineRun:
    """Run the scenario on this host and return its records.

    - `signals`: whether to record those of a batch's drafted tokens.
    - `watch`: is called with the counters of all nodes, twice a second and at the end.
    - `power`: the device whose clock, power and energy are measured.

    Raises InputError for a scenario that the engine cannot run, NodeError if a process fails, NodeDiedError if it is
    killed.
    """
    fleet = with_positions(resolve(scenario))
    check_can_run(fleet)
    if fleet.drafters.count and fleet.drafters.kind == "model":
        check_shared_tokenizer(fleet.drafters.model, fleet.verifiers.model)
    check_room(fleet, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    observing = Observing(None if watch is None else Watched(fleet, watch), power)
    shared = fleet.devices.get(fleet.verifiers.device)
    if fleet.batch is not None:
        batched, node = _alone("batch", partial(serve_batch, scenario, prompts_of(fleet), signals), observing)
        return _with_samples(EngineRun(batched.run, batched.outputs, batched.signals), [node])
    if shared is not None and shared.sharing == "one-process":
        left, node = _alone("co-located", partial(serve_colocated, scenario, prompts_of(fleet)), observing)
        return _with_samples(EngineRun(*left), [node])
    with tempfile.TemporaryDirectory(prefix="specfleet-") as folder:
        launch = Launch(fleet, Path(folder), observing)
        try:
            log, outputs = launch.run(_texts(fleet, continuations_folder))
        finally:
            end_all(launch.nodes)
    observing.end()
    return _with_samples(
        EngineRun(make_run(scenario, "engine", log, launch.fleet, len(visible_gpus())), outputs), launch.nodes
    )


def drafter_process(
    fleet: Fleet, number: int = 0, lock_file: Path | None = None, life: Life = FIRST, **options: Any
) -> NodeProcess:
    """Start the process of a drafter, which sends (port, fleet): its port, and the fleet with its admission.

    `options`: see `NodeProcess`.
    """
    name = fleet.drafter_name(number)
    if fleet.drafters.kind == "replayed":
        make = partial(ReplayedDrafterNode, fleet, port=life.port, number=number, life=life)
        return NodeProcess(f"replayed {name}", node_body, make, light=True, **options)
    model = partial(DrafterNode, fleet, lock_file, port=life.port, number=number, life=life)
    return NodeProcess(name, node_body, model, **options)


class Launch:
    """The processes of a run on this host.

    - `fleet`: with the admission of its first drafter, once that has started.
    - `folder`: files of the run: locks of devices, and logs of processes that a fault kills.
    """

    def __init__(self, fleet: Fleet, folder: Path, observing: Observing) -> None:
        self.fleet = fleet
        self.folder = folder
        self.observing = observing
        self.gpus = gpus_of(fleet, visible_gpus())
        self.places: list[ProcessLives] = []

    @property
    def nodes(self) -> list[NodeProcess]:
        """All processes, of all lives."""
        return [node for place in self.places for node in place.nodes]

    def run(self, texts: Sequence[Any]) -> tuple[Log, dict[int, list[int]]]:
        """Start all processes, let them begin at one time zero, and return their rows and texts.

        `texts`: the prompts of real targets, or the continuations of replayed ones.
        """
        addresses = self._start_drafters()
        if self.fleet.routed and (self.fleet.verifiers.kind != "replayed" or self._hit_targets()):
            addresses = self._start_router(addresses)
        targets = [self._start_targets(numbers, texts, addresses) for numbers in self._processes_of_targets()]
        for target in targets:
            self._ready(target)
        zero_s = now_s() + HEAD_START_S
        for place in self.places:
            place.node.send(zero_s)
            place.state = "serving"
        return Supervisor(self.places, self.fleet.faults, zero_s).run()

    def _start_drafters(self) -> dict[int, str]:
        """Start all drafters; return their addresses. The others load their models once the first is ready."""
        M, addresses = self.fleet.drafters.count, {}
        for numbers in ([0], range(1, M)) if M else ():
            started = {number: self._start_drafter(number) for number in numbers}
            for number, place in started.items():
                port, self.fleet = self._ready(place)
                place.life = msgspec.structs.replace(place.life, port=port)
                addresses[number] = f"{LOOPBACK}:{port}"
        return addresses

    def _start_drafter(self, number: int) -> ProcessLives:
        fleet, name = self.fleet, self.fleet.drafter_name(number)
        lock_file = self._lock_file(fleet.drafters.device)

        def start(life: Life) -> NodeProcess:
            measures = number == 0 and fleet.drafters.kind != "replayed"
            return drafter_process(fleet, number, lock_file, life, **self._options(name, measures))

        return self._begin(name, "replayed" if fleet.drafters.kind == "replayed" else "real", start, ends=False)

    def _start_router(self, addresses: dict[int, str]) -> dict[int, str]:
        """Start the router; return the address that targets connect to."""
        fleet = self.fleet
        sides = [(fleet.verifiers.model, "target")] if fleet.verifiers.kind == "real" else []
        sides += [(fleet.drafters.model, "drafter")] if fleet.drafters.kind == "model" else []
        vocabulary = max((int(read_config(folder_of(model, role)).vocab_size) for model, role in sides), default=0)

        def start(life: Life) -> NodeProcess:
            return NodeProcess("router", node_body, partial(RouterNode, fleet, addresses, vocabulary, life=life))

        port, _ = self._ready(self._begin(ROUTER, "real", start, ends=False))
        return {0: f"{LOOPBACK}:{port}"}

    def _start_targets(self, numbers: list[int], texts: Sequence[Any], addresses: dict[int, str]) -> ProcessLives:
        """Start a process of targets: of one if it is real."""
        fleet, first = self.fleet, numbers[0]
        station = verifier_name(first) if len(numbers) == 1 else ""
        if fleet.verifiers.kind == "replayed":
            name = "replayed targets" if len(numbers) > 1 else f"replayed target {first + 1}"
            make: Callable[..., Any] = partial(ReplayedFleet, fleet, addresses, numbers, texts)
        else:
            name, lock_file = f"target {first + 1}", self._lock_file(fleet.verifiers.device)
            make = partial(VerifierNode, fleet, first, texts, addresses, lock_file)
        measures = first == 0 and not fleet.drafters.count and fleet.verifiers.kind != "replayed"
        light = fleet.verifiers.kind == fleet.drafters.kind == "replayed"

        def start(life: Life) -> NodeProcess:
            options = self._options(station, measures)
            return NodeProcess(name, node_body, partial(make, life=life), light=light, **options)

        return self._begin(station, "replayed" if fleet.verifiers.kind == "replayed" else "real", start, ends=True)

    def _begin(self, station: str, origin: Origin, start: Callable[[Life], NodeProcess], ends: bool) -> ProcessLives:
        """Start the first process of a place."""
        place = ProcessLives(station, origin, start, ends, first_life(station, self.fleet.faults, self.folder))
        self.places.append(place)
        place.begin()
        return place

    def _ready(self, place: ProcessLives) -> Any:
        """Wait until a process is ready; return what it sends."""
        return place.node.receive([each.node for each in self.places])

    def _options(self, station: str, measures: bool) -> dict[str, Any]:
        return {"gpu": self.gpus.get(station, ""), **self.observing.of(measures)}

    def _lock_file(self, device: str) -> Path | None:
        """The file that stations of a time-sliced device lock around each step."""
        shared = self.fleet.devices.get(device)
        return self.folder / device if shared is not None and shared.sharing == "turns" else None

    def _hit_targets(self) -> list[int]:
        """Targets that a fault stops; each has a process of its own."""
        hit = {fault.node for fault in self.fleet.faults if isinstance(fault, NodeFault)}
        return [target for target in range(self.fleet.verifiers.count) if verifier_name(target) in hit]

    def _processes_of_targets(self) -> list[list[int]]:
        """Targets by process: replayed ones share one, unless a fault stops them."""
        every = range(self.fleet.verifiers.count)
        alone = self._hit_targets() if self.fleet.verifiers.kind == "replayed" else every
        others = [target for target in every if target not in alone]
        return [*([target] for target in alone), *([others] if others else [])]


def _texts(fleet: Fleet, continuations_folder: Path) -> Sequence[Any]:
    """Return what targets decode: prompts of real ones, continuations of replayed ones beside real drafters."""
    if fleet.verifiers.kind != "replayed":
        return prompts_of(fleet)
    return [] if fleet.drafters.kind == "replayed" else continuations_of(fleet, continuations_folder)


def _alone(name: str, whole: Callable[[Observed], Any], observing: Observing) -> tuple[Any, NodeProcess]:
    """Run all of a scenario in one process; return its result, and the process."""
    node = NodeProcess(name, whole_body, whole, **observing.of(measures=True))
    try:
        return node.receive(), node
    finally:
        node.end()


def _with_samples(served: EngineRun, nodes: Sequence[NodeProcess]) -> EngineRun:
    """Add the samples that the nodes took of their devices."""
    samples = tuple(sample for node in nodes for sample in node.samples)
    if not samples:
        return served
    header = msgspec.structs.replace(served.run.header, energy=curves_of(samples))
    run = msgspec.structs.replace(served.run, header=header)
    return msgspec.structs.replace(served, run=run, samples=samples)
