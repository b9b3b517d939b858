"""One reading of a device's counters, whatever meter it comes from."""

from typing import NamedTuple

UNKNOWN = float("nan")


class Reading(NamedTuple):
    """Counters of a device now: `energy_j` only grows, `utilisation` is a share of time. Missing values are NaN."""

    device: str
    graphics_clock_mhz: float = UNKNOWN
    power_w: float = UNKNOWN
    memory_bytes: float = UNKNOWN
    energy_j: float = UNKNOWN
    utilisation: float = UNKNOWN
