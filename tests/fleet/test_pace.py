"""The host's pace: read from controls beside the steps, played back by the simulator."""

import numpy as np
import pytest

from fleet.records.paces import paces_of
from fleet.records.run import Run, make_run
from fleet.records.schema import Row
from fleet.scenario.names import DRAFTER
from fleet.scenario.scenario import Scenario
from fleet.times.pace import Pace, pace_of, slowness_at, typical_control_s
from sim.run import simulate
from tests.helpers.logs import log_of
from tests.helpers.stars import star

REFERENCE_S = 1e-4


def engine_run(scenario: Scenario, controls: list[tuple[str, float, float]]) -> Run:
    """A run of nothing but finished steps, given as (station, time, control)."""
    rows = [
        Row(time_s, station, number, "done", "real", number, "draft", control_s=control_s)
        for number, (station, time_s, control_s) in enumerate(controls)
    ]
    return make_run(scenario, "engine", log_of(rows))


def test_slowness_is_the_mean_of_a_windows_controls_over_the_reference() -> None:
    pace = pace_of([0.1, 0.9, 1.5, 2.2], [1e-4, 2e-4, 2e-4, 1e-4], REFERENCE_S)
    assert pace.slowness == pytest.approx((1.5, 2.0, 1.0))


def test_an_interrupted_control_says_nothing_of_pace() -> None:
    assert pace_of([0.1, 0.2, 0.3], [1e-4, 1e-4, 5e-3], REFERENCE_S).slowness == pytest.approx((1.0,))


def test_a_host_that_does_not_change_has_pace_one_also_if_its_controls_have_two_levels() -> None:
    """As beside a neighbour: two of three controls are quick, the third takes twice as long, at all times."""
    controls_s = [1e-4, 1e-4, 2e-4] * 100
    pace = pace_of(np.linspace(0, 2.99, 300).tolist(), controls_s, typical_control_s(controls_s))
    assert pace.slowness == pytest.approx((1.0, 1.0, 1.0), rel=0.02)


def test_a_window_without_controls_keeps_the_slowness_before_it_and_the_first_ones_take_the_next() -> None:
    pace = pace_of([2.5, 4.5, 6.5], [1e-4, 2e-4, 1e-4], REFERENCE_S)
    assert pace.slowness == pytest.approx((1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 1.0))


def test_the_last_window_holds_on() -> None:
    pace = Pace((1.0, 3.0))
    assert [pace.at(time_s) for time_s in (0.0, 0.99, 1.0, 50.0)] == [1.0, 1.0, 3.0, 3.0]
    assert slowness_at(pace, np.array([0.0, 0.99, 1.0, 50.0])).tolist() == [1.0, 1.0, 3.0, 3.0]


def test_every_station_that_took_controls_has_a_pace() -> None:
    run = engine_run(star(), [(DRAFTER, 0.5, 1e-4), ("verifier.1", 0.5, 2e-4), ("verifier.2", 0.5, 0.0)])
    assert paces_of(run, REFERENCE_S) == {DRAFTER: Pace((1.0,)), "verifier.1": Pace((2.0,))}


def test_contended_stations_have_no_pace_because_their_controls_feel_each_other() -> None:
    here = {"device": "host"}
    contended = star(devices={"host": {"sharing": "contended"}}, drafters=here, verifiers=here)
    assert paces_of(engine_run(contended, [(DRAFTER, 0.5, 2e-4)]), REFERENCE_S) == {}


def test_a_profile_without_a_reference_gives_no_pace() -> None:
    assert paces_of(engine_run(star(), [(DRAFTER, 0.5, 2e-4)]), 0.0) == {}


def test_a_drafter_at_half_pace_takes_twice_as_long_from_then_on() -> None:
    rows = simulate(star(verifiers={"count": 1}), {DRAFTER: Pace((1.0, 2.0), window_s=20.0)}).frame()
    drafts = rows[(rows.station == DRAFTER) & (rows.event == "done") & (rows.kind == "draft")]
    begun_s = drafts.time_s - drafts.duration_s
    np.testing.assert_allclose(drafts.duration_s, np.where(begun_s < 20.0, 1.0, 2.0))


def test_a_played_back_pace_takes_the_place_of_the_profiles_mean_pace() -> None:
    load = {"half_life_s": 1.0, "loads": [0.0, 1.0], "slowdowns": [1.5, 1.5], "paces": [3.0, 3.0]}
    scenario = star(profile={"recent_load": load})

    def draft_s(paces: dict[str, Pace]) -> float:
        rows = simulate(scenario, paces).frame()
        return float(rows[(rows.event == "done") & (rows.kind == "draft")].duration_s.mean())

    assert draft_s({}) == pytest.approx(1.5 * 3.0)
    assert draft_s({DRAFTER: Pace((2.0,))}) == pytest.approx(1.5 * 2.0)


HOST = {
    "draft": {"base_s": 1.0},
    "verify": {"base_s": 2.0},
    "turnaround_s": 0.25,
    "wake_up_s": 0.5,
    "link": {"latency_s": 0.125},
    "turns": [{"handover_s": 0.25}],
}


@pytest.mark.parametrize("device", ["", "host"])
@pytest.mark.parametrize("count", [1, 4])
def test_on_a_host_at_half_pace_everything_takes_twice_as_long(device: str, count: int) -> None:
    """Steps, turnaround, wake-up, handover and the measured link."""
    own = {} if not device else {"devices": {device: {"sharing": "turns"}}}
    scenario = star(
        profile=HOST, drafters={"device": device}, verifiers={"kind": "real", "count": count, "device": device}, **own
    )
    names = [DRAFTER, *(f"verifier.{target}" for target in range(1, count + 1))]
    usual, slow = simulate(scenario).frame(), simulate(scenario, dict.fromkeys(names, Pace((2.0,)))).frame()
    assert slow.event.tolist() == usual.event.tolist()
    np.testing.assert_allclose(slow.time_s, 2 * usual.time_s)


def test_a_link_that_the_scenario_states_keeps_its_time_at_any_pace() -> None:
    scenario = star(link={"latency_s": 3.0}, verifiers={"count": 1})
    sent = [simulate(scenario, paces).frame().query("event == 'draft-request'").time_s.min() for paces in (
        {}, {DRAFTER: Pace((2.0,))},
    )]  # fmt: skip
    assert sent[0] == sent[1]
