"""A scenario's acceptance in words, and the number of models that crowd a host."""

from typing import Any

import pytest

from fleet.acceptance.models import AcceptanceModel, Geometric, PerPosition, Recorded
from fleet.acceptance.tokens import Agreement
from fleet.scenario.facts import accepts, crowds, replaced_acceptance
from fleet.scenario.reading import make_scenario
from fleet.scenario.resolve import resolve
from fleet.scenario.scenario import Acceptance
from fleet.times.profile import HardwareProfile
from fleet.times.step_time import StepTime


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Recorded(5, ((5, 5, 4), (5, 3))), "recorded in 2 sessions: 4.40 accepted tokens a round"),
        (PerPosition((0.5,)), "per-position"),  # deeper than the recording
        (Agreement(("1101",), 0.5), "agreement"),  # of single tokens
    ],
)
def test_acceptance_models_are_named_with_their_mean(model: Acceptance, said: str) -> None:
    assert accepts(model, 5) == said


MEASURED, STATED = Recorded(5, ((5, 5, 4),)), {"model": "geometric", "beta": 0.8}
DSDE = {"batch": {"rule": {"policy": "slots", "size": 4}, "allocate": "dsde"}}


@pytest.mark.parametrize(
    ("measured", "tables", "replaced"),
    [
        (MEASURED, {"acceptance": STATED}, True),
        (MEASURED, {"acceptance": {"model": "agreement", "sessions": ["11"], "unknown": 0.5}}, True),
        (MEASURED, {}, False),
        (Geometric(0.7), {"acceptance": STATED}, False),
        (None, {"acceptance": STATED}, False),
        (MEASURED, DSDE | {"acceptance": {"model": "synthetic-signals", "acceptance": 0.8}}, False),
    ],
)
def test_only_lengths_that_a_profile_measured_can_be_replaced(
    measured: AcceptanceModel | None, tables: dict[str, Any], replaced: bool
) -> None:
    assert replaced_acceptance(make_scenario(tables)) is None
    profile = HardwareProfile("p", draft=StepTime(1.0), verify=StepTime(1.0), acceptance=measured)
    assert replaced_acceptance(make_scenario(tables | {"profile": profile})) == (measured if replaced else None)


@pytest.mark.parametrize(("count", "cores", "crowded"), [(1, 2, False), (2, 2, True), (3, 4, False), (4, 4, True)])
def test_more_models_than_cores_crowd_unless_sharing_a_device(count: int, cores: int, crowded: bool) -> None:
    assert crowds(resolve(make_scenario({"verifiers": {"count": count}})), cores) == crowded
    verifiers = {"count": count, "device": "host"}
    shared = make_scenario({"devices": {"host": {}}, "verifiers": verifiers, "drafters": {"device": "host"}})
    assert not crowds(resolve(shared), cores)
    replayed = {"count": count, "kind": "replayed", "verify": {"base_s": 0.01}}
    assert not crowds(resolve(make_scenario({"verifiers": replayed})), cores)
