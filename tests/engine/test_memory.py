"""A GPU with the host's memory: the smaller of both free amounts counts, and a process stays within it."""

from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from specfleet.engine.decoding.telemetry import free_bytes, keep_within_memory

GPU, GB = torch.device("cuda", 0), 10**9


@pytest.mark.parametrize(
    ("integrated", "free_gb", "available_gb", "counts_gb"), [(0, 20, 5, 20), (1, 20, 5, 5), (1, 4, 12, 4)]
)
def test_the_smaller_free_memory_counts_where_it_is_shared(
    integrated: int, free_gb: int, available_gb: int, counts_gb: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []
    pretended = {
        "mem_get_info": lambda _gpu: (free_gb * GB, 64 * GB), "memory_reserved": lambda _gpu: 3 * GB,
        "get_device_properties": lambda _gpu: SimpleNamespace(is_integrated=integrated),
        "set_per_process_memory_fraction": lambda share, _gpu: limits.append(share),
    }  # fmt: skip
    for name, function in pretended.items():
        monkeypatch.setattr(torch.cuda, name, function)
    lines = "MemFree:  12 kB", f"MemAvailable: {available_gb * GB // 1024} kB", "HugePages_Total: 0"
    (tmp_path / "meminfo").write_text("\n".join(lines))
    assert free_bytes(GPU, tmp_path / "meminfo") == pytest.approx(counts_gb * GB, abs=1024)
    keep_within_memory(GPU, tmp_path / "meminfo")
    keep_within_memory(torch.device("cpu"), tmp_path / "meminfo")
    assert limits == pytest.approx([(3 + counts_gb) / 64] * integrated), "what the process holds already is its own"
