"""Counters of a device: NVML for a GPU, files of Linux for a Jetson's, RAPL for the processor. Without torch."""

import os
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from math import isnan
from pathlib import Path
from typing import Any, Literal

from specfleet.engine.net.clock import now_s
from specfleet.engine.node.tegra import SYS, TegraMeter
from specfleet.fleet.records.schema import UNKNOWN, PowerSample

RAPL = Path("/sys/class/powercap")
PACKAGE = re.compile(r"intel-rapl:\d+")  # a whole package, which includes its parts (intel-rapl:0:1)
Device = Literal["gpu", "cpu"]


COUNTERS = {
    "graphics_clock_mhz": "clock", "power_w": "power", "memory_bytes": "memory", "utilisation": "utilisation",
}  # fmt: skip


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
        self.device = f"{_text(nvml.nvmlDeviceGetName(self.gpu))}{f' {chosen}' if chosen else ''} (NVML)"

    def read(self) -> list[PowerSample]:
        """Return its current reading, from any thread; the driver decides how long it takes."""
        nvml = self.nvml
        return [
            PowerSample(
                device=self.device,
                graphics_clock_mhz=self._known(lambda: nvml.nvmlDeviceGetClockInfo(self.gpu, nvml.NVML_CLOCK_GRAPHICS)),
                power_w=self._known(lambda: nvml.nvmlDeviceGetPowerUsage(self.gpu) / 1000),
                memory_bytes=self._known(lambda: nvml.nvmlDeviceGetMemoryInfo(self.gpu).used),
                energy_j=self._known(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(self.gpu) / 1000),
                utilisation=self._known(lambda: nvml.nvmlDeviceGetUtilizationRates(self.gpu).gpu / 100),
            )
        ]

    def _known(self, ask: Any) -> float:
        try:
            return float(ask())
        except self.nvml.NVMLError:  # the device does not support this reading
            return UNKNOWN


class RaplMeter:
    """The packages of this host's processor, with their whole load. OSError if their counters cannot be read."""

    def __init__(self, folder: Path = RAPL) -> None:
        self.lock = threading.Lock()
        zones = sorted(path for path in folder.iterdir() if PACKAGE.fullmatch(path.name))
        if not zones:
            raise FileNotFoundError(folder)
        self.zones = [Zone(path) for path in zones]

    def read(self) -> list[PowerSample]:
        """Return the current reading of each package, from any thread."""
        with self.lock:
            return [zone.read() for zone in self.zones]


class Zone:
    """A processor package: its counter of microjoules, which starts again at a limit."""

    def __init__(self, folder: Path) -> None:
        self.device = f"{(folder / 'name').read_text().strip()} (RAPL)"
        self.counter = folder / "energy_uj"
        self.limit_uj = int((folder / "max_energy_range_uj").read_text())
        self.before_uj, self.whole_uj = int(self.counter.read_text()), 0
        self.read_s, self.read_uj = now_s(), 0

    def read(self) -> PowerSample:
        """Return its energy since the first reading, and its power since the last one."""
        value_uj, time_s = int(self.counter.read_text()), now_s()
        step_uj = value_uj - self.before_uj
        self.whole_uj += step_uj if step_uj >= 0 else step_uj + self.limit_uj
        self.before_uj = value_uj
        seconds, used_uj = time_s - self.read_s, self.whole_uj - self.read_uj
        self.read_s, self.read_uj = time_s, self.whole_uj
        power_w = used_uj / 1e6 / seconds if seconds > 0 else UNKNOWN
        return PowerSample(device=self.device, power_w=power_w, energy_j=self.whole_uj / 1e6)


Meter = NvmlMeter | TegraMeter | RaplMeter


def meter_of(
    device: Device,
    rapl: Path = RAPL,
    nvml: Any = None,
    sys: Path = SYS,
    environment: Mapping[str, str] = os.environ,
) -> tuple[Meter | None, str]:
    """Return the meter of the models' device; or None, with a line that says why nothing is measured.

    `nvml`: replaces the module pynvml; None imports it. A Jetson's NVML, if it has one, has neither clock nor power.
    """
    if device == "cpu":
        try:
            return RaplMeter(rapl), ""
        except (OSError, ValueError):
            return None, "no NVML device and RAPL is not readable on this host: energy was not measured"
    with suppress(OSError):
        return TegraMeter(sys), ""
    if nvml is None:
        try:
            import pynvml as nvml  # noqa: PLC0415  (optional, and of no use without a GPU)
        except ImportError:
            return None, "NVML is not installed (pip install nvidia-ml-py): energy was not measured"
    try:
        return NvmlMeter(nvml, environment), ""
    except nvml.NVMLError as error:
        return None, f"NVML finds no device ({error}): energy was not measured"


def missing_counters(meter: Meter) -> list[str]:
    """Return a line for each GPU that lacks a counter; a processor's packages count energy alone."""
    readings = [] if isinstance(meter, RaplMeter) else meter.read()
    lacks = {one.device: [word for key, word in COUNTERS.items() if isnan(getattr(one, key))] for one in readings}
    return [f"{device}: has no counter of {', '.join(words)}" for device, words in lacks.items() if words]


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name
