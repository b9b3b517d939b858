"""Studies that need processes or models: a quick case of each shows that it runs, and judges what it says."""

import argparse
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")

import specfleet
from bench import growth, replayed, serving, shipped, speed, tiers
from bench.decoding import contest, ours, theirs, timed
from bench.replayed import RATIOS, SMALL_FLEETS, WORST_AIM, Host, aims, compared, fleet, hosts_of, small_fleets
from bench.shipped import MECHANISM_AIM, REPLAYED, lasting
from specfleet.calibration.effects import delays_of, overhead_of
from specfleet.engine.decoding.models import load_model
from specfleet.engine.decoding.sampling import Sampling
from specfleet.engine.demo_pair.corpus import read_prompts
from specfleet.engine.node.real import verifier_node
from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.records.playback import ways_of
from specfleet.fleet.records.replay import replay
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.times.overhead import Overheads, StationOverheads
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import LinkTime, StepTime
from tests.helpers.marks import slow
from tests.helpers.plain import served_here

NOTHING = Host(StationOverheads(), LinkTime(), 0.0)
SCENARIOS = {name: specfleet.scenario_of(name) for name in shipped_files("scenarios")}
FLEETS = [name for name, scenario in SCENARIOS.items() if scenario.drafters.place == "own"]


def simulated(ratio: float, drafters: int, targets: int, seconds: float = 2.0) -> specfleet.Result:
    return specfleet.simulate(fleet(ratio, drafters, targets, seconds))


@pytest.mark.parametrize("drafters", replayed.DRAFTERS)
@pytest.mark.parametrize("ratio", RATIOS)
def test_fleets_last_about_as_long_as_asked(ratio: float, drafters: int) -> None:
    for targets in (1, 8):
        assert 2.0 < simulated(ratio, drafters, targets, 5.0).rows().time_s.max() < 12.0


def test_small_fleets_are_none_that_are_predicted() -> None:
    assert all(targets not in replayed.COUNTS for counts in SMALL_FLEETS.values() for targets in counts)
    assert {resolve(scenario).routed for scenario in small_fleets(1.0).values()} == {False, True}


def test_simulated_fleets_show_no_overhead() -> None:
    hosts = hosts_of(simulated(4.0, drafters, 3) for drafters in (1, 2))
    for host in hosts.values():
        assert (host.link.latency_s, host.late_s) == pytest.approx((0.0, 0.0), abs=1e-12)
        for side in (host.overhead.drafter, host.overhead.target):
            assert max(side.queued.mean_s, side.woken.mean_s, side.after.mean_s) == pytest.approx(0.0, abs=1e-12)


def test_a_host_keeps_stated_links() -> None:
    host = msgspec.structs.replace(NOTHING, link=LinkTime(1e-3), late_s=1e-4)
    stated = SCENARIOS["star"].profile
    assert isinstance(stated, HardwareProfile)
    linked = msgspec.structs.replace(stated, link=LinkTime(5e-3))
    assert host.added_to(linked).link == linked.link
    assert host.added_to(msgspec.structs.replace(stated, link=LinkTime())).link == host.link
    assert host.added_to(stated).draft.base_s == pytest.approx(stated.draft.base_s + 1e-4)


def test_a_fleet_without_overhead_is_predicted() -> None:
    row = compared([simulated(4.0, 1, 2, 5.0)], NOTHING, seeds=2)["rounds_per_s"]
    assert row["mechanism, %"] == pytest.approx(0.0, abs=0.5)
    assert abs(row["error, %"]) < 5


def test_a_tiny_wait_is_held_against_its_round() -> None:
    row = compared([simulated(16.0, 1, 2, 5.0)], NOTHING, seeds=2)["wait_s"]
    assert abs(row["error, %"]) < 100 * abs(row["simulated"] / row["measured"] - 1)


def test_aims_count_fleets_whose_runs_agree() -> None:
    steady = {"mechanism, %": 0.5, "error, %": -2.0, "host, %": 1.0}
    restless = {"mechanism, %": 50.0, "error, %": 50.0, "host, %": 2 * WORST_AIM}
    found = aims("rounds_per_s", [steady, restless])
    assert [(aim.value, aim.verdict) for aim in found] == [(0.5, "met"), (0.5, "met"), (2.0, "missed"), (2.0, "met")]
    assert {aim.verdict for aim in aims("rounds_per_s", [restless])} == {"missed"}


@pytest.mark.parametrize("name", [name if name == "star" else slow(name) for name in FLEETS])
def test_a_fleet_runs_its_share_of_requests(name: str) -> None:
    scenario = specfleet.scenario_of(SCENARIOS[name], REPLAYED)
    short = lasting(scenario, 20.0)
    took_s = specfleet.simulate(short).rows().time_s.max()
    if scenario.faults:
        assert short == scenario
    else:
        assert took_s < 40.0 or short.workload.requests <= scenario.workload.requests // 10 + 1
        assert short.workload.requests == scenario.workload.requests or took_s > 10.0


