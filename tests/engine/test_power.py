"""Power and energy from NVML and RAPL; missing devices are reported in one line."""

import math
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.node import power
from engine.node.observer import Observer, observed
from engine.node.power import NvmlMeter, RaplMeter, Reading, meter_of
from fleet.records.schema import PowerSample
from fleet.times.step import Member, Step
from tests.helpers.stars import repeatable


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
        return self._tell("memory", SimpleNamespace(used=3 << 30, total=80 << 30))

    def nvmlDeviceGetTotalEnergyConsumption(self, _gpu: int) -> int:
        return int(self._tell("energy", 5_000_000))  # mJ


def rapl(folder: Path, *zones_uj: int, limit_uj: int = 10_000_000) -> Path:
    """Package counters as in Linux, each with a part of it, beside other files."""
    for number, value in enumerate(zones_uj):
        for name, content in ((f"intel-rapl:{number}", f"package-{number}"), (f"intel-rapl:{number}:0", "core")):
            zone = folder / name
            zone.mkdir(parents=True)
            (zone / "name").write_text(f"{content}\n")
            (zone / "energy_uj").write_text(f"{value}\n")
            (zone / "max_energy_range_uj").write_text(f"{limit_uj}\n")
    (folder / "dtpm").mkdir(parents=True, exist_ok=True)
    return folder


def test_gpu_clock_power_memory_and_energy_are_in_our_units() -> None:
    (reading,) = NvmlMeter(Nvml(), {}).read()
    assert reading == Reading("NVIDIA H100 (NVML)", 1980.0, 100.0, 3 * 2**30, 5000.0)


@pytest.mark.parametrize("absent", ["clock", "power", "memory", "energy"])
def test_unsupported_readings_of_a_gpu_are_nan(absent: str) -> None:
    (reading,) = NvmlMeter(Nvml((absent,)), {}).read()
    unknown = [math.isnan(value) for value in reading[1:]]
    assert unknown == [name == absent for name in ("clock", "power", "memory", "energy")]


@pytest.mark.parametrize(
    ("visible", "opened"),
    [({}, 0), ({"CUDA_VISIBLE_DEVICES": "2,3"}, 2), ({"CUDA_VISIBLE_DEVICES": "GPU-8f"}, "GPU-8f")],
)
def test_the_gpu_is_the_first_that_torch_sees(visible: dict[str, str], opened: int | str) -> None:
    nvml = Nvml(gpus=4)
    NvmlMeter(nvml, visible)
    assert nvml.opened == [opened]


@given(st.lists(st.integers(0, 9_999_999), min_size=1, max_size=30))
@repeatable
def test_a_packages_energy_only_grows_where_its_counter_begins_again(steps_uj: list[int]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = rapl(Path(name), 9_000_000)
        meter = RaplMeter(folder)
        value_uj, whole_uj = 9_000_000, 0
        for step_uj in steps_uj:
            value_uj, whole_uj = (value_uj + step_uj) % 10_000_000, whole_uj + step_uj
            (folder / "intel-rapl:0" / "energy_uj").write_text(str(value_uj))
            (reading,) = meter.read()
            assert reading.energy_j == pytest.approx(whole_uj / 1e6)


def test_packages_are_counted_and_not_once_more_their_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(power, "now_s", lambda: now_s)
    folder = rapl(tmp_path, 1_000_000, 2_000_000)
    meter = RaplMeter(folder)
    (folder / "intel-rapl:1" / "energy_uj").write_text("5000000")
    now_s = 102.0
    first, second = meter.read()
    assert (first.device, second.device) == ("package-0 (RAPL)", "package-1 (RAPL)")
    assert (first.energy_j, second.energy_j) == (0.0, 3.0)
    assert (first.power_w, second.power_w) == (0.0, 1.5)
    assert math.isnan(first.graphics_clock_mhz)
    assert math.isnan(first.memory_bytes)


def test_a_missing_meter_is_one_line(tmp_path: Path) -> None:
    line = "no NVML device and RAPL is not readable on this host: energy was not measured"
    empty = tmp_path / "empty"
    empty.mkdir()
    broken = rapl(tmp_path / "broken", 5)
    (broken / "intel-rapl:0" / "energy_uj").write_text("junk")
    closed = rapl(tmp_path / "closed", 5)
    (closed / "intel-rapl:0" / "energy_uj").unlink()
    (closed / "intel-rapl:0" / "energy_uj").mkdir()  # a folder, which even root cannot read as a file
    for folder in (tmp_path / "none", empty, broken, closed):
        assert meter_of("cpu", folder) == (None, line)
    meter, reason = meter_of("gpu", nvml=Nvml(gpus=0))
    assert meter is None
    assert reason == "NVML finds no device (Driver Not Loaded): energy was not measured"
    meter, reason = meter_of("cpu", rapl(tmp_path / "here", 5))
    assert meter is not None
    assert reason == ""
    meter, reason = meter_of("gpu", nvml=Nvml())
    assert meter is not None


class Meter:
    """A meter with its number of readings as energy."""

    def __init__(self) -> None:
        self.reads, self.lock, self.twice = 0, threading.Lock(), threading.Event()

    def read(self) -> list[Reading]:
        with self.lock:
            self.reads += 1
            if self.reads == 3:
                self.twice.set()
            return [Reading("one", energy_j=float(self.reads)), Reading("other", power_w=2.0)]


def test_only_drafts_are_preceded_by_samples() -> None:
    sampler = Observer(list, 0.0, None, Meter())
    before = sampler.before("drafter.2")
    for number, kind in enumerate(("prefill", "draft", "warm_up", "draft"), start=1):
        before(Step(number, kind, (Member(0, 0, 1, 9, 5),)))  # type: ignore[arg-type]
    assert [(one.station, one.step, one.device) for one in sampler.samples] == [
        ("drafter.2", step, device) for step in (2, 4) for device in ("one", "other")
    ]
    assert sampler.samples == sorted(sampler.samples, key=lambda one: one.time_s)


def test_samples_enclose_the_work() -> None:
    meter = Meter()
    with observed(list, 0.0, None, meter) as samples:
        assert meter.reads >= 1
        assert meter.twice.wait(30.0)
        inside = meter.reads
    assert meter.reads > inside
    assert all(one.step == 0 and one.station == "" for one in samples)
    assert isinstance(samples[0], PowerSample)
