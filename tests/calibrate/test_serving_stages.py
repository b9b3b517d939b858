"""Stages of a serving target's calibration: numbers of rows without room are left out, finished loops stay."""

from pathlib import Path

import msgspec
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from specfleet.calibration.host import calibrate
from specfleet.calibration.loops import Elsewhere, run_loops
from specfleet.calibration.measurements import Effort
from specfleet.calibration.run import bench_of, loops_name
from specfleet.calibration.run import calibrate as calibrate_scenario
from specfleet.calibration.stages import Asked
from specfleet.engine.launch.bodies import LESS_MEMORY
from specfleet.experiments.notes import notes_of
from specfleet.fleet.errors import DeviceMemoryError, InputError
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import change_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.labels import left_out_of
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import StepTime
from tests.helpers.pretended_host import GB, LARGEST, PROFILE, SMALLEST, PretendedHost, scenario_of

PAIR, EFFORT = "Vicuna-7B, 68M", Effort(passes=2, recorded=6)
SERVED = msgspec.structs.replace(PROFILE, verify=StepTime(0.006, 0.001, 1e-5, per_row_s=0.0005))


class ServingHost(PretendedHost):
    """Its target drafts on its own device."""

    def __init__(self, size_gb: float, monkeypatch: pytest.MonkeyPatch, pair: str = PAIR, shared: bool = False) -> None:
        super().__init__(size_gb * GB, pair, shared)
        self.replace_engine(monkeypatch)
        self.profile = SERVED

    @property
    def rows(self) -> list[int]:
        """Rows of the loops, in order."""
        return [loop.workload.streams for loop in self.loops]


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    serving = {"drafters.place": "target", "verifiers.max_num_seqs": 16}
    return change_scenario(scenario_of(PAIR, tmp_path), serving)


def test_numbers_of_rows_without_room_are_left_out(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = ServingHost(16.2, monkeypatch)
    profile = host.calibrate(scenario, tmp_path / "kept", EFFORT)
    assert set(host.rows) == {1, 4}, "acceptance, too, is recorded with rows that fit"
    assert left_out_of(profile).keys() == {"rows"}
    assert len(host.lines) == 1
    assert host.lines[0].startswith(
        f"left out: {loops_name(16, 0, EFFORT.passes)}: target: its device is out of memory"
    )

    def notes(rows: int) -> list[str]:
        changes = {"verifiers.max_num_seqs": rows, "drafters.place": "target"}
        return [note for note in notes_of(change_scenario(Scenario("s", profile=profile), changes)) if "lacks" in note]

    assert notes(1) == []
    assert "extrapolated" in notes(8)[0]


def test_a_target_without_room_for_one_row_is_refused(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = ServingHost(14, monkeypatch)
    with pytest.raises(DeviceMemoryError, match=rf"^target: its device is out of memory; {LESS_MEMORY}$"):
        host.calibrate(scenario, tmp_path / "kept", EFFORT)


@pytest.mark.parametrize(
    ("size_gb", "shared", "pair", "most"),
    [(8, False, SMALLEST, 4), (24, False, PAIR, 4), (64, True, LARGEST, 16), (80, False, LARGEST, 64)],
)
def test_a_calibration_ends_with_a_profile(
    size_gb: float, shared: bool, pair: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = ServingHost(size_gb, monkeypatch, pair, shared)
    lengths = {"workload.prompt_tokens": 2000, "workload.new_tokens": 24, "verifiers.max_num_seqs": 64}
    served = change_scenario(scenario_of(pair, tmp_path), {"drafters.place": "target"} | lengths)
    profile = host.calibrate(served, tmp_path / "kept", EFFORT)
    assert max(host.rows) == most
    assert left_out_of(profile).keys() == ({"rows"} if most < 64 else set())
    assert all(("was killed by SIGKILL, as Linux" in line) == shared for line in host.lines)
    assert profile.decode.mean_s(1, 2000) == pytest.approx(SERVED.decode.mean_s(1, 2000), rel=0.1)


def test_rows_are_left_out_by_name(scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = ServingHost(24, monkeypatch)
    profile = host.calibrate(scenario, tmp_path / "kept", EFFORT, Asked(("steps of 16",)))
    assert set(host.rows) == {1, 4}
    assert left_out_of(profile) == {"rows": f"{loops_name(16, 0, EFFORT.passes)}: as asked"}
    with pytest.raises(InputError, match=r"^without = 'steps of 1 ': .*: steps of 4 rows, pass 1 of 2; steps of 16 "):
        host.calibrate(scenario, tmp_path / "kept", EFFORT, Asked(("steps of 1 ",)))


def test_finished_passes_stay(scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = ServingHost(24, monkeypatch)
    host.fails = "16 rows"
    with pytest.raises(RuntimeError):
        host.calibrate(scenario, tmp_path / "kept", EFFORT)
    before = host.rows
    host.loops = []
    profile = host.calibrate(scenario, tmp_path / "kept", EFFORT)
    assert before == [1, 1, 1, 4, 4, 4]
    assert host.rows[:3] == [16, 16, 16]
    assert host.lines == [f"2 of 7 stages are kept from an earlier try; remove {tmp_path / 'kept'} to measure all anew"]
    assert not left_out_of(profile)


def test_notes_of_kept_stages_are_in_the_profile(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, said = ServingHost(24, monkeypatch), iter(["slow", "slower"])
    host.fails = "16 rows"

    def calibrated_elsewhere() -> HardwareProfile:
        notes = list[str]()

        def run(loop: Scenario) -> Run:
            notes.extend([next(said, "")] if loop.workload.streams == 1 else [])
            ((simulated, _),) = host.in_process(f"{loop.workload.streams} requests", run_loops, [loop])
            return simulated

        server = Elsewhere(run, "a server", notes, (5,))
        bench = bench_of(scenario, tmp_path / "kept", EFFORT, host.reported.append, elsewhere=server, keep=True)
        return calibrate_scenario(scenario, bench, tmp_path / "signals")

    with pytest.raises(RuntimeError):
        calibrated_elsewhere()
    provenance = calibrated_elsewhere().provenance
    assert provenance["kept"].startswith("2 stages of an earlier try, of 20")
    assert provenance["notes"] == "slow; and 1 more", "the first is of a kept stage"


def test_a_target_without_a_drafter_is_measured_as_it_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = ServingHost(24, monkeypatch)
    plain = change_scenario(scenario_of(PAIR, tmp_path), {"drafters.count": 0, "verifiers.max_num_seqs": 16})
    profile = calibrate(plain, quick=True, report=host.reported.append)
    assert host.rows == [1, 4, 16] * 3, "a loop a stage, without drafts"
    assert len(host.reported) == 9
    assert profile.acceptance is None
    assert profile.decode.mean_s(1, 150) == pytest.approx(SERVED.decode.mean_s(1, 150), rel=0.1)
