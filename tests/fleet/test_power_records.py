"""Energy from samples: counters if devices have them, else power over time; a metric if all were measured."""

import math
from pathlib import Path

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.power import MAX_POINTS, DeviceCurve, curves_of, write_samples
from specfleet.fleet.records.run import Run, read_run, write_run
from specfleet.fleet.records.schema import SAMPLES, PowerSample
from specfleet.sim.run import simulate
from tests.helpers.stars import star


def samples(device: str, watts: list[float], counts: bool) -> list[PowerSample]:
    """Samples of a device with this power at each time; its counter began at 1000 J."""
    energy_j = 1000 + np.concatenate([[0.0], np.cumsum((np.array(watts)[1:] + np.array(watts)[:-1]) / 2 * 0.5)])
    return [
        PowerSample(0.5 * k, "", 0, device, power_w=watt, energy_j=float(energy_j[k]) if counts else math.nan)
        for k, watt in enumerate(watts)
    ]


@pytest.mark.parametrize("counts", [True, False])
def test_energy_is_the_counter_or_integrated_power(counts: bool) -> None:
    (curve,) = curves_of(samples("gpu", [100.0, 200.0, 200.0, 0.0], counts))
    assert curve.times_s == (0.0, 0.5, 1.0, 1.5)
    assert curve.energy_j == pytest.approx((0.0, 75.0, 175.0, 225.0))


def test_devices_without_readings_have_no_curve() -> None:
    silent = [PowerSample(time_s, "", 0, "silent") for time_s in (0.0, 1.0)]
    clocked = [PowerSample(time_s, "", 0, "clocked", 1980.0) for time_s in (0.0, 1.0)]
    mixed = [*samples("a", [10.0] * 4, True), *silent, *clocked, *samples("b", [20.0] * 4, False)]
    assert [curve.device for curve in curves_of(reversed(mixed))] == ["b", "clocked", "a"]
    assert curves_of(clocked, ["drafter"]) == (
        DeviceCurve("clocked", (0.0, 1.0), graphics_clock_mhz=(1980.0, 1980.0), stations=("drafter",)),
    )
    assert curves_of([samples("a", [1.0], True)[0]]) == ()
    assert curves_of([]) == ()


def test_long_runs_keep_few_points_and_all_energy() -> None:
    (curve,) = curves_of(samples("gpu", [50.0] * 40_000, True))
    assert len(curve.times_s) == MAX_POINTS
    assert curve.energy_j[-1] == pytest.approx(50.0 * 0.5 * 39_999)


def with_energy(run: Run, *curves: DeviceCurve) -> Run:
    return msgspec.structs.replace(run, header=msgspec.structs.replace(run.header, devices=curves))


def test_counters_of_a_sides_devices_are_means_over_time() -> None:
    run = simulate(star())

    def gpu(station: str, watts: float, mhz: float, **more: tuple[float, ...]) -> DeviceCurve:
        counters = {"graphics_clock_mhz": (mhz, mhz), "utilisation": (0.5, 0.5)} | more
        return DeviceCurve(station, (0.0, 1e6), (0.0, watts * 1e6), **counters, stations=(station,))

    drafter, one, other = (
        gpu("drafter", 300.0, 1980.0),
        gpu("verifier.1", 600.0, 1700.0),
        gpu("verifier.2", 400.0, 1500.0),
    )
    metrics = measure(with_energy(run, drafter, one, other))
    means = {name: round(metric.value, 6) for name, metric in metrics.items() if name.startswith("measured_")}
    assert means.pop("measured_energy_j_per_token") == pytest.approx(1300 / metrics["throughput"].value, abs=1e-6)
    assert means == {
        "measured_drafter_clock_mhz": 1980.0, "measured_drafter_utilisation": 0.5, "measured_drafter_power_w": 300.0,
        "measured_target_clock_mhz": 1600.0, "measured_target_utilisation": 0.5, "measured_target_power_w": 500.0,
    }  # fmt: skip
    lacks = measure(with_energy(run, drafter, one, gpu("verifier.2", 400.0, 1500.0, graphics_clock_mhz=())))
    assert "measured_target_clock_mhz" not in lacks, "of one target alone it would not be the targets'"
    assert lacks["measured_drafter_clock_mhz"].value == pytest.approx(1980.0)
    short = DeviceCurve("gpu", (0.0, 10.0), (0.0, 3000.0))
    for curves in ((), (short,), (drafter, short), (drafter, msgspec.structs.replace(one, energy_j=()))):
        assert "measured_energy_j_per_token" not in measure(with_energy(run, *curves))


def test_energy_is_saved_and_does_not_change_the_digest(tmp_path: Path) -> None:
    run = simulate(star())
    curve = DeviceCurve("gpu", (0.0, 1.0), (0.0, 3.0))
    write_run(with_energy(run, curve), tmp_path / "run.parquet")
    again = read_run(tmp_path / "run.parquet")
    assert again.header.devices == (curve,)
    assert again.digest() == run.digest()


def test_samples_are_a_table_with_a_column_each(tmp_path: Path) -> None:
    taken = [*samples("gpu", [1.0, 2.0], True), PowerSample(3.0, "drafter", 7, "gpu", 1980.0)]
    write_samples(taken, tmp_path / "power.parquet")
    table = pq.read_table(tmp_path / "power.parquet")
    assert table.schema == SAMPLES
    assert table.column_names == list(PowerSample._fields)
    assert repr([PowerSample(**row) for row in table.to_pylist()]) == repr(taken)
