"""Runs a scenario on this host's engine: starts its nodes as processes, which faults kill, and collects their logs."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import msgspec

from specfleet.engine.launch.bodies import node_body
from specfleet.engine.launch.placement import crowding, devices_of, gpus_of, has_meter, visible_gpus
from specfleet.engine.launch.places import Place, drafter_place, router_place, targets_place
from specfleet.engine.launch.processes import NodeProcess, end_all, in_process
from specfleet.engine.launch.runnable import check_can_run
from specfleet.engine.net.addresses import FILE, short_names
from specfleet.engine.net.clock import now_s
from specfleet.engine.node.build import check_models, with_positions
from specfleet.engine.node.node import Site
from specfleet.engine.node.observer import Report, Watch, watched
from specfleet.engine.node.prompts import prompts_of
from specfleet.engine.node.write_ahead_log import Life, Served, read_log
from specfleet.engine.replayed.continuations import continuations_of
from specfleet.fleet.policies.outcome import Token
from specfleet.fleet.records.power import DeviceCurve, curves_of
from specfleet.fleet.records.recorder import ReportedRows
from specfleet.fleet.records.run import Run, make_run
from specfleet.fleet.records.schema import SCHEMA, PowerSample, Row
from specfleet.fleet.scenario.faults import Change, Kill, Moment, NodeFault, moments
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
    - `watch`: is called with the progress of all nodes, twice a second and at the end.
    - `power`: whether to measure clock, power, load and energy of the models' devices.
    - `report`: is called with lines on crowded cores, on power without a meter, and on samples that a fault lost.

    Raises InputError for a scenario that the engine cannot run, NodeError if a process fails, NodeDiedError if it is
    killed.
    """
    fleet = resolve(scenario)
    check_can_run(fleet)
    check_models(fleet)
    fleet = with_positions(fleet)
    gpus = visible_gpus()
    crowded = crowding(fleet)
    if crowded:
        report(f"note: {crowded}")
    measured = power and has_meter(fleet, report)
    gpu_of = gpus_of(fleet, gpus)
    texts = texts_of(fleet, continuations_folder)
    with watched(watch) as take:
        launch = Launch(fleet, texts, gpu_of, take, measured, signals)
        served = launch.run(launch.waves())
    curves, samples = list[DeviceCurve](), list[PowerSample]()
    for gpu, place in launch.measuring.items():
        if measured and place.life.number:
            report(f"note: {place.name} was killed; its samples of power until then are lost")
        stations = [name for name in devices_of(fleet) if gpu_of.get(name, "") == gpu]
        curves += curves_of(place.node.samples, stations)
        samples += place.node.samples
    run = make_run(scenario, "engine", served.log, fleet, len(gpus), devices=tuple(curves))
    return EngineRun(run, served.outputs, served.signals, tuple(samples))


def texts_of(fleet: Fleet, continuations_folder: Path, targets: Sequence[int] | None = None) -> Sequence[Any]:
    """Return what targets decode: prompts of real ones, continuations of replayed ones beside real drafters.

    `targets`: whose requests have texts; all by default. Continuations are decoded in a process of their own, so that
    no model of theirs leaves memory of a device in use.
    """
    if fleet.verifiers.kind != "replayed":
        return prompts_of(fleet, targets)
    if fleet.drafters.kind == "replayed":
        return []
    return in_process("continuations", continuations_of, fleet, continuations_folder, targets)


