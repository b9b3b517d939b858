"""Counters from NVML and from a Jetson's files; missing devices and counters are reported in one line."""

import math
import sys
import threading
from pathlib import Path

import pytest

from specfleet.engine.node.observer import Observer, observed
from specfleet.engine.node.power import NvmlMeter, find_meter, missing_counters
from specfleet.fleet.records.schema import PowerSample
from specfleet.fleet.times.step import Member, Step
from tests.fakes.nvml import Nvml


def test_gpu_clock_power_memory_and_energy_are_in_our_units() -> None:
    reading = NvmlMeter(Nvml(), {}).read()
    assert reading == PowerSample(0.0, "", 0, "NVIDIA H100 (NVML)", 1980.0, 100.0, 3 * 2**30, 5000.0, 0.25)


@pytest.mark.parametrize("absent", ["clock", "power", "memory", "energy", "utilisation"])
def test_unsupported_readings_of_a_gpu_are_nan(absent: str) -> None:
    reading = NvmlMeter(Nvml((absent,)), {}).read()
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
    assert missing_counters(NvmlMeter(Nvml(gpus=3), chosen)) == ""
    assert missing_counters(NvmlMeter(Nvml(("power", "utilisation"), gpus=3), chosen)) == (
        "NVIDIA H100 2 (NVML): has no counter of power, utilisation"
    )


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
    meter, reason = find_meter(jetson(tmp_path, rails))
    assert meter is not None
    assert reason == ""
    reading = meter.read()
    assert (reading.device, reading.graphics_clock_mhz) == ("Jetson 17000000.gpu (tegra)", 918.0)
    assert (reading.power_w, reading.utilisation) == pytest.approx((power_w, 0.63), nan_ok=True)
    lacks = ["memory"] if rails else ["power", "memory"]
    assert missing_counters(meter) == f"{reading.device}: has no counter of {', '.join(lacks)}"
    (tmp_path / "class/devfreq/17000000.gpu/cur_freq").unlink()
    assert math.isnan(meter.read().graphics_clock_mhz), "a GPU that sleeps"


def test_a_missing_meter_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(gpus=0))
    line = "NVML finds no device (Driver Not Loaded): energy was not measured"
    assert find_meter(tmp_path) == (None, line)
    monkeypatch.setitem(sys.modules, "pynvml", None)  # an import then fails
    assert "pip install nvidia-ml-py" in find_meter(tmp_path)[1]


class Meter:
    """A meter with its number of readings as energy."""

    def __init__(self) -> None:
        self.reads, self.lock, self.twice = 0, threading.Lock(), threading.Event()

    def read(self) -> PowerSample:
        with self.lock:
            self.reads += 1
            if self.reads == 3:
                self.twice.set()
            return PowerSample(device="a GPU", energy_j=float(self.reads))


def test_only_drafts_are_preceded_by_samples() -> None:
    sampler = Observer(list, 0.0, None, Meter())
    before = sampler.before("drafter.2")
    for number, kind in enumerate(("prefill", "draft", "warm_up", "draft"), start=1):
        before(Step(number, kind, (Member(0, 0, 1, 9, 5),)))  # type: ignore[arg-type]
    assert [(sample.station, sample.step) for sample in sampler.samples] == [("drafter.2", 2), ("drafter.2", 4)]
    assert sampler.samples == sorted(sampler.samples, key=lambda sample: sample.time_s)


def test_samples_enclose_the_work() -> None:
    meter = Meter()
    with observed(list, 0.0, None, meter) as samples:
        assert meter.reads >= 1
        assert meter.twice.wait(30.0)
        inside = meter.reads
    assert meter.reads > inside
    assert all(sample.step == 0 and sample.station == "" for sample in samples)
    assert isinstance(samples[0], PowerSample)
