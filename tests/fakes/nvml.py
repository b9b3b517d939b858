"""A module pynvml of GPUs that are not there."""

from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """The error of NVML."""


class Nvml:
    """Replaces the module pynvml, with one GPU at 1980 MHz that has drawn 100 W since it has used 5 kJ."""

    NVML_CLOCK_GRAPHICS = 0
    NVMLError = NVMLError

    def __init__(self, absent: tuple[str, ...] = (), gpus: int = 1) -> None:
        self.absent, self.gpus, self.opened = absent, gpus, list[Any]()

    def _tell(self, name: str, value: Any) -> Any:
        if name in self.absent:
            raise NVMLError("Not Supported")
        return value

    def nvmlInit(self) -> None:
        if not self.gpus:
            raise NVMLError("Driver Not Loaded")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index >= self.gpus:
            raise NVMLError("Invalid Argument")
        self.opened.append(index)
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self.opened.append(uuid)
        return uuid

    def nvmlDeviceGetName(self, _gpu: int) -> bytes:
        return b"NVIDIA H100"

    def nvmlDeviceGetClockInfo(self, _gpu: int, kind: int) -> int:
        assert kind == self.NVML_CLOCK_GRAPHICS
        return int(self._tell("clock", 1980))

    def nvmlDeviceGetPowerUsage(self, _gpu: int) -> int:
        return int(self._tell("power", 100_000))  # mW

    def nvmlDeviceGetMemoryInfo(self, _gpu: int) -> Any:
        return self._tell("memory", SimpleNamespace(used=3 << 30, free=77 << 30, total=80 << 30))

    def nvmlDeviceGetTotalEnergyConsumption(self, _gpu: int) -> int:
        return int(self._tell("energy", 5_000_000))  # mJ

    def nvmlDeviceGetUtilizationRates(self, _gpu: int) -> Any:
        return self._tell("utilisation", SimpleNamespace(gpu=25, memory=9))  # %
