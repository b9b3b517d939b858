"""Shipped scenarios as this host can run them, and how a run of one is judged; here most runs are simulated."""

from pathlib import Path
from typing import Literal

import msgspec
import pytest

pytest.importorskip("torch")

from calibrate.batches import Grid, measure_pass
from engine.demo_pair.corpus import read_prompts
from engine.launch.serve import serve
from experiments.compare import Error, compare_reruns
from experiments.reruns import replicate, simulated_reruns
from experiments.shipped import here
from experiments.shipped.command import MECHANISM_AIM, PREDICTION_AIM, Shown, show
from experiments.shipped.here import PROMPTS, fleet_here, lasting, replayed, run_batch
from fleet.data.shipped import shipped_scenarios
from fleet.records.metrics import measure
from fleet.records.run import read_run
from fleet.scenario.links import holds_links
from fleet.scenario.reading import read_scenario
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle
from fleet.times.overhead import Delay, Overhead, Overheads, StationOverheads
from fleet.times.profile import HardwareProfile, read_profile
from fleet.times.step_time import StepTime
from sim.run import simulate
from tests.helpers.marks import slow

HOST = HardwareProfile(
    name="host",
    draft=StepTime(),
    verify=StepTime(),
    overhead=Overheads(StationOverheads(drafter=Overhead(Delay(2e-4), Delay(1e-4), Delay(5e-5)))),
)
SCENARIOS = {name: read_scenario(path, base=Path()) for name, path in shipped_scenarios().items()}
FLEETS = {name: scenario for name, scenario in SCENARIOS.items() if scenario.batch is None}


def a_run(scenario: Scenario) -> Shown:
    """What a simulated run of a scenario shows."""
    run = simulate(scenario)
    rows = compare_reruns({}, replicate(scenario, 2, {}), simulated_reruns(scenario, [run]))
    return Shown("replayed", scenario.workload.requests, [], rows)


@pytest.mark.parametrize("name", FLEETS)
def test_every_fleet_waits_for_its_own_times_and_links_with_the_delays_of_the_host(name: str) -> None:
    as_here, own = replayed(FLEETS[name], HOST), settle(FLEETS[name])
    settled = settle(as_here)
    assert (as_here.drafters.kind, as_here.verifiers.kind) == ("replayed", "replayed")
    assert settled.drafter_times(0).draft == own.drafter_times(0).draft
    assert settled.verifier_times(0).verify == own.verifier_times(0).verify
    assert isinstance(as_here.profile, HardwareProfile)
    assert as_here.profile.overhead == HOST.overhead
    assert holds_links(settled) or name == "amusd", "it states no link"
    assert as_here.faults == FLEETS[name].faults


@pytest.mark.parametrize("name", [name if name in ("star", "goodspeed") else slow(name) for name in FLEETS])
def test_a_run_has_the_share_of_its_requests_that_takes_about_as_long_as_asked(name: str) -> None:
    scenario = FLEETS[name]
    short = lasting(scenario, 20.0, scenario.workload.requests)
    took_s = simulate(short).frame().time_s.max()
    assert took_s < 40.0 or short.workload.requests <= scenario.workload.requests // 10 + 1
    assert short.workload.requests == scenario.workload.requests or took_s > 10.0


def test_a_batch_takes_more_requests_than_its_own_where_there_are_prompts_and_time() -> None:
    scenario = SCENARIOS["slots"]
    own_s = simulate(scenario).frame().time_s.max()
    twice = lasting(scenario, 2.0 * own_s, PROMPTS)
    assert scenario.workload.requests < twice.workload.requests < PROMPTS
    assert simulate(twice).frame().time_s.max() == pytest.approx(2.0 * own_s, rel=0.1)
    assert lasting(scenario, 100.0 * own_s, PROMPTS).workload.requests == PROMPTS


@pytest.mark.parametrize("group", ["calibration", "evaluation"])
def test_the_demo_pair_has_as_many_prompts_as_are_asked_of_it(group: Literal["calibration", "evaluation"]) -> None:
    assert len(read_prompts(group)) == PROMPTS


def test_faults_at_stated_times_keep_all_requests() -> None:
    scenario = FLEETS["dying-drafter"]
    assert fleet_here(scenario, HOST, 1.0).workload == scenario.workload


def test_a_run_is_beyond_by_its_log_by_its_mechanism_and_by_its_prediction() -> None:
    shown = a_run(fleet_here(SCENARIOS["star"], HOST, 5.0))
    assert not shown.beyond
    assert abs(shown.mechanism) < 1e-9
    assert msgspec.structs.replace(shown, contradictions=["drafter: row 3"]).beyond

    def off(**errors: float) -> Shown:
        told = {name: Error(value, value, value, abs(value)) for name, value in errors.items()}
        return msgspec.structs.replace(shown, rows=[msgspec.structs.replace(shown.judged, **told)])

    assert off(mechanism=-1.1 * MECHANISM_AIM).beyond
    assert off(parameters=1.1 * PREDICTION_AIM).beyond
    assert off(mechanism=float("nan")).beyond, "what is not known reaches no aim"
    assert not off(parameters=1.1 * PREDICTION_AIM, paced=0.0).beyond, "at the run's pace, where that is known"


@pytest.mark.slow
def test_a_run_of_processes_replays_and_leaves_its_comparison(tmp_path: Path) -> None:
    (tmp_path / "star").mkdir()
    scenario = fleet_here(SCENARIOS["star"], HOST, 3.0)
    shown = show(scenario, serve(scenario).run, 0.0, tmp_path / "star")
    assert shown.contradictions == []
    run = read_run(tmp_path / "star" / "engine.parquet")
    assert shown.judged.engine == pytest.approx(measure(run)["throughput"].value)
    assert abs(shown.mechanism) < 0.2, "however busy this host is: its steps and its waits for cores are played back"
    assert {path.name for path in (tmp_path / "star").iterdir()} == {"engine.parquet", "comparison.json"}


@pytest.mark.slow
def test_a_batch_is_predicted_by_what_was_measured_before_its_run_and_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(here, "measure_pass", lambda *given: (done.append(f"pass {given[2]}"), measure_pass(*given)))
    monkeypatch.setattr(here, "serve", lambda scenario: (done.append("run"), serve(scenario))[1])
    monkeypatch.setattr(here, "GRID", Grid(passes=1, depths=(1, 5), recorded=12))
    scenario, run = run_batch(SCENARIOS["slots"], 1.0, tmp_path)
    assert done == ["pass 0", "run", "pass 1"]
    assert scenario.profile == read_profile("profile.json", tmp_path)
    assert scenario.profile != run.header.scenario.profile
    shown = show(scenario, run, 0.0, tmp_path)
    assert shown.contradictions == []
    assert abs(shown.mechanism) < 0.2
