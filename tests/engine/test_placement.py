"""The GPU of each station's process: one for each device if there are enough; shared devices share."""

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.engine.launch.bodies import LauncherPipe
from specfleet.engine.launch.placement import crowding, devices_of, gpus_of, has_meter, visible_gpus
from specfleet.engine.launch.places import Place
from specfleet.engine.launch.processes import NodeProcess
from specfleet.engine.launch.serve import Launch, serve
from specfleet.engine.node.write_ahead_log import Life, Served
from specfleet.fleet.scenario.reading import change_scenario, make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.sim.run import simulate
from tests.fakes.nvml import Nvml
from tests.helpers.logs import log_of_run
from tests.helpers.stars import star

SHARED: dict[str, Any] = {"devices": {"host": {"sharing": "turns"}}}


def fleet_of(M: int = 1, N: int = 3, **tables: Any) -> Fleet:
    sides = {"drafters": {"count": M}, "verifiers": {"count": N}}
    more = {key: sides.get(key, {}) | value for key, value in tables.items()}
    return resolve(make_scenario({"name": "placed"} | sides | more))


HOST = {"device": "host"}
EACH = [f"verifier.{number}" for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("tables", "gpus", "placed"),
    [  # StarSD in one machine, appendix H: one GPU drafts, the others verify
        ({}, ["0", "1", "2", "3"], {"drafter": "0"} | dict(zip(EACH, "123", strict=True))),
        (SHARED | {"drafters": HOST, "verifiers": HOST}, ["4", "7"], dict.fromkeys(["drafter", *EACH], "4")),
        (SHARED | {"verifiers": HOST}, ["4", "7"], {"drafter": "4"} | dict.fromkeys(EACH, "7")),
        ({"verifiers": {"kind": "replayed", "verify": {"base_s": 0.01}}}, ["0", "1"], {"drafter": "0"}),
        ({}, [], {}),
        ({}, ["0"], {}),
    ],
    ids=["own", "all share", "targets share", "replayed", "no GPU", "one GPU, which torch takes"],
)
def test_each_device_has_its_own_gpu(tables: dict[str, Any], gpus: list[str], placed: dict[str, str]) -> None:
    assert gpus_of(fleet_of(**tables), gpus) == placed


@given(st.integers(1, 4), st.integers(1, 9), st.integers(2, 12))
def test_gpus_are_given_out_evenly(M: int, N: int, count: int) -> None:
    fleet, gpus = fleet_of(M, N), [str(number) for number in range(count)]
    placed = gpus_of(fleet, gpus)
    assert list(placed) == list(devices_of(fleet))
    given_out = [list(placed.values()).count(gpu) for gpu in gpus]
    assert max(given_out) - min(given_out) <= 1


@pytest.mark.parametrize(
    ("count", "named", "gpus"),
    [(0, "", []), (2, "", ["0", "1"]), (2, "3, GPU-8f", ["3", "GPU-8f"]), (1, "3,9", ["3"]), (0, "-1", [])],
)
def test_gpus_have_the_names_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, count: int, named: str, gpus: list[str]
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": named} if named else {}) == gpus


def test_more_devices_than_gpus_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    beside = fleet_of(3, **SHARED, verifiers={"device": "host"})
    for fleet in (fleet_of(), beside):
        assert "4 devices of the scenario share 2 GPUs" in str(crowding(fleet))
    assert crowding(fleet_of(N=1)) is None


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(("power", "energy"), gpus=2))


@pytest.mark.usefixtures("two_gpus")
def test_missing_counters_of_every_gpu_are_reported() -> None:
    lines: list[str] = []
    assert has_meter(fleet_of(), lines.append)
    assert lines == [f"NVIDIA H100 {gpu} (NVML): has no counter of power" for gpu in (0, 1)]
    nothing = resolve(change_scenario(star(), {"drafters.kind": "replayed", "verifiers.kind": "replayed"}))
    assert not has_meter(nothing, lines.append)
    assert lines[2:] == ["replayed stations use no device: energy was not measured"]


@pytest.mark.usefixtures("two_gpus")
def test_each_gpu_is_measured_by_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started: dict[str, tuple[str, bool]] = {}

    def process(name: str, *_arguments: Any, gpu: str, power: bool, **_options: Any) -> None:
        started[name] = gpu, power

    monkeypatch.setattr("specfleet.engine.launch.serve.NodeProcess", process)
    fleet = fleet_of()
    launch = Launch(fleet, [], gpus_of(fleet, visible_gpus()), None, True)
    launch.places = [place for wave in launch.waves() for place in wave]
    for place in [*launch.places, launch.places[0]]:  # its next life measures, too
        launch._start(place)
    assert started == {
        "drafter": ("0", True), "target 1": ("1", True), "target 2": ("0", False), "target 3": ("1", False),
    }  # fmt: skip


def _seen(_pipe: LauncherPipe) -> str:
    return os.environ.get("CUDA_VISIBLE_DEVICES", "")


def test_a_process_sees_only_its_gpu() -> None:
    before = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    nodes = [NodeProcess("node", _seen, gpu=gpu) for gpu in ("3", "")]
    try:
        assert [node.receive() for node in nodes] == ["3", before]
    finally:
        for node in nodes:
            node.end()


def test_samples_that_a_fault_lost_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = star(drafters={"kind": "replayed"}, verifiers={"kind": "replayed"})

    def killed(launch: Launch, _waves: object) -> Served:
        launch.measuring[""] = place = Place("drafter", "drafter", lambda: None, life=Life(1))
        place.node = SimpleNamespace(samples=[])  # type: ignore[assignment]
        return Served(log_of_run(simulate(scenario)), {})

    monkeypatch.setattr(Launch, "run", killed)
    monkeypatch.setattr("specfleet.engine.launch.serve.has_meter", lambda *_: True)
    for power, said in ((False, []), (True, ["note: drafter was killed; its samples of power until then are lost"])):
        lines: list[str] = []
        serve(scenario, power=power, report=lines.append)
        assert lines == said
