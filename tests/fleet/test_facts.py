"""What a scenario's acceptance comes to, in words; how many models are a crowd on a host."""

import pytest

from fleet.chance.acceptance import PerPosition, Recorded
from fleet.chance.tokens import Agreement
from fleet.scenario.facts import accepts, crowds
from fleet.scenario.reading import make_scenario
from fleet.scenario.scenario import Acceptance
from fleet.scenario.settle import settle


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Recorded(5, ((5, 5, 4), (5, 3))), "recorded in 2 sessions: 4.40 accepted tokens a round"),
        (PerPosition((0.5,)), "per-position"),  # a depth of 5 is more than it knows
        (Agreement(("1101",), 0.5), "agreement"),  # of single tokens
    ],
)
def test_an_acceptance_model_is_named_with_its_mean_where_it_has_one(model: Acceptance, said: str) -> None:
    assert accepts(model, 5) == said


@pytest.mark.parametrize(("count", "cores", "crowded"), [(1, 2, False), (2, 2, True), (3, 4, False), (4, 4, True)])
def test_more_models_than_cores_are_a_crowd_unless_they_share_a_device(count: int, cores: int, crowded: bool) -> None:
    assert crowds(settle(make_scenario({"verifiers": {"count": count}})), cores) == crowded
    verifiers = {"count": count, "device": "host"}
    shared = make_scenario({"devices": {"host": {}}, "verifiers": verifiers, "drafters": {"device": "host"}})
    assert not crowds(settle(shared), cores)
    replayed = {"count": count, "kind": "replayed", "verify": {"base_s": 0.01}}
    assert not crowds(settle(make_scenario({"verifiers": replayed})), cores)
