"""The time of a step on its device's clock; facts of this host; free memory of a GPU."""

import contextlib
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

T = TypeVar("T")
MEMORY = Path("/proc/meminfo")


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


def host_facts() -> dict[str, str]:
    """Describe this host: facts by name; `gpu`, `gpus` and `cuda` where it has such devices."""
    facts = {
        "machine": platform.machine(), "system": platform.platform(), "cores": str(os.cpu_count()),
        "processor": _processor(), "torch": str(torch.__version__), "torch_threads": str(torch.get_num_threads()),
    }  # fmt: skip
    if torch.cuda.is_available():
        gpus = str(torch.cuda.device_count())
        facts |= {"gpu": torch.cuda.get_device_name(), "gpus": gpus, "cuda": str(torch.version.cuda)}
    return facts


def free_bytes(device: torch.device, memory: Path = MEMORY) -> int:
    """Return the free memory of a GPU. An integrated one has the host's, of which Linux gives no more than it says.

    - `memory`: the file with the host's.
    """
    free: int = torch.cuda.mem_get_info(device)[0]
    if not torch.cuda.get_device_properties(device).is_integrated:
        return free
    host = dict(line.split(":") for line in memory.read_text().splitlines())
    return min(free, 1024 * int(host["MemAvailable"].split()[0]))


def keep_within_memory(device: torch.device, memory: Path = MEMORY) -> None:
    """Let torch refuse what an integrated GPU has no memory for; without a limit, Linux would kill this process."""
    if device.type == "cuda" and torch.cuda.get_device_properties(device).is_integrated:
        most = torch.cuda.memory_reserved(device) + free_bytes(device, memory)
        torch.cuda.set_per_process_memory_fraction(min(most / torch.cuda.mem_get_info(device)[1], 1.0), device)


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "Model")):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
