"""Counters of a GPU: by NVML, or by files of Linux below /sys for a Jetson's. Missing values are NaN. Without torch."""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import isnan
from pathlib import Path
from typing import Any

from specfleet.fleet.records.schema import UNKNOWN, PowerSample

SYS = Path("/sys")
GPU = re.compile(r"\d+\.(gpu|ga10b|gv11b|gp10b)")  # Orin (JetPack 6, 5), Xavier, TX2
WHOLE = ("VDD_IN", "POM_5V_IN")  # rails that feed all others
COUNTERS = {
    "graphics_clock_mhz": "clock", "power_w": "power", "memory_bytes": "memory", "utilisation": "utilisation",
}  # fmt: skip


class TegraMeter:
    """The integrated GPU of a Jetson; its power is that of the whole module. OSError if this host is none.

    A GPU that sleeps has no counters for that time.
    """

    def __init__(self, folder: Path = SYS) -> None:
        gpus = [path for path in sorted(folder.glob("class/devfreq/*")) if GPU.fullmatch(path.name)]
        if not gpus:
            raise FileNotFoundError(folder / "class/devfreq")
        self.gpu, rails = gpus[0], rails_of(folder)
        self.rails = [rails[name] for name in WHOLE if name in rails][:1] or list(rails.values())
        self.device = f"Jetson {self.gpu.name} (tegra)"

    def read(self) -> PowerSample:
        """Return its current reading, from any thread."""
        watts = known(lambda: sum(number_in(mv) * number_in(ma) for mv, ma in self.rails) / 1e6)
        return PowerSample(
            device=self.device,
            graphics_clock_mhz=known(lambda: number_in(self.gpu / "cur_freq") / 1e6),
            power_w=watts if self.rails else UNKNOWN,
            utilisation=known(lambda: number_in(self.gpu / "device" / "load") / 1000),
        )


def rails_of(folder: Path) -> dict[str, tuple[Path, Path]]:
    """Return the files of each measured rail's voltage (mV) and current (mA), by its label.

    An INA3221 has three channels; further files are sums of them. Rails labelled NC are not connected.
    """
    rails = {}
    for label in sorted(folder.glob("bus/i2c/drivers/ina3221*/*/hwmon/hwmon*/in[123]_label")):
        name, channel = label.read_text().strip(), label.name[2]
        if name != "NC":
            rails[name] = label.with_name(f"in{channel}_input"), label.with_name(f"curr{channel}_input")
    return rails


def number_in(path: Path) -> float:
    """Return the number that a file holds."""
    return float(path.read_text())


def known(read: Callable[[], float], *errors: type[Exception]) -> float:
    """Return what `read` returns; NaN where it cannot be read: a file, or what raises one of these errors."""
    try:
        return float(read())
    except (OSError, ValueError, *errors):
        return UNKNOWN


class NvmlMeter:
    """The GPU that torch uses first, with its number if the environment chooses it.

    `nvml`: the module pynvml; it raises its NVMLError without such a GPU.
    """

    def __init__(self, nvml: Any, environment: Mapping[str, str] = os.environ) -> None:
        self.nvml = nvml
        nvml.nvmlInit()
        chosen = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
        visible = chosen or "0"
        if visible.isdigit():
            self.gpu = nvml.nvmlDeviceGetHandleByIndex(int(visible))
        else:
            self.gpu = nvml.nvmlDeviceGetHandleByUUID(visible)
        name = nvml.nvmlDeviceGetName(self.gpu)
        name = name.decode() if isinstance(name, bytes) else name
        self.device = f"{name}{f' {chosen}' if chosen else ''} (NVML)"

    def read(self) -> PowerSample:
        """Return its current reading, from any thread; the driver decides how long it takes."""
        nvml, missing = self.nvml, self.nvml.NVMLError  # of a reading that the device does not support
        return PowerSample(
            device=self.device,
            graphics_clock_mhz=known(lambda: nvml.nvmlDeviceGetClockInfo(self.gpu, nvml.NVML_CLOCK_GRAPHICS), missing),
            power_w=known(lambda: nvml.nvmlDeviceGetPowerUsage(self.gpu) / 1000, missing),
            memory_bytes=known(lambda: nvml.nvmlDeviceGetMemoryInfo(self.gpu).used, missing),
            energy_j=known(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(self.gpu) / 1000, missing),
            utilisation=known(lambda: nvml.nvmlDeviceGetUtilizationRates(self.gpu).gpu / 100, missing),
        )


Meter = NvmlMeter | TegraMeter


def find_meter(sys: Path = SYS, environment: Mapping[str, str] = os.environ) -> tuple[Meter | None, str]:
    """Return the meter of the first GPU; or None, with a line that says why nothing is measured.

    A Jetson's NVML, if it has one, has neither clock nor power.
    """
    with suppress(OSError):
        return TegraMeter(sys), ""
    try:
        import pynvml as nvml  # noqa: PLC0415  (optional, and of no use without a GPU)
    except ImportError:
        return None, "NVML is not installed (pip install nvidia-ml-py): energy was not measured"
    try:
        return NvmlMeter(nvml, environment), ""
    except nvml.NVMLError as error:
        return None, f"NVML finds no device ({error}): energy was not measured"


def missing_counters(meter: Meter) -> str:
    """Return a line with the counters that a GPU lacks; empty if it has all."""
    reading = meter.read()
    lacks = ", ".join(word for key, word in COUNTERS.items() if isnan(getattr(reading, key)))
    return f"{reading.device}: has no counter of {lacks}" if lacks else ""
