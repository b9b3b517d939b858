"""Replayed stations of a host: read from records, predicted, held against runs; here the runs are simulated."""

import msgspec
import numpy as np
import pytest

pytest.importorskip("torch")

from calibrate.fleets import SETTLING_STEPS
from calibrate.overheads import delays_of
from experiments.differences import STATIONS
from experiments.replayed.cases import (
    CALIBRATED_ON,
    RATIOS,
    Host,
    Hosts,
    Planned,
    cells,
    fleet,
    of_host,
    table1,
    verify_time,
)
from experiments.replayed.chance import LARGEST, NEARBY_S, chance_of, long_enough, simulated_nearby
from experiments.replayed.command import print_errors
from experiments.replayed.host import host_of, host_profile, known, later, not_drafting
from experiments.replayed.outcomes import JUDGED, Outcome, outcomes_of
from fleet.records.metrics import measure
from fleet.records.playback import MECHANISM, playback_of
from fleet.scenario.scenario import Scenario
from fleet.times.overhead import Delay, Overhead, Overheads, StationOverheads
from fleet.times.profile import HardwareProfile
from fleet.times.step_time import LinkTime, Quantiles, StepTime
from sim.run import simulate
from tests.helpers.quickly import simulated
from tests.helpers.stars import star

HOST = HardwareProfile(
    name="host", draft=StepTime(), verify=StepTime(), link=LinkTime(3e-4), provenance=dict([STATIONS]),
    overhead=Overheads(StationOverheads(drafter=Overhead(Delay(2e-4), Delay(1e-4), Delay(5e-5)))),
)  # fmt: skip
DRAFTER_OF_HOST = HOST.overhead.own.drafter


HOSTS = Hosts(Host(HOST, 0.0), Host(HOST, 0.0))


@pytest.fixture(scope="module")
def read() -> HardwareProfile:
    """The profile that simulated fleets of a host give."""
    return host_profile([simulated(fleet(HOST, ratio, N, 20.0, seed=7)) for ratio in RATIOS for N in CALIBRATED_ON[1]])


def assert_read(read: HardwareProfile) -> None:
    """The overheads of HOST were read."""
    for name in ("queued", "woken", "after"):
        expected = getattr(DRAFTER_OF_HOST, name).mean_s
        assert getattr(read.overhead.own.drafter, name).mean_s == pytest.approx(expected, rel=0.01)


def test_overheads_of_a_host_are_read_from_its_records(read: HardwareProfile) -> None:
    assert_read(read)
    assert read.link.latency_s == pytest.approx(HOST.link.latency_s, rel=0.01)


def test_the_mean_lateness_of_drafts_is_found() -> None:
    """Runs whose drafts take longer than what their scenario draws."""
    runs, late_s = [], 2e-5
    for ratio, count in ((16.0, 1), (4.0, 3), (4.0, 16)):
        scenario = fleet(HOST, ratio, count, 5.0)
        longer = simulate(later(scenario, late_s))
        runs.append(msgspec.structs.replace(longer, header=msgspec.structs.replace(longer.header, scenario=scenario)))
    assert host_of(runs).late_s == pytest.approx(late_s, rel=0.01)


def test_a_drafter_that_nobody_asks_tells_nothing() -> None:
    idle = simulate(fleet(HOST, 4.0, 3, 2.0, drafters=4))
    assert not (idle.frame().query("event == 'start'").station == "drafter.4").any()
    assert len(delays_of([idle], drafters=True).after_s) > 0


def test_a_prediction_from_these_records_is_that_host(read: HardwareProfile) -> None:
    for N in (1, 4, 16):  # all targets begin at once: in which order is chance, so runs are long
        predicted, measured = (measure(simulated(fleet(profile, 4.0, N, 60.0))) for profile in (read, HOST))
        assert predicted["rounds_per_s"].value == pytest.approx(measured["rounds_per_s"].value, rel=0.005)


