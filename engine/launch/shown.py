"""Shows a node that was started by hand: its status at its port, its progress, and what its device draws."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from engine.launch.status_cache import StatusCache
from engine.launch.watched import Watch, Watched
from engine.node.metering import PowerSampler, metered
from engine.node.node import Node
from engine.node.observer import observed
from engine.node.power import Device, meter_of
from engine.replayed.targets import ReplayedFleet
from fleet.records.power import curves_of, energy_line, write_samples


class ShowOptions(msgspec.Struct, frozen=True):
    """How a node is shown. `watch` is called with its counters; `power` is a file for samples of its device."""

    watch: Watch | None = None
    power: Path | None = None


@contextmanager
def on_show(
    node: Node | ReplayedFleet, zero_s: float, options: ShowOptions, device: Device | None, say: Callable[[str], None]
) -> Iterator[None]:
    """Show a node while it serves. `device`: the device of its model; None for a replayed one."""
    name = "".join(worker.recorded.station.name for worker in node.workers)
    watched = Watched(node.fleet, options.watch)
    if node.server is not None:
        node.server.status = StatusCache(watched.counters, name).page
    sampler = _sampler(options, device, zero_s, say)
    if sampler is not None:
        for worker in node.workers:
            worker.before = sampler.before(name)
    report = watched.take if sampler is None else sampler.with_samples(watched.take)
    with observed(node.stations, zero_s, report), metered(sampler):
        yield
    watched.end()
    if sampler is not None and options.power is not None:
        write_samples(sampler.samples, options.power)
        curves = curves_of(sampler.samples)
        committed = watched.counters.committed
        say(energy_line(curves, committed) if curves else "its device tells neither energy nor power")
        say(f"samples of its device: {options.power}")


def _sampler(
    options: ShowOptions, device: Device | None, zero_s: float, say: Callable[[str], None]
) -> PowerSampler | None:
    """Return the sampler for `power`, or None with the reason in one line."""
    if options.power is None:
        return None
    if device is None:
        say("replayed, on no device: energy was not measured")
        return None
    meter, reason = meter_of(device)
    if meter is None:
        say(reason)
        return None
    return PowerSampler(meter, zero_s)
