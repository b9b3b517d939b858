"""Stages of a calibration: what is kept holds for one calibration, and a GPU without room leaves stages out."""

import datetime
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import msgspec

from specfleet.calibration.measurements import Effort
from specfleet.calibration.run import TURNS, WARM_UP, concurrent, loops_name, plan_of
from specfleet.calibration.stages import Asked, Kept, Stages, clear, provenance_of, stage_file
from specfleet.calibration.steadiness import unsteady
from specfleet.engine.launch.bodies import LESS_MEMORY, plain_body
from specfleet.engine.launch.processes import NodeProcess
from specfleet.experiments.notes import notes_of
from specfleet.fleet.acceptance.models import Recorded
from specfleet.fleet.errors import DeviceMemoryError, InputError, NodeDiedError, NodeKilledError, UnsteadyHostError
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import change_scenario, make_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.describe import describe
from specfleet.fleet.times.labels import MEANINGS, left_out_of
from tests.helpers.pretended_host import GB, LARGEST, PAIRS, SMALL, SMALLEST, TIMES, PretendedHost, scenario_of
from tests.helpers.quickly import simulated
from tests.helpers.stars import star

SMALLER, TURN_AND_CONTENTION = "Vicuna-7B, 68M", {"contention", "time_sliced"}


def host(size_gb: float, pair: str, monkeypatch: pytest.MonkeyPatch, shared: bool = False) -> PretendedHost:
    made = PretendedHost(size_gb * GB, pair, shared)
    made.replace_engine(monkeypatch)
    return made


# A GPU's memory.


