"""Measurements of a calibration beside a profile's numbers, row by row, for figures and reproductions."""

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from fleet.errors import InputError
from fleet.inputs.strict import convert
from fleet.times.profile import HardwareProfile
from fleet.times.step_time import Seconds

Duration = Annotated[float, Meta(gt=0, le=1e9)]  # seconds
R = TypeVar("R", bound=msgspec.Struct)


class DraftAfterIdle(msgspec.Struct, frozen=True):
    """Draft times after an idle gap: mean, and the tenth and ninetieth percentile, in seconds."""

    gap_s: Seconds
    mean_s: Duration
    p10_s: Duration
    p90_s: Duration


class AfterWarmUp(msgspec.Struct, frozen=True):
    """Draft times after warm-up tokens; seconds as in `DraftAfterIdle`."""

    warm_tokens: Annotated[int, Meta(ge=0)]
    mean_s: Duration
    p10_s: Duration
    p90_s: Duration


class FittedStep(msgspec.Struct, frozen=True):
    """A point of a step's grid: its tenth percentile, median and ninetieth percentile, and the fit, in seconds."""

    quantiles_s: tuple[Duration, Duration, Duration]
    fitted_s: Seconds
    held_out: bool

    def __post_init__(self) -> None:
        if list(self.quantiles_s) != sorted(self.quantiles_s):
            raise ValueError("quantiles_s must rise")


class _Rows(msgspec.Struct, frozen=True):
    idle: Annotated[list[DraftAfterIdle], Meta(min_length=1)] | None = None
    warm_up: Annotated[list[AfterWarmUp], Meta(min_length=1)] | None = None
    draft: Annotated[list[FittedStep], Meta(min_length=1)] | None = None
    verify: Annotated[list[FittedStep], Meta(min_length=1)] | None = None


def after_idle(profile: HardwareProfile) -> list[DraftAfterIdle]:
    """Return the draft times after idle gaps; InputError if the profile has none."""
    return _found(profile, "idle", _rows(profile, "idle").idle)


def after_warm_up(profile: HardwareProfile) -> list[AfterWarmUp]:
    """Return the draft times after warm-up tokens; InputError if the profile has none."""
    return _found(profile, "warm_up", _rows(profile, "warm_up").warm_up)


def fitted_steps(profile: HardwareProfile) -> dict[str, list[FittedStep]]:
    """Return the grids of draft and verification; InputError if the profile lacks one."""
    return {
        "draft": _found(profile, "draft", _rows(profile, "draft").draft),
        "verify": _found(profile, "verify", _rows(profile, "verify").verify),
    }


def _rows(profile: HardwareProfile, name: str) -> _Rows:
    rows = {name: profile.measured[name]} if name in profile.measured else {}
    return convert(rows, _Rows, f"profile {profile.name}: measured")


def _found(profile: HardwareProfile, name: str, rows: list[R] | None) -> list[R]:
    if rows is None:
        raise InputError(f"profile {profile.name}: holds no measurements of {name!r}; calibrate one on this host")
    return rows