@dataclass(eq=False)
class Launch:
    """The processes of a run on this host. A process that dies without a fault ends the run.

    - `texts`: the prompts of real targets, or the continuations of replayed ones.
    - `gpu_of`: the GPU of each station that has one of its own.
    - `watch`: is called with the reports of all nodes. `power`: whether devices are measured.
    - `measuring`: the process that measures each GPU, the first that uses it; "" is a host's only device.
    - `signals`: whether targets record those of drafted tokens.
    - `nodes`: all processes, of all lives.
    - `script`: what faults change, in order of time. `zero_s`: the run's time zero.
    """

    fleet: Fleet
    texts: Sequence[Any]
    gpu_of: Mapping[str, str]
    watch: Report | None
    power: bool
    signals: bool = False
    folder: Path = Path()  # of the run: sockets, locks of devices, and logs of processes that a fault kills
    addresses: dict[int, str] = field(default_factory=dict)  # that targets connect to
    places: list[Place] = field(default_factory=list)
    nodes: list[NodeProcess] = field(default_factory=list)
    measuring: dict[str, Place] = field(default_factory=dict)
    script: list[Moment] = field(default_factory=list)
    zero_s: float = 0.0

    def run(self, waves: Iterable[list[Place]]) -> Served:
        """Start all processes, wave by wave, let them begin at one time zero, and return what they have served."""
        with short_names():
            temporary = tempfile.TemporaryDirectory(prefix="specfleet-")
        with temporary as folder:
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
                self.zero_s, self.script = now_s() + HEAD_START_S, moments(self.fleet.faults)
                for place in self.places:
                    place.node.send(self.zero_s)
                    place.state = "serving"
                served = self._served()
            finally:
                end_all(self.nodes)
        return served

    def waves(self) -> Iterator[list[Place]]:
        """Yield the processes to start together, each time once all earlier ones are ready."""
        fleet, drafters, verifiers = self.fleet, self.fleet.drafters, self.fleet.verifiers
        lock_file = self._lock_file(drafters.device)
        places = [drafter_place(fleet, number, lock_file) for number in range(drafters.stations)]
        if places:
            yield places[:1]
            yield places[1:]  # they load their models once the first is ready
        if fleet.routed:
            yield [router_place(fleet, self.addresses)]
        hit = {fault.node for fault in fleet.faults if isinstance(fault, NodeFault)}
        every = range(verifiers.count)
        together = [number for number in every if verifiers.kind == "replayed" and verifier_name(number) not in hit]
        alone = [[number] for number in every if number not in together]
        lock_file = self._lock_file(verifiers.device)
        yield [
            targets_place(fleet, numbers, self.texts, self.addresses, lock_file, self.signals)
            for numbers in [*alone, together]
            if numbers
        ]

    def _start(self, place: Place) -> None:
        """Start the process of a place, in its next life."""
        gpu = self.gpu_of.get(place.station, "")
        options: dict[str, Any] = {"light": not self.fleet.models, "gpu": gpu}
        if place.station != ROUTER:
            measures = not place.replayed and self.measuring.setdefault(gpu, place) is place
            options |= {"watch": self.watch, "power": self.power and measures}
        site = Site(f"{FILE}{self.folder}/sockets/{place.station}", life=place.life)
        place.node = NodeProcess(place.name, node_body, partial(place.make, site=site), **options)
        self.nodes.append(place.node)

    def _ready(self, place: Place) -> None:
        """Wait until a process is ready; keep the address of a server, which its later lives have, too."""
        address = place.node.receive([started.node for started in self.places])
        if place.station == ROUTER:
            self.addresses = {0: address}
        elif not place.ends:
            self.addresses[len(self.addresses)] = address

    def _lock_file(self, device: str) -> Path | None:
        """The file that stations of a time-sliced device lock around each step."""
        shared = self.fleet.devices.get(device)
        return self.folder / device if shared is not None and shared.sharing == "turns" else None

    def _served(self) -> Served:
        """Wait until all requests are done; stop the others; return the rows and the texts of all lives."""
        while any(place.goes for place in self.places if place.ends):
            due_s = self.script[0].time_s + self.zero_s if self.script else None
            if due_s is not None and due_s <= now_s():
                moment = self.script.pop(0)
                self._change(moment.node, moment.change)
            else:
                self._wait(None if due_s is None else due_s - now_s())
        for place in reversed([place for place in self.places if not place.ends]):  # a router before its drafters
            self._stop(place)
        whole = Served([], {})
        for place in self.places:
            whole.add(place.recovered)
        return whole

    def _back_s(self, station: str) -> float:
        """Return when a killed process starts again, by the engine's clock; 0 if never."""
        starts_s = (moment.time_s for moment in self.script if (moment.node, moment.change) == (station, "start"))
        return next((time_s + self.zero_s for time_s in starts_s), 0.0)

    def _wait(self, wait_s: float | None) -> None:
        """Read messages of all processes, for at most that time."""
        by_pipe = {place.node.pipe: place for place in self.places if place.goes}
        for pipe in wait(list(by_pipe), wait_s):
            place = by_pipe[pipe]  # type: ignore[index]  # `wait` returns what it was given
            place.node.take()
            self._read(place)

    def _read(self, place: Place) -> None:
        place.node.check()
        if not place.node.kept:
            return
        said = place.node.receive()
        if place.state == "starting":  # a restarted one: all others began together
            place.node.send(self.zero_s)
            place.state = "serving"
        else:
            self._done(place, said)

    def _change(self, station: str, change: Change) -> None:
        """Apply a change of a fault, if the process is in a state for it; `_kill` restarts a killed one."""
        (place,) = [place for place in self.places if place.station == station]
        while place.goes and place.node.pipe.poll():  # it may have ended
            place.node.take()
            self._read(place)
        if change == "kill" and place.goes and place.life.back_s <= now_s():
            self._kill(place)
        elif change == "stall" and place.state == "serving":
            place.node.stall(stops=True)
            place.state = "stalled"
        elif change == "resume" and place.state == "stalled":
            place.node.stall(stops=False)
            place.state = "serving"

    def _kill(self, place: Place) -> None:
        time_s, life = now_s() - self.zero_s, place.life
        place.node.kill()
        assert life.wal is not None
        left = read_log(life.wal)
        time_s = max([time_s, *left.log[-len(SCHEMA) :][:1]])
        written = life.written + len(left.log) // len(SCHEMA)
        place.recovered.add(left)
        killed = Row(time_s, place.station, written, "killed", "replayed" if place.replayed else "real")
        place.recovered.log += killed
        if self.watch is not None:
            self.watch(ReportedRows(time_s, list(killed)))
        place.life = msgspec.structs.replace(
            life, number=life.number + 1, written=written + 1, finished=life.finished | left.outputs.keys(),
            wal=life.wal.with_name(f"{place.station}.{life.number + 2}.wal"), back_s=self._back_s(place.station),
        )  # fmt: skip
        place.state = "dead"
        if place.life.back_s:  # so that its model is loaded in time
            self._start(place)
            place.state = "starting"

    def _stop(self, place: Place) -> None:
        """End a process that serves others, and keep its rows, if it has any."""
        if place.state == "stalled":
            place.node.stall(stops=False)
        if place.state in ("serving", "stalled"):
            place.node.send("stop")
            self._done(place, place.node.receive())

    def _done(self, place: Place, result: Served) -> None:
        """Keep the rows and the texts of a life that ended by itself."""
        place.recovered.add(result)
        place.state = "done"
