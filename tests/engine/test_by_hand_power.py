"""A node started by hand samples its device, if asked to: its records and a file have the samples."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("torch")

from specfleet.engine.launch import by_hand
from specfleet.engine.node.node import Stations
from specfleet.fleet.records.recorder import Log
from specfleet.fleet.records.run import read_run
from specfleet.fleet.records.schema import PowerSample
from specfleet.fleet.scenario.resolve import resolve
from specfleet.sim.run import simulate
from tests.helpers.logs import log_of_run
from tests.helpers.stars import star

SCENARIO = star()


class DrafterNode(Stations):
    """A node that has served already."""

    def stations(self) -> list[Any]:
        return [SimpleNamespace(log=[], station=SimpleNamespace(name="drafter"))]

    def serve(self, _zero_s: float) -> Log:
        return log_of_run(simulate(SCENARIO))


class Meter:
    def read(self) -> PowerSample:
        return PowerSample(device="Jetson", graphics_clock_mhz=918.0, power_w=12.0, utilisation=0.5)


@pytest.mark.parametrize("meter", [Meter(), None])
def test_a_node_by_hand_keeps_its_devices_counters(
    meter: Meter | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_hand, "measured_here", lambda _say: meter)
    records, samples = tmp_path / "drafter.parquet", tmp_path / "power.parquet"
    by_hand.serve_and_keep(DrafterNode(resolve(SCENARIO)), SCENARIO, records, None, lambda _line: None, samples)
    devices = read_run(records).header.devices
    assert samples.exists() == (meter is not None)
    if meter is not None:
        (curve,) = devices
        assert (curve.device, curve.stations) == ("Jetson", ("drafter",))
        assert set(curve.graphics_clock_mhz) == {918.0}
        assert len(curve.times_s) == pq.read_table(samples).num_rows >= 2
    else:
        assert devices == ()


@pytest.mark.parametrize("own", [None, "FASTEST_FIRST"])
def test_gpus_of_a_node_by_hand_are_numbered_as_its_meters(own: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"CUDA_DEVICE_ORDER": own} if own else {}
    monkeypatch.setattr("os.environ", environment)
    by_hand.prepare_device()
    assert environment == {"CUDA_DEVICE_ORDER": own or "PCI_BUS_ID"}