@pytest.mark.parametrize("pair", PAIRS)
def test_a_pair_that_does_not_fit_is_refused_in_a_line(
    pair: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = host(8, pair, monkeypatch)
    with pytest.raises(DeviceMemoryError, match=r"^target: its device is out of memory"):
        small.calibrate(scenario_of(pair, tmp_path), tmp_path / "kept")
    assert small.measured == []


@pytest.mark.parametrize("pair", PAIRS)
def test_24_gb_leave_out_what_needs_two_targets(pair: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, scenario = host(24, pair, monkeypatch), scenario_of(pair, tmp_path)
    profile = gpu.calibrate(scenario, tmp_path / "kept")
    assert left_out_of(profile).keys() == TURN_AND_CONTENTION
    assert profile.contention == (1.0,)
    assert profile.overhead.time_sliced is None
    assert ("alone" in profile.measured) == (pair != "Vicuna-7B, EAGLE"), "a head's process loads a target, too"
    assert all(line.startswith("left out: ") and "out of memory; the profile lacks " in line for line in gpu.lines)
    assert len(gpu.lines) == 2


@pytest.mark.parametrize("pair", PAIRS)
def test_80_gb_hold_every_stage(pair: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = host(80, pair, monkeypatch)
    profile = gpu.calibrate(scenario_of(pair, tmp_path), tmp_path / "kept")
    assert gpu.peak_bytes > 24 * GB
    assert not left_out_of(profile)
    assert len(profile.contention) == SMALL.concurrent_targets
    assert gpu.reported == [stage.name for stage in plan_of(scenario_of(pair, tmp_path), SMALL)]
    assert gpu.lines == []


@pytest.mark.parametrize(
    ("size_gb", "shared", "pair", "lacks"),
    [
        (8, False, SMALLEST, TURN_AND_CONTENTION),
        (24, False, SMALLER, TURN_AND_CONTENTION),
        (64, True, LARGEST, TURN_AND_CONTENTION),
        (80, False, LARGEST, {"contention"}),
    ],
)
def test_a_calibration_ends_with_a_profile(
    size_gb: float, shared: bool, pair: str, lacks: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = host(size_gb, pair, monkeypatch, shared)
    profile = gpu.calibrate(scenario_of(pair, tmp_path), tmp_path / "kept")
    assert left_out_of(profile).keys() == lacks
    assert len(gpu.lines) == len(lacks)
    assert all(("was killed by SIGKILL, as Linux" in line) == shared for line in gpu.lines)
    assert profile.verify.mean_s(6, 150) == pytest.approx(TIMES["verify"].mean_s(6, 150), rel=0.05)
    assert simulated(star(profile=profile)).table.num_rows > 0


def test_a_killed_process_lacks_memory_and_a_crashed_one_has_a_bug() -> None:
    def ended_by(number: int) -> None:
        node = NodeProcess("target 2", plain_body, partial(signal.raise_signal, number), light=True)
        try:
            node.receive()
        finally:
            node.end()

    stages, killed = Stages(Kept(None)), partial(ended_by, signal.SIGKILL)
    assert stages.take("two", killed, "contention") is None
    assert stages.left_out["contention"] == "two: target 2 was killed by SIGKILL, as Linux kills what has no memory"
    with pytest.raises(DeviceMemoryError, match=rf"^target 2 was killed by SIGKILL, as .*; {LESS_MEMORY}$"):
        stages.take("one", killed)
    with pytest.raises(NodeDiedError, match="killed by SIGSEGV") as crashed:
        stages.take("two", partial(ended_by, signal.SIGSEGV), "contention")
    assert not isinstance(crashed.value, NodeKilledError)


def test_stages_are_left_out_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, scenario = host(80, SMALLER, monkeypatch), scenario_of(SMALLER, tmp_path)
    profile = gpu.calibrate(scenario, tmp_path / "kept", asked=Asked((WARM_UP, "2 targets that take", "3 targets")))
    assert left_out_of(profile) == {
        "warm_up": f"{WARM_UP}: as asked", "time_sliced": f"{TURNS}: as asked",
        "contention": f"{concurrent(3)}: as asked",
    }  # fmt: skip
    assert len(profile.contention) == 2
    gpu.measured.clear()
    for name in ("", "acceptance", "3 apples"):
        with pytest.raises(InputError, match=rf"^without = '{name}': .*: {WARM_UP}; {TURNS}; 1 target at once"):
            gpu.calibrate(scenario, tmp_path / "kept", asked=Asked((name,)))
    assert gpu.measured == []


# An unsteady host.


def test_a_rerun_repeats_what_made_the_fit_impossible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, scenario, folder = host(80, SMALLER, monkeypatch), scenario_of(SMALLER, tmp_path), tmp_path / "kept"
    rough = [loops_name(1, number, 3) for number in range(4)]
    gpu.rough = set(rough)
    with pytest.raises(UnsteadyHostError, match=r"% off their fit, twice; no profile is written; repeat"):
        gpu.calibrate(scenario, folder)
    gpu.measured.clear()
    profile = gpu.calibrate(scenario, folder, asked=Asked(accept_unsteady=True))
    assert len(gpu.measured) == len(rough), "no other stage"
    gpu.measured.clear()
    gpu.rough = set()
    steady = gpu.calibrate(scenario, folder)
    assert len(gpu.measured) == len(rough) - 1, "not again"
    for made, warning in ((profile, "step times measured on an unsteady host"), (steady, "")):
        asked = star(profile=made)
        run, shown = simulated(asked), {value for _, value, _ in describe(made)}
        assert run.warning == warning
        assert (unsteady(made) or "").endswith("off their fit; repeat on a quiet host" * bool(warning))
        assert ("step times measured on an unsteady host" in shown) == bool(warning)
        assert [note for note in notes_of(asked) if "unsteady" in note] == [
            f"profile {made.name}: {warning}; calibrate again on a quiet host"
        ] * bool(warning)


# What a profile lacks.


def test_what_a_profile_lacks_is_said_where_it_matters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, scenario = host(24, SMALLER, monkeypatch), scenario_of(SMALLER, tmp_path)
    profile = gpu.calibrate(scenario, tmp_path / "kept")
    shown = {quantity: value for quantity, value, _ in describe(profile) if value.startswith("not measured: ")}
    assert list(shown) == [MEANINGS[missing] for missing in ("contention", "time_sliced")]
    assert all(value.endswith("its device is out of memory") for value in shown.values())

    def notes(sharing: str) -> list[str]:
        devices = {"devices.gpu": {"sharing": sharing}, "drafters.device": "gpu", "verifiers.device": "gpu"}
        scenario = change_scenario(star(profile=profile), devices if sharing else {})
        return [note for note in notes_of(scenario) if "lacks" in note]

    assert notes("") == []
    for sharing, lack in (("contended", "steps at once"), ("turns", "take turns")):
        assert len(notes(sharing)) == 1
        assert lack in notes(sharing)[0]
        assert "out of memory" in notes(sharing)[0]


# Texts as the scenario has them.


def test_prompts_longer_than_a_step_are_calibrated_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, runs = host(80, SMALLER, monkeypatch), list[Run]()

    def serve(scenario: Scenario, folder: Path) -> SimpleNamespace:
        runs.append(gpu.serve(scenario, folder).run)
        return SimpleNamespace(run=runs[-1])

    monkeypatch.setattr("specfleet.calibration.run.serve", serve)
    chunked = change_scenario(scenario_of(SMALLER, tmp_path), {"verifiers.max_num_batched_tokens": 48})
    profile = gpu.calibrate(chunked, tmp_path / "kept")
    assert all((run.frame().kind == "chunk").any() for run in runs)
    assert profile.verify_prefill.mean_s(48, 0) == pytest.approx(TIMES["verify_prefill"].mean_s(48, 0))


def test_sampled_drafts_are_accepted_as_the_scenario_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, served = host(80, SMALLER, monkeypatch), list[Scenario]()

    def serve(scenario: Scenario, folder: Path) -> object:
        served.append(scenario)
        return gpu.serve(scenario, folder)

    monkeypatch.setattr("specfleet.calibration.run.serve", serve)
    sampling = {"workload.temperature": 0.7, "workload.top_k": 50, "verifiers.rule": "match"}
    profile = gpu.calibrate(change_scenario(scenario_of(SMALLER, tmp_path), sampling), tmp_path / "kept")
    assert not any(one.workload.temperature for one in served), "replayed targets are greedy"
    (own,) = [one for one in gpu.loops if one.workload.temperature]
    assert (own.workload.temperature, own.workload.top_k, own.verifiers.rule) == (0.7, 50, "match")
    assert isinstance(profile.acceptance, Recorded)
    assert len(profile.acceptance.sessions) == own.workload.requests == SMALL.prompts
    assert gpu.lines == [f"note: {profile.provenance['sampling']}"]
    assert "greedy" in gpu.lines[0]


# Kept results.


def test_a_calibration_goes_on_after_its_last_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, scenario, folder = host(80, SMALLER, monkeypatch), scenario_of(SMALLER, tmp_path), tmp_path / "kept"
    gpu.fails = "links"
    with pytest.raises(RuntimeError, match="links fails once"):
        gpu.calibrate(scenario, folder)
    before, stages = gpu.measured.copy(), [stage.name for stage in plan_of(scenario, SMALL)]
    done = stages[: stages.index("links")]
    assert {file.name for file in folder.iterdir()} == {stage_file(folder, stage).name for stage in done}
    gpu.measured.clear()
    resumed = gpu.calibrate(scenario, folder)
    assert gpu.lines == [f"3 of {len(stages)} stages are kept from an earlier try; remove {folder} to measure all anew"]
    after = gpu.measured.copy()
    gpu.measured.clear()
    whole = gpu.calibrate(scenario, tmp_path / "another")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    assert resumed.provenance["kept"] == f"3 stages of an earlier try, of {today}"
    assert "kept" not in whole.provenance
    assert gpu.measured == before + after
    unwritten = {"provenance": {}}
    assert msgspec.structs.replace(resumed, **unwritten) == msgspec.structs.replace(whole, **unwritten)


def test_kept_stages_of_others_are_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, scenario, folder = host(80, SMALLER, monkeypatch), scenario_of(SMALLER, tmp_path), tmp_path / "kept"
    gpu.calibrate(scenario, folder)

    def is_kept(scenario: Scenario = scenario, effort: Effort = SMALL) -> bool:
        gpu.measured, gpu.lines, gpu.fails = [], [], "target"
        with suppress(RuntimeError):
            gpu.calibrate(scenario, folder, effort)
        began = gpu.fails == ""
        assert began != any("are kept" in line for line in gpu.lines)
        return not began

    assert is_kept()
    assert gpu.measured == [], "no stage is measured twice"
    assert not is_kept(change_scenario(scenario, {"workload.new_tokens": 90}))
    assert not is_kept(change_scenario(scenario, {"workload.temperature": 1.0}))
    assert not is_kept(effort=msgspec.structs.replace(SMALL, pings=4))
    (Path(scenario.verifiers.model) / "config.json").touch()
    assert not is_kept(), "the target may be another one"
    gpu.gpu = "NVIDIA Other"
    assert not is_kept()


def test_a_damaged_stage_is_measured_anew(tmp_path: Path) -> None:
    kept = Kept(tmp_path, "this")
    kept.write("a stage", [1, 2, 3])
    kept_stage = kept.read("a stage", list[int])
    assert kept_stage is not None
    assert kept_stage[0] == [1, 2, 3]
    whole = stage_file(tmp_path, "a stage").read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        stage_file(tmp_path, "a stage").write_bytes(damaged)
        assert kept.read("a stage", list[int]) is None
    stage_file(tmp_path, "a stage").write_bytes(whole)
    assert kept.read("a stage", list[str]) is None, "content of another version"


def test_what_was_left_out_is_measured_once_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, scenario, folder = host(24, SMALLER, monkeypatch), scenario_of(SMALLER, tmp_path), tmp_path / "kept"
    assert left_out_of(gpu.calibrate(scenario, folder))
    gpu.size_bytes = 80 * GB
    gpu.measured.clear()
    assert not left_out_of(gpu.calibrate(scenario, folder))
    names = [f"{targets} real targets share a device: {rule}" for targets, rule in ((2, "turns"), (2, "contended"))]
    assert gpu.measured[:2] == names
    assert TURNS in gpu.reported


def test_runs_are_kept_whole(tmp_path: Path) -> None:
    run, kept = simulated(star(name="kept")), Kept(tmp_path, "this")
    kept.write("a stage", {"runs": [run]}, ["a note"])
    kept_stage = kept.read("a stage", dict[str, list[type(run)]])  # type: ignore[misc]
    assert kept_stage is not None
    (again,), notes = kept_stage[0]["runs"], kept_stage[1].notes
    assert again.header == run.header
    assert again.table.equals(run.table)
    assert notes == ("a note",)
    assert kept.read("another stage", dict) is None
    assert Kept(tmp_path, "that").read("a stage", dict) is None


def test_only_kept_files_are_cleared(tmp_path: Path) -> None:
    folder = tmp_path / "pair.calibration"
    Kept(folder, "this").write("a stage", 1)
    (folder / "own.txt").write_text("mine")
    clear(folder)
    assert [file.name for file in folder.iterdir()] == ["own.txt"]
    (folder / "own.txt").unlink()
    clear(folder)
    assert not folder.exists()
    clear(folder)


def test_a_profile_names_models_and_prompts_by_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small").mkdir()
    monkeypatch.chdir(tmp_path)
    named = provenance_of(make_scenario({"drafters": {"model": "small"}, "workload": {"prompts": "mine.jsonl"}}))
    assert named["drafter_model"] == str(tmp_path / "small")
    assert named["target_model"] == "demo"
    assert named["prompts_file"] == str(tmp_path / "mine.jsonl")
