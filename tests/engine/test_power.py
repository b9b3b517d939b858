"""Counters from NVML, from a Jetson's files and from RAPL; missing devices and counters are reported in one line."""

import math
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.engine.node import power
from specfleet.engine.node.observer import Observer, observed
from specfleet.engine.node.power import NvmlMeter, RaplMeter, meter_of, missing_counters
from specfleet.fleet.records.schema import PowerSample
from specfleet.fleet.times.step import Member, Step
from tests.fakes.nvml import Nvml


def rapl(folder: Path, *zones_uj: int) -> Path:
    """Package counters as in Linux, each with a part of it, beside other files."""
    for number, value in enumerate(zones_uj):
        for name, content in ((f"intel-rapl:{number}", f"package-{number}"), (f"intel-rapl:{number}:0", "core")):
            zone = folder / name
            zone.mkdir(parents=True)
            (zone / "name").write_text(f"{content}\n")
            (zone / "energy_uj").write_text(f"{value}\n")
            (zone / "max_energy_range_uj").write_text("10000000\n")
    (folder / "dtpm").mkdir(parents=True, exist_ok=True)
    return folder


def test_gpu_clock_power_memory_and_energy_are_in_our_units() -> None:
    (reading,) = NvmlMeter(Nvml(), {}).read()
    assert reading == PowerSample(0.0, "", 0, "NVIDIA H100 (NVML)", 1980.0, 100.0, 3 * 2**30, 5000.0, 0.25)


@pytest.mark.parametrize("absent", ["clock", "power", "memory", "energy", "utilisation"])
def test_unsupported_readings_of_a_gpu_are_nan(absent: str) -> None:
    (reading,) = NvmlMeter(Nvml((absent,)), {}).read()
    unknown = [math.isnan(value) for value in reading[4:]]
    assert unknown == [name == absent for name in ("clock", "power", "memory", "energy", "utilisation")]


@pytest.mark.parametrize(
    ("visible", "opened"),
    [({}, 0), ({"CUDA_VISIBLE_DEVICES": "2,3"}, 2), ({"CUDA_VISIBLE_DEVICES": "GPU-8f"}, "GPU-8f")],
)
def test_the_gpu_is_the_first_that_torch_sees(visible: dict[str, str], opened: int | str) -> None:
    nvml = Nvml(gpus=4)
    NvmlMeter(nvml, visible)
    assert nvml.opened == [opened]


def test_missing_counters_of_a_gpu_are_a_line() -> None:
    chosen = {"CUDA_VISIBLE_DEVICES": "2"}
    assert missing_counters(NvmlMeter(Nvml(gpus=3), chosen)) == []
    assert missing_counters(NvmlMeter(Nvml(("power", "utilisation"), gpus=3), chosen)) == [
        "NVIDIA H100 2 (NVML): has no counter of power, utilisation"
    ]


# As Linux shows the GPU of a Jetson Orin with JetPack 6, and the rails of its module.
ORIN_NX = {"VDD_IN": (5000, 2400), "VDD_CPU_GPU_CV": (5000, 1000), "VDD_SOC": (5000, 400)}
AGX_ORIN = {"VDD_GPU_SOC": (8000, 1500), "VDD_CPU_CV": (8000, 250), "NC": (0, 0)}


def jetson(folder: Path, rails: dict[str, tuple[int, int]]) -> Path:
    """Files of a GPU at 918 MHz with 63 % of load, beside another device, and of these rails in mV and mA."""
    for name, files in {
        "17000000.gpu": {"cur_freq": "918000000", "device/load": "630"},
        "15340000.vic": {"cur_freq": "115200000"},
    }.items():
        for file, content in files.items():
            (path := folder / "class/devfreq" / name / file).parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{content}\n")
    monitor = folder / "bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon1"
    monitor.mkdir(parents=True)
    for channel, (label, (mv, ma)) in enumerate(rails.items(), start=1):
        for file, content in ((f"in{channel}_label", label), (f"in{channel}_input", mv), (f"curr{channel}_input", ma)):
            (monitor / file).write_text(f"{content}\n")
    (monitor / "in7_label").write_text("sum of shunt voltages\n")
    return folder


@pytest.mark.parametrize(("rails", "power_w"), [(ORIN_NX, 12.0), (AGX_ORIN, 14.0), ({}, math.nan)])
def test_a_jetsons_counters_are_files(rails: dict[str, tuple[int, int]], power_w: float, tmp_path: Path) -> None:
    meter, reason = meter_of("gpu", sys=jetson(tmp_path, rails), nvml=Nvml(("power", "clock")))
    assert meter is not None
    assert reason == ""
    (reading,) = meter.read()
    assert (reading.device, reading.graphics_clock_mhz) == ("Jetson 17000000.gpu (tegra)", 918.0)
    assert (reading.power_w, reading.utilisation) == pytest.approx((power_w, 0.63), nan_ok=True)
    lacks = ["memory"] if rails else ["power", "memory"]
    assert missing_counters(meter) == [f"{reading.device}: has no counter of {', '.join(lacks)}"]
    (tmp_path / "class/devfreq/17000000.gpu/cur_freq").unlink()
    assert math.isnan(meter.read()[0].graphics_clock_mhz), "a GPU that sleeps"


@given(st.lists(st.integers(0, 9_999_999), min_size=1, max_size=30))
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

    def read(self) -> list[PowerSample]:
        with self.lock:
            self.reads += 1
            if self.reads == 3:
                self.twice.set()
            return [PowerSample(device="one", energy_j=float(self.reads)), PowerSample(device="other", power_w=2.0)]


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
