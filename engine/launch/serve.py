"""Runs a scenario on this host's engine: starts its nodes as processes, and collects their logs."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from specfleet.engine.decoding.shared_tokenizer import check_shared_tokenizer
from specfleet.engine.launch.bodies import node_body
from specfleet.engine.launch.placement import crowding, devices_of, gpus_of, measured_device, visible_gpus
from specfleet.engine.launch.processes import NodeProcess, end_all, in_process
from specfleet.engine.launch.runnable import check_can_run
from specfleet.engine.launch.supervisor import Place, Supervisor, Watch, watched
from specfleet.engine.net.clock import now_s
from specfleet.engine.node.build import largest_vocabulary, state_numbers, with_positions
from specfleet.engine.node.node import LOOPBACK, Node, Site
from specfleet.engine.node.observer import Report
from specfleet.engine.node.prompts import prompts_of
from specfleet.engine.node.real import drafter_node, verifier_node
from specfleet.engine.node.router import router_node
from specfleet.engine.node.write_ahead_log import Life, Served
from specfleet.engine.replayed.continuations import continuations_of
from specfleet.engine.replayed.drafter import replayed_drafter_node
from specfleet.engine.replayed.targets import ReplayedFleet
from specfleet.fleet.acceptance.token import Token
from specfleet.fleet.records.power import DeviceCurve, curves_of
from specfleet.fleet.records.run import Run, make_run
from specfleet.fleet.records.schema import PowerSample
from specfleet.fleet.scenario.faults import Kill, NodeFault, moments
from specfleet.fleet.scenario.names import ROUTER, verifier_name
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Scenario

CONTINUATIONS = Path(tempfile.gettempdir()) / "specfleet-continuations"
HEAD_START_S = 0.05  # from sending time zero to time zero, so that every process has read it before


class EngineRun(msgspec.Struct, frozen=True):
    """A run on the engine.

    - `outputs`: new tokens of each request of a real target.
    - `signals`: of each request's drafted tokens, if they were recorded.
    - `samples`: of the devices' counters.
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

    - `signals`: whether to record those of drafted tokens, where targets draft on their own device.
    - `watch`: is called with the counters of all nodes, twice a second and at the end.
    - `power`: whether to measure clock, power, load and energy of the models' devices.
    - `report`: is called with lines on crowded cores, on power without a meter, and on samples that a fault lost.

    Raises InputError for a scenario that the engine cannot run, NodeError if a process fails, NodeDiedError if it is
    killed.
    """
    fleet = resolve(scenario)
    check_can_run(fleet)
    if fleet.drafters.count and fleet.drafters.kind == "model":
        check_shared_tokenizer(fleet.drafters.model, fleet.verifiers.model)
    fleet = with_positions(fleet)
    gpus = visible_gpus()
    crowded = crowding(fleet)
    if crowded:
        report(f"note: {crowded}")
    device = measured_device(fleet, report) if power else ""
    gpu_of = gpus_of(fleet, gpus)
    texts = _texts(fleet, continuations_folder)
    with watched(fleet, watch) as take:
        launch = Launch(fleet, texts, gpu_of, take, device, signals)
        served = launch.run(launch.waves())
    run = make_run(scenario, "engine", served.log, fleet, len(gpus))
    curves, samples = list[DeviceCurve](), list[PowerSample]()
    for gpu, place in launch.measuring.items():
        if device and place.life.number:
            report(f"note: {place.name} was killed; its samples of power until then are lost")
        stations = [name for name in devices_of(fleet) if gpu_of.get(name, "") == gpu]
        curves += curves_of(place.node.samples, stations)
        samples += place.node.samples
    if curves:
        run = msgspec.structs.replace(run, header=msgspec.structs.replace(run.header, devices=tuple(curves)))
    return EngineRun(run, served.outputs, served.signals, tuple(samples))


def _texts(fleet: Fleet, continuations_folder: Path) -> Sequence[Any]:
    """Return what targets decode: prompts of real ones, continuations of replayed ones beside real drafters.

    Continuations are decoded in a process of their own, so that their model leaves no memory of a device in use.
    """
    if fleet.verifiers.kind != "replayed":
        return prompts_of(fleet)
    if fleet.drafters.kind == "replayed":
        return []
    return in_process("continuations", continuations_of, fleet, continuations_folder)


def process_of_drafter(fleet: Fleet, number: int, lock_file: Path | None = None) -> tuple[str, Callable[..., Node]]:
    """Return the name of a drafter's process, and what makes its node at a `site`."""
    name = fleet.drafter_name(number)
    if fleet.drafters.kind == "replayed":
        return f"replayed {name}", partial(replayed_drafter_node, fleet, number)
    return name, partial(drafter_node, fleet, number, lock_file)


