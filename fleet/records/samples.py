"""One look at a device that is measured."""

from typing import NamedTuple

UNKNOWN = float("nan")


class PowerSample(NamedTuple):
    """One look at a device. NaN stands for what it does not tell.

    Keys:
        time_s: When, since the run began.
        station: For whose step it was taken, right before it; empty for one between steps.
        step (number): Number of that step, as in the records; 0 between steps.
        device: Name of the device, with what told of it.
        graphics_clock_mhz: Clock of its graphics units just then.
        power_w: What it draws just then (NVML); or drew since the sample before (RAPL).
        memory_bytes: Memory of the device that is in use, whoever uses it.
        energy_j: Its counter of energy, which begins anywhere and only grows.
    """

    time_s: float
    station: str
    step: int
    device: str
    graphics_clock_mhz: float = UNKNOWN
    power_w: float = UNKNOWN
    memory_bytes: float = UNKNOWN
    energy_j: float = UNKNOWN
