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


class Measurements(msgspec.Struct, frozen=True):
    """The rows of a calibration."""

    idle: Annotated[list[DraftAfterIdle], Meta(min_length=1)]
    warm_up: Annotated[list[AfterWarmUp], Meta(min_length=1)]


def measurements(profile: HardwareProfile) -> Measurements:
    """Return the measured draft times of a profile; InputError if it lacks them."""
    rows = {name: profile.measured.get(name) for name in Measurements.__struct_fields__}
    for name, own in rows.items():
        if own is None:
            raise InputError(f"profile {profile.name}: holds no measurements of {name!r}; calibrate one on this host")
    return convert(rows, Measurements, f"profile {profile.name}: measured")
