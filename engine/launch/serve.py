"""Runs a scenario on this host's engine: starts its nodes as processes, and collects their logs."""

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch

from engine.decoding.shared_tokenizer import check_shared_tokenizer
from engine.launch.bodies import node_body, whole_body
from engine.launch.placement import crowding, gpus_of, measured_device, visible_gpus
from engine.launch.processes import NodeProcess, end_all
from engine.launch.runnable import check_can_run
from engine.launch.supervisor import ProcessLives, Supervisor
from engine.launch.watched import Watch, Watched
from engine.net.clock import now_s
from engine.node.batch import serve_batch
from engine.node.capacity import account_line, accounts_of, check_room, largest_vocabulary, with_positions
from engine.node.colocated import serve_colocated
from engine.node.drafter import drafter_node
from engine.node.node import LOOPBACK, Node, Served, Site
from engine.node.observer import Observed, Report
from engine.node.prompts import prompts_of
from engine.node.router import router_node
from engine.node.verifier import verifier_node
from engine.node.write_ahead_log import Life, Recovered, first_life
from engine.replayed.continuations import texts_of
from engine.replayed.drafter import replayed_drafter_node
from engine.replayed.targets import ReplayedFleet
from fleet.acceptance.token import Token
from fleet.records.power import curves_of
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
    power: bool = False,
    report: Callable[[str], None] = lambda _line: None,
) -> EngineRun:
    """Run the scenario on this host and return its records.

    - `signals`: whether to record those of a batch's drafted tokens.
    - `watch`: is called with the counters of all nodes, twice a second and at the end.
    - `power`: whether to measure the clock, power and energy of the models' device.
    - `report`: is called before the run with lines on crowded cores, memory of caches, and power without a meter.

    Raises InputError for a scenario that the engine cannot run, NodeError if a process fails, NodeDiedError if it is
    killed.
    """
    fleet = with_positions(resolve(scenario))
    check_can_run(fleet)
    if fleet.drafters.count and fleet.drafters.kind == "model":
        check_shared_tokenizer(fleet.drafters.model, fleet.verifiers.model)
    accounts = accounts_of(fleet)
    if fleet.batch is not None:
        check_room(fleet, accounts, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    crowded = crowding(fleet)
    if crowded:
        report(f"note: {crowded}")
    for account in accounts:
        report(f"cache of {account_line(account)}")
    device = measured_device(fleet, report) if power else ""
    watched = None if watch is None else Watched(fleet, watch)
    take = None if watched is None else watched.take
    shared = fleet.devices.get(fleet.verifiers.device)
    gpus = 0
    if fleet.batch is not None:
        served, nodes = _alone("batch", partial(serve_batch, fleet, prompts_of(fleet), signals), take, device)
    elif shared is not None and shared.sharing == "one-process":
        served, nodes = _alone("co-located", partial(serve_colocated, fleet, prompts_of(fleet)), take, device)
    else:
        with tempfile.TemporaryDirectory(prefix="specfleet-") as folder:
            launch = Launch(fleet, Path(folder), take, device)
            try:
                left = launch.run(texts_of(fleet, continuations_folder))
            finally:
                end_all(launch.nodes)
        served, nodes, gpus = Served(left.log, left.outputs, launch.fleet), launch.nodes, len(visible_gpus())
    if watched is not None:
        watched.end()
    run = make_run(scenario, "engine", served.log, served.fleet, gpus)
    samples = tuple(sample for node in nodes for sample in node.samples)
    if samples:
        run = msgspec.structs.replace(run, header=msgspec.structs.replace(run.header, energy=curves_of(samples)))
    return EngineRun(run, served.outputs, served.signals, samples)


def _alone(
    name: str, whole: Callable[[Observed], Served], watch: Report | None, power: str
) -> tuple[Served, list[NodeProcess]]:
    """Run all of a scenario in one process; return what that has served, and the process."""
    node = NodeProcess(name, whole_body, whole, watch=watch, power=power)
    try:
        return node.receive(), [node]
    finally:
        node.end()


def process_of_drafter(fleet: Fleet, number: int, lock_file: Path | None = None) -> tuple[str, Callable[..., Node]]:
    """Return the name of a drafter's process, and what makes its node at a `site`."""
    name = fleet.drafter_name(number)
    if fleet.drafters.kind == "replayed":
        return f"replayed {name}", partial(replayed_drafter_node, fleet, number)
    return name, partial(drafter_node, fleet, number, lock_file)


class Launch:
    """The processes of a run on this host.

    - `fleet`: with the admission of its first drafter, once that has started.
    - `folder`: files of the run: locks of devices, and logs of processes that a fault kills.
    - `watch`: is called with the reports of all nodes. `power`: the measured device.
    """

    def __init__(self, fleet: Fleet, folder: Path, watch: Report | None, power: str) -> None:
        self.fleet = fleet
        self.folder = folder
        self.watch = watch
        self.power = power
        self.gpus = gpus_of(fleet, visible_gpus())
        self.places: list[ProcessLives] = []

    @property
    def nodes(self) -> list[NodeProcess]:
        """All processes, of all lives."""
        return [node for place in self.places for node in place.nodes]

    def run(self, texts: Sequence[Any]) -> Recovered:
        """Start all processes, let them begin at one time zero, and return their rows and texts.

        `texts`: the prompts of real targets, or the continuations of replayed ones.
        """
        addresses = self._start_drafters()
        fleet = self.fleet
        real = fleet.verifiers.kind != "replayed"
        hit = {fault.node for fault in fleet.faults if isinstance(fault, NodeFault)}
        every = range(fleet.verifiers.count)
        alone = [target for target in every if real or verifier_name(target) in hit]
        if fleet.routed and alone:
            router = partial(router_node, fleet, addresses, largest_vocabulary(fleet))
            addresses = {0: self._address(self._begin(ROUTER, "router", router))}
        others = [] if real else [target for target in every if target not in alone]
        for numbers in [*([target] for target in alone), *([others] if others else [])]:
            self._start_targets(numbers, texts, addresses)
        for place in self.places:
            if place.ends:
                self._ready(place)
        zero_s = now_s() + HEAD_START_S
        for place in self.places:
            place.node.send(zero_s)
            place.state = "serving"
        return Supervisor(self.places, fleet.faults, zero_s).run()

    def _start_drafters(self) -> dict[int, str]:
        """Start all drafters; return their addresses. The others load their models once the first is ready."""
        M, addresses = self.fleet.drafters.count, {}
        for numbers in ([0], range(1, M)) if M else ():
            started = {number: self._start_drafter(number) for number in numbers}
            for number, place in started.items():
                addresses[number] = self._address(place)
        return addresses

    def _start_drafter(self, number: int) -> ProcessLives:
        fleet, replayed = self.fleet, self.fleet.drafters.kind == "replayed"
        name, make = process_of_drafter(fleet, number, self._lock_file(fleet.drafters.device))
        return self._begin(fleet.drafter_name(number), name, make, replayed, replayed, number == 0)

    def _start_targets(self, numbers: list[int], texts: Sequence[Any], addresses: dict[int, str]) -> None:
        """Start a process of targets: of one if it is real."""
        fleet, first = self.fleet, numbers[0]
        station = verifier_name(first) if len(numbers) == 1 else ""
        replayed = fleet.verifiers.kind == "replayed"
        if replayed:
            name = "replayed targets" if len(numbers) > 1 else f"replayed target {first + 1}"
            make: Callable[..., Any] = partial(ReplayedFleet, fleet, addresses, numbers, texts)
        else:
            name, lock_file = f"target {first + 1}", self._lock_file(fleet.verifiers.device)
            make = partial(verifier_node, fleet, first, texts, addresses, lock_file)
        light = replayed and fleet.drafters.kind == "replayed"
        self._begin(station, name, make, replayed, light, first == 0 and not fleet.drafters.count, ends=True)

    def _begin(
        self,
        station: str,
        name: str,
        make: Callable[..., Any],
        replayed: bool = False,
        light: bool = False,
        first: bool = False,
        ends: bool = False,
    ) -> ProcessLives:
        """Start the first process of a place, with the node that `make` returns.

        `first`: whether it measures the device of its model; `replayed`, `light`, `ends`: see `ProcessLives` and
        `NodeProcess`.
        """
        options: dict[str, Any] = {"light": light, "gpu": self.gpus.get(station, "")}
        if station != ROUTER:
            options |= {"watch": self.watch, "power": self.power if first and not replayed else ""}

        def start(life: Life) -> NodeProcess:
            return NodeProcess(name, node_body, partial(make, site=Site(life=life)), **options)

        life = first_life(station, self.fleet.faults, self.folder)
        place = ProcessLives(station, "replayed" if replayed else "real", start, ends, life, [start(life)])
        self.places.append(place)
        return place

    def _address(self, place: ProcessLives) -> str:
        """Wait until the process of a server is ready; return its address, which its later lives keep."""
        port, fleet = self._ready(place)
        if place.station != ROUTER:
            self.fleet = fleet
        place.life = msgspec.structs.replace(place.life, port=port)
        return f"{LOOPBACK}:{port}"

    def _ready(self, place: ProcessLives) -> Any:
        """Wait until a process is ready; return what it sends."""
        return place.node.receive([each.node for each in self.places])

    def _lock_file(self, device: str) -> Path | None:
        """The file that stations of a time-sliced device lock around each step."""
        shared = self.fleet.devices.get(device)
        return self.folder / device if shared is not None and shared.sharing == "turns" else None