def test_the_overhead_of_a_busy_drafter_is_queued_and_after() -> None:
    busy = simulate(fleet(HOST, 4.0, 16, 10.0))
    queued_s, after_s, share = not_drafting(busy)
    assert (queued_s, after_s) == pytest.approx((2e-4, 5e-5), rel=1e-6)
    assert share == pytest.approx(2.5e-4 / 0.01, rel=0.05)


def test_all_cells_are_replayed_and_their_times_are_those_stated() -> None:
    planned = [*cells(HOSTS, 1.0), *table1(HOSTS, 1.0)]
    assert len({cell.slug for cell in planned}) == len(planned)
    for cell in planned:
        scenario: Scenario = cell.scenario
        assert (scenario.drafters.kind, scenario.verifiers.kind) == ("replayed", "replayed")
        assert isinstance(scenario.profile, HardwareProfile)
        assert scenario.profile.overhead == HOST.overhead
    assert of_host(HOST, 4.0).verify == verify_time(4.0)


def test_only_fleets_whose_sessions_move_are_those_behind_a_router() -> None:
    hosts = Hosts(Host(HOST, 0.0), Host(HOST, 1.0))
    late_s = {(cell.case["M"], hosts.of(cell.scenario).late_s) for cell in cells(hosts, 1.0)}
    assert late_s == {(1, 0.0), (2, 1.0), (4, 1.0)}
    assert hosts.of(star(drafters={"count": 2}, verifiers={"count": 4})) == hosts.plain  # streams stay where they are


def test_what_is_known_later_of_a_host_is_all_that_changes_in_a_cell() -> None:
    slower = Overheads(StationOverheads(drafter=Overhead(queued=Delay(7e-4))))
    linked = msgspec.structs.replace(HOST, link=LinkTime(9e-4), overhead=slower)
    hosts = Hosts(Host(linked, 1e-5), Host(linked, 2e-5))
    for cell in (*cells(HOSTS, 1.0), *table1(HOSTS, 1.0)):
        again = known(cell, hosts)
        assert isinstance(again.scenario.profile, HardwareProfile)
        assert (again.scenario.profile.link, again.scenario.profile.overhead) == (linked.link, slower)
        assert again.late_s == (1e-5 if cell.case.get("M", 1) == 1 else 2e-5)
        assert known(again, HOSTS) == cell


def test_columns_of_the_paper_s_table_make_its_rounds_with_this_host_s_links() -> None:
    """With verifications shorter by what the links take, the simulation finds what it does without links."""
    free = msgspec.structs.replace(HOST, link=LinkTime(), overhead=Overheads())
    linked = msgspec.structs.replace(free, link=HOST.link)
    hosts = [Hosts(Host(profile, 0.0), Host(profile, 0.0)) for profile in (linked, free)]
    for with_links, without in zip(*(table1(each, 5.0) for each in hosts), strict=True):
        ours, theirs = (measure(simulated(cell.scenario))["rounds_per_s"].value for cell in (with_links, without))
        assert ours == pytest.approx(theirs, rel=0.005)


def test_a_run_is_held_against_its_prediction_and_played_back() -> None:
    cell = next(iter(cells(HOSTS, 5.0)))
    run = simulate(cell.scenario)
    predicted = {name: metric.value for name, metric in measure(run).items()}
    for outcome in outcomes_of(cell, [predicted] * len(NEARBY_S), [run, run]):
        assert outcome.error == outcome.host == 0
        assert abs(outcome.mechanism) < 0.005  # delays drawn anew
        assert np.abs(outcome.unexplained).max() < 1e-9
    slower = {name: 1.5 * value for name, value in predicted.items()}
    assert outcomes_of(cell, [slower] * len(NEARBY_S), [run])[0].error == pytest.approx(0.5)


def test_a_tiny_wait_is_held_against_its_round() -> None:
    cell = next(iter(cells(HOSTS, 5.0)))  # one target: nobody else asks
    rounds, waits = outcomes_of(cell, [{"rounds_per_s": 1.0, "wait_s": 1.0}] * len(NEARBY_S), [simulate(cell.scenario)])
    assert rounds.whole == pytest.approx(rounds.measured)
    assert waits.whole == pytest.approx(1 / rounds.measured)