@dataclass(eq=False)
class Launch:
    """The processes of a run on this host.

    - `texts`: the prompts of real targets, or the continuations of replayed ones.
    - `gpu_of`: the GPU of each station that has one of its own.
    - `watch`: is called with the reports of all nodes. `power`: the kind of devices to measure; empty for none.
    - `measuring`: the process that measures each GPU, the first that uses it; "" is a host's only device.
    - `signals`: whether targets record those of drafted tokens.
    - `nodes`: all processes, of all lives.
    """

    fleet: Fleet
    texts: Sequence[Any]
    gpu_of: Mapping[str, str]
    watch: Report | None
    power: str
    signals: bool = False
    folder: Path = Path()  # of the run: locks of devices, and logs of processes that a fault kills
    addresses: dict[int, str] = field(default_factory=dict)  # that targets connect to
    places: list[Place] = field(default_factory=list)
    nodes: list[NodeProcess] = field(default_factory=list)
    measuring: dict[str, Place] = field(default_factory=dict)

    def run(self, waves: Iterable[list[Place]]) -> Served:
        """Start all processes, wave by wave, let them begin at one time zero, and return what they have served."""
        with tempfile.TemporaryDirectory(prefix="specfleet-") as folder:
            self.folder = Path(folder)
            try:
                for wave in waves:
                    self.places += wave
                    for place in wave:
                        if any(isinstance(fault, Kill) and fault.node == place.station for fault in self.fleet.faults):
                            place.life = Life(wal=self.folder / f"{place.station}.1.wal")
                        self._start(place)
                    for place in wave:
                        self._ready(place)
                zero_s = now_s() + HEAD_START_S
                for place in self.places:
                    place.node.send(zero_s)
                    place.state = "serving"
                served = Supervisor(self.places, self._start, moments(self.fleet.faults), zero_s).run()
            finally:
                end_all(self.nodes)
        return served

    def waves(self) -> Iterator[list[Place]]:
        """Yield the processes to start together, each time once all earlier ones are ready."""
        fleet, drafters, verifiers = self.fleet, self.fleet.drafters, self.fleet.verifiers
        lock_file, replayed = self._lock_file(drafters.device), drafters.kind == "replayed"
        places = [
            Place(fleet.drafter_name(number), *process_of_drafter(fleet, number, lock_file), replayed)
            for number in range(drafters.stations)
        ]
        if places:
            yield places[:1]
            yield places[1:]  # they load their models once the first is ready
        if fleet.routed:
            make = partial(
                router_node, fleet, self.addresses, largest_vocabulary(fleet), state_numbers=state_numbers(fleet)
            )
            yield [Place(ROUTER, "router", make)]
        hit = {fault.node for fault in fleet.faults if isinstance(fault, NodeFault)}
        every = range(verifiers.count)
        together = [number for number in every if verifiers.kind == "replayed" and verifier_name(number) not in hit]
        alone = [[number] for number in every if number not in together]
        yield [self._targets(numbers) for numbers in [*alone, together] if numbers]

    def _targets(self, numbers: list[int]) -> Place:
        """Plan a process of targets: of one if it is real."""
        fleet, number = self.fleet, numbers[0]
        station = verifier_name(number) if len(numbers) == 1 else ""
        if fleet.verifiers.kind == "replayed":
            name = "replayed targets" if len(numbers) > 1 else f"replayed target {number + 1}"
            make = partial(ReplayedFleet, fleet, self.addresses, numbers, self.texts)
            return Place(station, name, make, replayed=True, ends=True)
        lock_file = self._lock_file(fleet.verifiers.device)
        real = partial(verifier_node, fleet, number, self.texts, self.addresses, lock_file, signals=self.signals)
        return Place(station, f"target {number + 1}", real, ends=True)

    def _start(self, place: Place) -> None:
        """Start the process of a place, in its next life."""
        gpu = self.gpu_of.get(place.station, "")
        options: dict[str, Any] = {"light": not self.fleet.models, "gpu": gpu}
        if place.station != ROUTER:
            measures = not place.replayed and self.measuring.setdefault(gpu, place) is place
            place.watch = self.watch
            options |= {"watch": place.report if self.watch else None, "power": self.power if measures else ""}
        place.node = NodeProcess(place.name, node_body, partial(place.make, site=Site(life=place.life)), **options)
        self.nodes.append(place.node)

    def _ready(self, place: Place) -> None:
        """Wait until a process is ready; keep the address of a server, which its later lives keep, too."""
        port = place.node.receive([each.node for each in self.places])
        place.life = msgspec.structs.replace(place.life, port=port)
        if place.station == ROUTER:
            self.addresses = {0: f"{LOOPBACK}:{port}"}
        elif not place.ends:
            self.addresses[len(self.addresses)] = f"{LOOPBACK}:{port}"

    def _lock_file(self, device: str) -> Path | None:
        """The file that stations of a time-sliced device lock around each step."""
        shared = self.fleet.devices.get(device)
        return self.folder / device if shared is not None and shared.sharing == "turns" else None
