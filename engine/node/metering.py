"""Samples of a run's devices: twice a second by a thread, and right before each draft by its worker."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.net.clock import now_s
from engine.node.observer import LOOK_S
from engine.node.power import Meter
from fleet.records.recorder import ReportedRows
from fleet.records.samples import PowerSample
from fleet.times.step import Step


class PowerSampler:
    """Takes samples with a meter, from any thread; their times count from `zero_s`."""

    def __init__(self, meter: Meter, zero_s: float) -> None:
        self.meter = meter
        self.zero_s = zero_s
        self.samples: list[PowerSample] = []
        self.newest: tuple[PowerSample, ...] = ()

    def take(self, station: str = "", step: int = 0) -> None:
        """Take a sample of each device; for a step of a station that is about to begin, or between steps."""
        time_s = now_s() - self.zero_s
        self.newest = tuple(PowerSample(time_s, station, step, *reading) for reading in self.meter.read())
        self.samples += self.newest

    def with_samples(self, report: Callable[[ReportedRows], bool]) -> Callable[[ReportedRows], bool]:
        """Return a function that adds the newest samples to each report."""
        return lambda one: report(one._replace(devices=self.newest))

    def before(self, station: str) -> Callable[[Step], None]:
        """Return a function that takes a sample before each draft of a station, as in StarSD's appendix F."""
        return lambda step: self.take(station, step.number) if step.kind == "draft" else None


@contextmanager
def metered(sampler: PowerSampler | None) -> Iterator[None]:
    """Take samples twice a second, at the beginning and at the end; none without a sampler."""
    if sampler is None:
        yield
        return
    ending = threading.Event()

    def look() -> None:
        while not ending.wait(LOOK_S):
            sampler.take()

    thread = threading.Thread(target=look, name="meter", daemon=True)
    sampler.take()
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()
        sampler.take()