def test_chance_is_of_delays_alone_and_covers_what_they_do() -> None:
    """Simulations with the same steps, and delays that are drawn anew alone, differ as much as `chance` says."""
    host = msgspec.structs.replace(HOST, link=LinkTime(6e-4, spread=Quantiles((0.0, 1.0), (0.5, 1.5))))
    filled = fleet(host, 4.0, 4, 5.0)
    chance = chance_of("wait_s", simulated_nearby(filled), 4)
    steps = playback_of(simulate(filled), MECHANISM)
    others = (msgspec.structs.replace(filled, seed=100 + number) for number in range(16))
    waits_s = [measure(simulate(each, playback=steps))["wait_s"].value for each in others]
    assert 0.4 * chance < np.std(waits_s, ddof=1) / np.mean(waits_s) < 2.5 * chance
    assert chance > LARGEST


def test_where_a_microsecond_decides_who_waits_a_run_is_longer() -> None:
    """N = 4 M is just below where drafters are full at Z / S = 4, and four times as many are far beyond."""
    filled, full = (fleet(HOST, 4.0, count, 2.5, drafters=4) for count in (16, 64))
    chance = chance_of("wait_s", simulated_nearby(filled), 16)
    assert chance > LARGEST
    longer = long_enough(Planned({}, filled), JUDGED, 2).scenario
    assert longer.workload.requests == 2 * filled.workload.requests
    assert msgspec.structs.replace(longer, workload=filled.workload) == filled
    assert long_enough(Planned({}, full), ["rounds_per_s"], 2).scenario == full
    assert long_enough(Planned({}, filled), JUDGED, 1).scenario == filled


@pytest.mark.parametrize(("predicted", "status"), [(1.005, 0), (1.02, 1), (0.9, 1)])
def test_errors_beyond_the_aims_are_an_exit_status(
    predicted: float, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = [Outcome({"N": 1}, "rounds_per_s", predicted, [1.0], [1.0], [0.0], 1.0)]
    assert print_errors("rounds_per_s", outcomes) == status
    assert f"worst {abs(predicted - 1):.2%}" in capsys.readouterr().err


def test_aims_are_judged_where_the_runs_of_a_cell_agree(capsys: pytest.CaptureFixture[str]) -> None:
    steady, unsteady = ([1.0, 1.0], [0.8, 1.2])
    cells = [
        Outcome({"N": N}, "wait_s", predicted, runs, runs, [0.0, 0.0], 1.0)
        for N, predicted, runs in ((1, 1.005, steady), (2, 1.5, unsteady))
    ]
    assert print_errors("wait_s", cells) == 0
    assert "prediction: met with 0.50% and 0.50% in 1 of 2 cells" in capsys.readouterr().err
    assert print_errors("wait_s", cells[1:]) == 1
    assert "this host cannot tell" in capsys.readouterr().err


def test_what_a_worker_does_beside_drafting_is_not_asked_of_several_drafters() -> None:
    of_two = star(drafters={"count": 2}, verifiers={"count": 4}, workload={"requests": 16})
    assert np.isnan(not_drafting(simulate(of_two))).all()


def test_what_passes_behind_a_router_is_read_from_all_its_drafters() -> None:
    """In a simulation the router takes no time of its own, so that it is the same there."""
    runs = [simulate(fleet(HOST, ratio, 24, 10.0, seed=7, drafters=2)) for ratio in RATIOS]
    read = host_of(runs)
    assert_read(read.profile)
    assert read.profile.link.latency_s == pytest.approx(HOST.link.latency_s, rel=0.02)
    rows = runs[0].frame()
    drafts = rows[(rows.station == "drafter.1") & (rows.event == "done") & (rows.kind == "draft")]
    assert len(delays_of(runs[:1], drafters=True).after_s) > len(drafts) - SETTLING_STEPS
