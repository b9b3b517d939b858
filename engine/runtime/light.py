"""Bodies of light processes: replayed stations, which need no torch and do not import it."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from engine.runtime.answers import Drawn
from engine.runtime.journal import FIRST, Life
from engine.runtime.launcher_pipe import SAMPLES, LauncherPipe
from engine.runtime.metering import Sampler, metered
from engine.runtime.node import Node
from engine.runtime.observer import Stations, Watch, observed
from engine.runtime.power import meter_of
from engine.runtime.replayed import ReplayedFleet
from engine.runtime.replayed_drafter import ReplayedDrafterNode
from engine.runtime.worker import Worker
from fleet.records.recorded import Log
from fleet.scenario.settled import Fleet
from fleet.stations.outcomes import Outcomes

PATIENCE_S = 60.0  # for nodes of one host to find each other


def drafter_body(pipe: LauncherPipe, fleet: Fleet, number: int = 0, life: Life = FIRST) -> Log:
    """Serve as replayed drafter `number` until told to stop."""
    node = ReplayedDrafterNode(fleet, port=life.port, number=number, life=life)
    node.open()
    pipe.send(("port", (node.port, fleet)))
    zero_s = pipe.recv()
    stop_on_message(pipe, node)
    with reported(pipe, fleet, node.stations, zero_s):
        return node.serve(zero_s)


def targets_body(
    pipe: LauncherPipe,
    fleet: Fleet,
    addresses: dict[int, str],
    numbers: Sequence[int] | None = None,
    life: Life = FIRST,
) -> Log:
    """Decode the requests of these replayed targets (all) with replayed drafters, or without any.

    Targets that were killed before do not wait for their drafters: they decode alone until they are welcomed.
    """
    targets = ReplayedFleet(fleet, partial(Drawn, Outcomes(fleet)), addresses, numbers, life=life)
    if not life.number:
        targets.wait_for_welcomes(PATIENCE_S)
    pipe.send(("ready", None))
    zero_s = pipe.recv()
    with reported(pipe, fleet, targets.stations, zero_s):
        return targets.serve(zero_s)


@contextmanager
def reported(
    pipe: LauncherPipe, fleet: Fleet, stations: Stations, zero_s: float, workers: Sequence[Worker] = ()
) -> Iterator[None]:
    """Tell the launcher twice a second what the stations of this process have done, if anybody watches.

    Where it is to measure, its device is sampled meanwhile, and right before each draft of `workers`.
    """
    meter = meter_of(pipe.power)[0] if pipe.power else None
    sampler = None if meter is None else Sampler(meter, zero_s)
    if sampler is not None:
        for worker in workers:
            worker.before = sampler.before(worker.recorded.station.name)
    watch: Watch = pipe.report if sampler is None else sampler.on_top_of(pipe.report)
    with observed(fleet, stations, zero_s, watch if pipe.watched else None), metered(sampler):
        yield
    if sampler is not None:
        pipe.send((SAMPLES, sampler.samples))


def stop_on_message(pipe: LauncherPipe, node: Node) -> None:
    """Stop a node when something more comes through the pipe."""

    def wait() -> None:
        pipe.recv()
        node.stop()

    threading.Thread(target=wait, daemon=True).start()
