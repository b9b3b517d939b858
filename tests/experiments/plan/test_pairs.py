"""Several devices to choose from: laws of the choice, whatever the question."""

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from specfleet.experiments.plan.answer import Plan
from specfleet.experiments.plan.ask import make_plan
from specfleet.experiments.plan.doubt import slowed
from specfleet.experiments.plan.places import pairs_of, places_of
from specfleet.experiments.plan.question import PlannedPair
from specfleet.experiments.plan.screen import screen
from specfleet.experiments.plan.trials import INDIFFERENT
from specfleet.fleet.scenario.cost import Cost
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.stations.messages import DraftRequest
from specfleet.fleet.stations.payload import sizes_of
from tests.helpers.grids import holds
from tests.helpers.marks import slow
from tests.helpers.questions import small_question
from tests.helpers.stars import star

NUMBERS = [0, 9, slow(2), slow(7)]  # even ones decode all the time, odd ones have arrivals


def named(pair: PlannedPair, name: str, target: str = "") -> PlannedPair:
    return replace(pair, target_place=target or name, draft_place=name)


def dearer(pair: PlannedPair, factor: float) -> PlannedPair:
    target, drafter = pair.prices.target_per_hour or 0.0, pair.prices.drafter_per_hour or 0.0
    return replace(pair, prices=Cost(factor * target, factor * drafter, pair.prices.unit))


def slower(pair: PlannedPair, factor: float) -> PlannedPair:
    return replace(pair, base=slowed(slowed(pair.base, "drafters", factor), "targets", factor))


def content(plan: Plan) -> Any:
    """What a plan says, without the names of its fleets and their order among equals."""
    said = json.loads(msgspec.json.encode(plan))
    for part in (said, said["chosen"] or {}, said["scenario"] or {}, *said["rows"]):
        for key in ("target_place", "draft_place", "fleet", "name", "level", "lines"):
            part.pop(key, None)
    return said


@pytest.mark.parametrize("number", NUMBERS)
def test_a_single_candidate_is_not_named(number: int) -> None:
    question = small_question(number)
    alone = make_plan(question)
    assert "_place" not in msgspec.json.encode(alone).decode()
    with_name = make_plan(replace(question, pairs=(named(question.pairs[0], "here"),)))
    assert content(with_name) == content(alone)
    assert all(" on here" in row.fleet for row in with_name.rows)


@pytest.mark.parametrize("change", ["dearer", "slower"])
@pytest.mark.parametrize("number", NUMBERS)
def test_a_dominated_device_is_never_chosen(number: int, change: str) -> None:
    question = small_question(number)
    good = named(question.pairs[0], "good")
    worse = named(dearer(good, 1.3) if change == "dearer" else slower(good, 1.5), "worse")
    plan = make_plan(replace(question, pairs=(worse, good)))
    alone = make_plan(question)
    assert (plan.chosen is None) == (alone.chosen is None)
    if plan.chosen is not None:
        assert plan.chosen.target_place == "good"
        assert not any("worse" in title for title in plan.level)


@pytest.mark.parametrize("number", [*NUMBERS, slow(4), slow(11), slow(6), slow(13)])
def test_a_further_candidate_never_makes_the_choice_worse(number: int) -> None:
    three = small_question(number, pairs=3)
    costs: list[float] = []
    for pairs in (three.pairs[:1], three.pairs[:2], three.pairs):
        plan = make_plan(replace(three, pairs=pairs))
        if plan.chosen is None:
            assert not costs
            continue
        cost = plan.metrics["cost_per_million"]
        if costs:
            assert cost.value <= min(costs) * (1 + INDIFFERENT + cost.chance)
        costs.append(cost.value)
    assert costs


@pytest.mark.parametrize("number", NUMBERS)
def test_the_order_of_candidates_changes_nothing(number: int) -> None:
    question = small_question(number, pairs=3)
    plan = make_plan(question)
    other = make_plan(replace(question, pairs=question.pairs[::-1]))
    for part in ("chosen", "metrics", "goals", "lines"):
        assert getattr(other, part) == getattr(plan, part)
    assert {row.fleet: row for row in other.rows} == {row.fleet: row for row in plan.rows}


@pytest.mark.parametrize("number", [slow(number) for number in (0, 1, 2, 4)])
def test_the_chosen_fleet_is_the_grids_best_of_all_candidates(number: int) -> None:
    assert holds(replace(small_question(number, pairs=2), drafters=(1,)))


def test_each_fleet_has_its_own_devices_times_and_prices() -> None:
    question = small_question(0, pairs=3)
    for one in screen(question):
        pair = question.pair(one.shape)
        assert pair.target_place == one.shape.target_place
        assert question.scenario(one.shape).profile == pair.base.profile
        assert one.cost_per_hour == pair.prices.per_hour(one.shape.drafters, one.shape.targets)
        assert question.cost_per_hour(one.shape) == one.cost_per_hour


@pytest.mark.parametrize(
    ("draft", "kind", "states"),
    [
        ("llama-3.2-1b", "model", 0),
        ("eagle-llama-3-8b", "eagle", 4096),
        ("eagle3-llama-3.1-8b", "eagle", 3 * 4096),
    ],
)
def test_requests_to_a_head_elsewhere_carry_the_states_that_it_reads(draft: str, kind: str, states: int) -> None:
    places = places_of("llama-3.1-8b@h100", "--target"), places_of(f"{draft}@l40s", "--draft")
    (pair,) = pairs_of(star(), *places, ())
    assert pair.colocated is not None
    assert pair.base.drafters.kind == pair.colocated.drafters.kind == kind
    size, request = sizes_of(resolve(pair.base)), DraftRequest(1, 100, 100, 1000)
    assert size(request, 1) - size(request, 0) == 2 * states
