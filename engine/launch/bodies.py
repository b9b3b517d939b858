"""What the processes of a run do. Without torch: processes of replayed stations do not import it."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from engine.launch.launcher_pipe import SAMPLES, LauncherPipe
from engine.node.metering import PowerSampler, metered
from engine.node.node import Node
from engine.node.observer import Observed, Stations, observed
from engine.node.power import meter_of
from engine.node.worker import Worker
from engine.replayed.targets import ReplayedFleet
from fleet.records.recorder import Log

PATIENCE_S = 60.0  # for nodes of one host to connect


def node_body(pipe: LauncherPipe, make: Callable[[], Node | ReplayedFleet]) -> tuple[Log, dict[int, list[int]]]:
    """Make a node and serve; return its log, and the new tokens of each request.

    It sends (port, fleet) when it is connected, and receives the run's time zero. A node that serves others ends when
    it receives anything more. A process that replaces a killed one does not wait for its drafters.
    """
    node = make()
    node.open()
    if not node.life.number:
        node.wait_for_welcomes(PATIENCE_S)
    pipe.send(("ready", (node.port, node.fleet)))
    zero_s = pipe.recv()
    if not node.ends:
        _stop_on_message(pipe, node)
    with reported(pipe, node.stations, zero_s, node.workers):
        log = node.serve(zero_s)
    return list(log), node.outputs


def whole_body(pipe: LauncherPipe, serve: Callable[[Observed], Any]) -> Any:
    """Serve all stations of a run in this process; return what `serve` returns."""
    return serve(partial(reported, pipe))


@contextmanager
def reported(pipe: LauncherPipe, stations: Stations, zero_s: float, workers: Sequence[Worker]) -> Iterator[None]:
    """Report the new rows of these stations to the launcher twice a second, if it watches.

    If this process measures power, its device is sampled too, and right before each draft of `workers`.
    """
    meter = meter_of(pipe.power)[0] if pipe.power else None
    sampler = None if meter is None else PowerSampler(meter, zero_s)
    if sampler is not None:
        for worker in workers:
            worker.before = sampler.before(worker.recorded.station.name)
    report = pipe.report if sampler is None else sampler.with_samples(pipe.report)
    with observed(stations, zero_s, report if pipe.watched else None), metered(sampler):
        yield
    if sampler is not None:
        pipe.send((SAMPLES, sampler.samples))


def _stop_on_message(pipe: LauncherPipe, node: Node | ReplayedFleet) -> None:
    def wait() -> None:
        pipe.recv()
        node.stop()

    threading.Thread(target=wait, daemon=True).start()