@pytest.mark.slow
def test_a_shipped_fleet_runs_and_is_judged(tmp_path: Path) -> None:
    row = shipped.fleet_row("star", 3.0, NOTHING, tmp_path)
    assert row["log replays"]
    assert row["tokens/s"] > 0
    assert abs(row["mechanism, %"]) < 10 * MECHANISM_AIM, "however busy this host is"
    assert (tmp_path / "engine.parquet").exists()


@pytest.mark.slow
def test_replayed_fleets_run_and_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replayed, "DRAFTERS", (1,))
    monkeypatch.setattr(replayed, "RATIOS", (4.0,))
    monkeypatch.setattr(replayed, "SMALL_FLEETS", {1: (3,), 2: (3,)})
    report = replayed.study(argparse.Namespace(seconds=0.5, passes=1, counts=[2], seeds=2))
    for quantity in replayed.JUDGED:
        (row,) = report.tables[f"{quantity}: simulated, and as processes"]
        assert row["measured"] > 0
    assert len(report.aims) == 8


def test_stations_of_two_tiers_keep_their_own_times() -> None:
    """Steps draw what the simulation draws, and the host only adds to them, and to links."""
    short = tiers.star(0.0), {"workload.new_tokens": 12}
    ran, simulated = specfleet.run(*short).run, specfleet.simulate(*short).run
    steps = [
        of.frame().query("event == 'done' and station != 'drafter'").sort_values(["station", "seq"], ignore_index=True)
        for of in (ran, simulated)
    ]
    assert steps[0][["station", "kind", "accepted"]].equals(steps[1][["station", "kind", "accepted"]])
    late_s = steps[0].duration_s - steps[1].duration_s
    assert late_s.min() > -1e-6
    assert late_s.median() < 0.02, "a step of the other tier takes 0.1 s more or less"
    for way in ways_of(ran):
        is_far = {way.sender, way.receiver} & {"verifier.3", "verifier.4"}
        assert way.arrived_s - way.left_s > tiers.LINK_S[bool(is_far)] - 1e-6
    assert {row["of"].split(", ")[1] for row in tiers.errors(ran)} == set(tiers.TIERS)


@pytest.mark.parametrize(
    ("kind", "load"),
    [("prompt lookup", {"streams": 4}), slow("small model", {"arrivals": {"process": "poisson", "per_s": 8.0}})],
)
def test_a_serving_target_runs_as_it_is_simulated(kind: str, load: dict[str, Any]) -> None:
    """With all of a run played back the steps are equal, on any host; with its steps and acceptance alone, the means.

    The delays around its steps are then drawn from the run's own.
    """
    unmeasured = HardwareProfile("p", draft=StepTime(), verify=StepTime())
    scenario = serving.scenario_with(kind, load | {"requests": 12}, unmeasured)
    run, _ = served_here(lambda fleet, prompts: verifier_node(fleet, 0, prompts, {}), scenario)
    assert replay(run) == []
    assert serving.repeats(run)
    own = Overheads(StationOverheads(target=overhead_of(delays_of([run], drafters=False))))
    result = specfleet.Result(run)
    played = specfleet.play_back(result, changes={"profile": msgspec.structs.replace(unmeasured, overhead=own)})
    for quantity in serving.JUDGED:
        assert played.metrics[quantity].value == pytest.approx(result.metrics[quantity].value, rel=0.05), quantity


def test_all_ways_to_decode_take_their_turn() -> None:
    small, large = (load_model("demo", role) for role in ("drafter", "target"))
    prompts = [prompt[:16] for prompt in read_prompts("evaluation")[:1]]
    given: tuple[Any, ...] = (prompts, small, large, 3, Sampling())
    ways = ours(*given, new_tokens=4) | theirs(*given, new_tokens=4)
    rows = contest(timed(ways, large.device), 1, "ours, chain")
    assert len(rows) == len(ways)
    assert all(row["tokens/s"] > 0 for row in rows)


@pytest.mark.parametrize("load", growth.LOADS)
def test_loads_of_the_growth_study_run_in_the_loop(load: str) -> None:
    pytest.importorskip("numba")
    assert growth.loaded(load, 50) > 0


def test_growth_is_the_worst_from_one_size_to_the_next() -> None:
    (row,) = growth.rows_of({"x": [growth.Cost(used_s, 9.0, 1.0) for used_s in (1.0, 15.0, 60.0)]}, [10, 100, 1000], 2)
    assert (row["growth"], row["us, 1000"], row["MB, 10"]) == (1.5, 30_000, 9)


@pytest.mark.parametrize("work", [lambda: speed.bare_rounds(2, 20), lambda: speed.measured_rounds(speed.star(2, 2))])
def test_contestants_of_the_simulator_complete_rounds(work: Any) -> None:
    assert work() >= 20
    assert speed.rate_of(work)["rounds/s"] > 0
