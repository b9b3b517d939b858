"""One sample of a measured device."""

from typing import NamedTuple

UNKNOWN = float("nan")


class PowerSample(NamedTuple):
    """One sample of a device; NaN where the device has no reading.

    Keys:
        time_s: Time since the run began.
        station: The station whose step follows; empty for a sample between steps.
        step (number): Number of that step, as in the records; 0 between steps.
        device: Name of the device, with the source of its readings.
        graphics_clock_mhz: Clock of its graphics units.
        power_w: Present power (NVML), or mean power since the previous sample (RAPL).
        memory_bytes: Device memory in use, by all processes.
        energy_j: Its energy counter, which starts anywhere and only grows.
    """

    time_s: float
    station: str
    step: int
    device: str
    graphics_clock_mhz: float = UNKNOWN
    power_w: float = UNKNOWN
    memory_bytes: float = UNKNOWN
    energy_j: float = UNKNOWN
