"""What a node that was started by hand lets be seen: its status at its door, its progress, what its device draws."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from engine.net.server import Door
from engine.node.board import Board
from engine.node.metering import Sampler, metered
from engine.node.node import Node
from engine.node.observer import Stations, Watch, observed
from engine.node.power import Device, meter_of
from engine.replayed.targets import ReplayedFleet
from fleet.records.counts import Counts
from fleet.records.power import curves_of, energy_line, write_samples
from fleet.scenario.settled import Fleet


class Asked(msgspec.Struct, frozen=True):
    """What whoever starts a node wants to see of it. `watch`: is told its counts; `power`: a file for samples of it."""

    watch: Watch | None = None
    power: Path | None = None


@contextmanager
def on_show(
    node: Node | ReplayedFleet,
    fleet: Fleet,
    zero_s: float,
    asked: Asked,
    device: Device | None,
    say: Callable[[str], None],
) -> Iterator[None]:
    """Show a node while it serves. `device`: that its model runs on; None for a replayed one."""
    name = "".join(worker.recorded.station.name for worker in node.workers)
    sampler = _sampler(asked, device, zero_s, say)
    if sampler is not None:
        for worker in node.workers:
            worker.before = sampler.before(name)
        if asked.watch is not None:
            asked = Asked(sampler.on_top_of(asked.watch), asked.power)
    with seen(fleet, node.stations, zero_s, asked, node.door, name) as newest, metered(sampler):
        yield
    if sampler is not None and asked.power is not None:
        write_samples(sampler.samples, asked.power)
        curves = curves_of(sampler.samples)
        committed = newest().committed
        say(energy_line(curves, committed) if curves else "its device tells neither energy nor power")
        say(f"samples of its device: {asked.power}")


@contextmanager
def seen(
    fleet: Fleet, stations: Stations, zero_s: float, asked: Asked, door: Door | None = None, name: str = ""
) -> Iterator[Callable[[], Counts]]:
    """Tell whoever watches, and whoever asks at the door, what stations have done; yield what tells it last."""
    board, newest = Board(fleet, name), Counts(0.0)

    def take(counts: Counts) -> None:
        nonlocal newest
        newest = counts
        board.put(counts)
        if asked.watch is not None:
            asked.watch(counts)

    if door is not None:
        door.board = board.page
    with observed(fleet, stations, zero_s, take, recent=door is not None):
        yield lambda: newest


def _sampler(asked: Asked, device: Device | None, zero_s: float, say: Callable[[str], None]) -> Sampler | None:
    """Return what measures, if it was asked for; say in one line why nothing does, where nothing can."""
    if asked.power is None:
        return None
    if device is None:
        say("replayed, on no device: energy was not measured")
        return None
    meter, reason = meter_of(device)
    if meter is None:
        say(reason)
        return None
    return Sampler(meter, zero_s)
