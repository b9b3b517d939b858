"""Measurements of a calibration beside a profile's numbers, row by row, for figures and reproductions."""

from typing import Annotated

import msgspec
from msgspec import Meta

from fleet.errors import InputError
from fleet.inputs.strict import convert
from fleet.times.profile import HardwareProfile
from fleet.times.step_time import Seconds

Duration = Annotated[float, Meta(gt=0, le=1e9)]  # seconds


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Draft times: mean, and the tenth and ninetieth percentile, in seconds."""

    mean_s: Duration
    p10_s: Duration
    p90_s: Duration


class DraftAfterIdle(Spread, frozen=True, kw_only=True):
    """Draft times after an idle gap."""

    gap_s: Seconds


class AfterWarmUp(Spread, frozen=True, kw_only=True):
    """Draft times after warm-up tokens."""

    warm_tokens: Annotated[int, Meta(ge=0)]


class FittedStep(msgspec.Struct, frozen=True):
    """A point of a step's grid: its tenth percentile, median and ninetieth percentile, and the fit, in seconds."""

    quantiles_s: tuple[Duration, Duration, Duration]
    fitted_s: Seconds
    held_out: bool

    def __post_init__(self) -> None:
        if list(self.quantiles_s) != sorted(self.quantiles_s):
            raise ValueError("quantiles_s must rise")


class Measurements(msgspec.Struct, frozen=True):
    """The rows of a calibration, each list None if it was not asked for."""

    idle: Annotated[list[DraftAfterIdle], Meta(min_length=1)] | None = None
    warm_up: Annotated[list[AfterWarmUp], Meta(min_length=1)] | None = None
    draft: Annotated[list[FittedStep], Meta(min_length=1)] | None = None
    verify: Annotated[list[FittedStep], Meta(min_length=1)] | None = None


def measurements(profile: HardwareProfile, *names: str) -> Measurements:
    """Return the named measurements of a profile; InputError if it lacks one."""
    for name in names:
        if profile.measured.get(name) is None:
            raise InputError(f"profile {profile.name}: holds no measurements of {name!r}; calibrate one on this host")
    return convert({name: profile.measured[name] for name in names}, Measurements, f"profile {profile.name}: measured")
