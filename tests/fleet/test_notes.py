"""Notes name what a scenario does that a reader may not expect; where nothing of that is done there are none."""

from typing import Any

import pytest

import specfleet
from fleet.chance.acceptance import Recorded
from fleet.scenario.notes import crowds, notes_of, unused_acceptance
from fleet.scenario.reading import make_scenario
from fleet.scenario.settle import settle
from fleet.times.profile import HardwareProfile
from fleet.times.step_time import StepTime

MEASURED = HardwareProfile(
    "calibrated",
    draft=StepTime(base_s=0.001),
    verify=StepTime(base_s=0.005),
    acceptance=Recorded(5, ((5, 5, 4), (5, 3))),
)
STATED = {"model": "geometric", "beta": 0.75}
(NOTE,) = notes_of(make_scenario({"profile": MEASURED, "acceptance": STATED}))


def test_acceptance_that_replaces_the_profiles_is_named_with_what_both_come_to() -> None:
    assert "geometric with beta = 0.75: 2.29 accepted tokens a round" in NOTE
    assert "profile calibrated, recorded in 2 sessions: 4.40 accepted tokens a round" in NOTE


@pytest.mark.parametrize(
    "tables",
    [
        {"profile": MEASURED},
        {"acceptance": STATED},
        {"profile": {"name": "stated", "draft": {}, "verify": {}}, "acceptance": STATED},
        {"profile": MEASURED, "acceptance": MEASURED.acceptance},
        {
            "profile": MEASURED,
            "batch": {"rule": {"policy": "slots", "size": 4}, "allocate": "dsde"},
            "acceptance": {"model": "synthetic-signals", "acceptance": 0.8},
        },
    ],
)
def test_where_nothing_is_replaced_there_is_no_note(tables: dict[str, Any]) -> None:
    assert notes_of(make_scenario(tables)) == []


@pytest.mark.parametrize(
    "model", [{"model": "agreement", "sessions": ["1101"], "unknown": 0.5}, {"model": "per-position", "rates": [0.5]}]
)
def test_a_model_without_a_mean_at_that_depth_is_named_all_the_same(model: dict[str, Any]) -> None:
    (note,) = notes_of(make_scenario({"profile": MEASURED, "acceptance": model}))
    assert f"the scenario's, {model['model']}, and replaces" in note


def test_a_simulation_reports_its_notes() -> None:
    remarks: list[str] = []
    scenario = make_scenario({"profile": MEASURED, "acceptance": STATED, "workload": {"requests": 4}})
    specfleet.simulate(scenario, report=remarks.append)
    assert remarks == [f"note: {NOTE}"]


def test_a_run_of_the_models_says_that_the_table_has_no_part_in_it() -> None:
    assert unused_acceptance(make_scenario({})) == []
    (note,) = unused_acceptance(make_scenario({"acceptance": STATED}))
    assert note.startswith("the models decide what is accepted in this run;")


@pytest.mark.parametrize(("count", "cores", "crowded"), [(1, 2, False), (2, 2, True), (3, 4, False), (4, 4, True)])
def test_more_models_than_cores_are_a_crowd_unless_they_share_a_device(count: int, cores: int, crowded: bool) -> None:
    assert crowds(settle(make_scenario({"verifiers": {"count": count}})), cores) == crowded
    assert not crowds(settle(make_scenario({"devices": {"host": {}}, "verifiers": {"count": count}})), cores)
    replayed = {"count": count, "kind": "replayed", "verify": {"base_s": 0.01}}
    assert not crowds(settle(make_scenario({"verifiers": replayed})), cores)
