"""The time of a step on its device's clock; and facts of this host, with a list of unreadable ones."""

import contextlib
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

T = TypeVar("T")


def timed(work: Callable[[], T], device: torch.device) -> tuple[T, float]:
    """Run `work`; return its result and its time in seconds on the device's own clock.

    On cuda: events around the work, then a synchronization, as in StarSD's appendix G. Elsewhere a monotonic clock.
    """
    if device.type == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        result = work()
        end.record()
        torch.cuda.synchronize(device)
        return result, begin.elapsed_time(end) / 1000
    started_s = time.perf_counter()
    result = work()
    return result, time.perf_counter() - started_s


def host_facts() -> tuple[dict[str, str], list[str]]:
    """Describe this host: facts by name, and a list of unreadable ones with reasons."""
    facts = {
        "machine": platform.machine(),
        "system": platform.platform(),
        "cores": str(os.cpu_count()),
        "processor": _processor(),
        "torch": str(torch.__version__),
        "torch_threads": str(torch.get_num_threads()),
    }
    unread = []
    if torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name()
        facts["cuda"] = str(torch.version.cuda)
    else:
        unread.append("cuda: no device on this host")
    try:
        facts |= _nvml_facts()
    except (ImportError, OSError, RuntimeError) as error:
        unread.append(f"NVML (clocks, power): {error or type(error).__name__}")
    return facts, unread


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "Model")):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _nvml_facts() -> dict[str, str]:
    """Driver, clock and power of the first GPU; RuntimeError if the library or the device is missing."""
    import pynvml  # noqa: PLC0415  (absent on hosts without a GPU)

    try:
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        return {
            "driver": str(pynvml.nvmlSystemGetDriverVersion()),
            "graphics_clock_mhz": str(pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_GRAPHICS)),
            "power_w": str(pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000),
        }
    except pynvml.NVMLError as error:
        raise RuntimeError(str(error)) from error
