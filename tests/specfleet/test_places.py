"""Candidates of a plan: places by their texts, each pair with times and prices of its own, and what is refused."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import specfleet
from specfleet.cli.plans import TABLED, tabled, write_answer
from specfleet.experiments.plan.answer import Plan
from specfleet.experiments.plan.places import pairs_of, places_of
from specfleet.experiments.plan.question import APART, COLOCATED, PLAIN, PlannedPair, Question, fitting
from specfleet.experiments.plan.screen import screen
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.cost import Cost
from specfleet.fleet.scenario.reading import change_scenario, read_scenario, scenario_of

TARGET, DRAFTER = "llama-3.1-8b", "llama-3.2-1b"
DRAFTS = [f"{DRAFTER}@{device}" for device in ("l4", "rtx-4090", "h100")]
COSTS = "h100=3,l4=0.4,rtx-4090=0.35"


def pairs(targets: str | Sequence[str], drafts: str | Sequence[str], *costs: str) -> tuple[PlannedPair, ...]:
    return pairs_of(scenario_of("star", {}), places_of(targets, "target"), places_of(drafts, "draft"), costs)


def drafting(pair: PlannedPair) -> str:
    return pair.base.profile.sources["draft"]


@pytest.fixture(scope="module")
def planned() -> Plan:
    return specfleet.plan(
        "star", {"workload.new_tokens": 48, "workload.prompt_tokens": 64}, target=[f"{TARGET}@h100", f"{TARGET}@l40s"],
        draft=DRAFTS, link_s=0.002, acceptance=0.8, cost=f"{COSTS},l40s=1.2", apart=True, jobs=1,
        vary=["verifiers.count=1:5", "drafters.depth=2,4,6"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["m@h100", "m@4xh100:fp8"], ["4xh100", "h100"]),
        (["m@h100", "m@h100:fp8", "m@l40s"], ["h100", "h100:fp8", "l40s"]),
        (["m@h100:fp8"], ["h100"]),
    ],
)
def test_places_have_names_as_short_as_tells_them_apart(texts: list[str], names: list[str]) -> None:
    given = [text.replace("m@", f"{TARGET}@") for text in texts]
    assert [one.name for one in places_of(given, "target")] == names
    assert [one.name for one in places_of(given[::-1], "target")] == names


def test_places_of_several_models_are_named_with_them() -> None:
    texts = [f"{DRAFTER}@h100", f"{TARGET}@l40s"]
    assert [one.name for one in places_of(texts, "draft")] == sorted(texts)


def test_each_pair_has_the_times_of_its_own_devices() -> None:
    found = pairs([f"{TARGET}@h100", f"{TARGET}@l40s"], DRAFTS, COSTS, "l40s=1.2")
    assert len({(pair.target_place, pair.draft_place) for pair in found}) == len(found) == 6
    for pair in found:
        assert f"on {pair.draft_place}," in drafting(pair)
        (alone,) = pairs(f"{TARGET}@{pair.target_place}", f"{DRAFTER}@{pair.draft_place}")
        assert (alone.base, alone.colocated) == (pair.base, pair.colocated)


def test_one_pair_is_not_named_however_it_is_given() -> None:
    (by_text,) = pairs(f"{TARGET}@h100", DRAFTS[0])
    assert pairs([f"{TARGET}@h100"], (text for text in DRAFTS[:1])) == (by_text,)  # type: ignore[arg-type]
    assert not any(name.endswith("_place") for name in msgspec.to_builtins(by_text))


def test_co_located_targets_are_one_candidate_per_draft_model() -> None:
    def kinds(drafts: list[str]) -> list[str]:
        found = pairs([f"{TARGET}@h100", f"{TARGET}@l40s"], drafts)
        question = Question(found, (1,), (2,), {"drafters.depth": (4,)}, ())
        shapes = [one.shape for one in screen(question)]
        assert len({shape.title for shape in shapes}) == len(shapes)
        return [shape.kind for shape in shapes]

    assert [kinds(DRAFTS).count(kind) for kind in (APART, COLOCATED, PLAIN)] == [6, 2, 2]
    two_models = [*DRAFTS, "llama-3.2-3b@l4"]
    assert [kinds(two_models).count(kind) for kind in (APART, COLOCATED, PLAIN)] == [8, 4, 2]


@pytest.mark.parametrize(
    ("changes", "key", "values", "co_located"),
    [
        ({}, "drafters.order", ("fifo", "priority"), ""),
        ({}, "link.latency_s", (1e-3, 1e-2), ""),
        ({}, "verifiers.max_num_seqs", (1, 2), ", max_num_seqs 2"),
        ({"verifiers.late": "decode", "verifiers.patience_s": 1.0}, "drafters.lease_s", (0.0, 5.0), ""),
        ({"drafters.order": "priority", "verifiers.priorities": [1, 2]}, "drafters.depth", (2, 4), ""),
    ],
)
def test_keys_of_drafters_apart_are_left_out_without_them(
    changes: dict[str, Any], key: str, values: tuple[Any, ...], co_located: str
) -> None:
    places = places_of(f"{TARGET}@h100", "target"), places_of(DRAFTS[0], "draft")
    found = pairs_of(scenario_of("star", changes), *places, ())
    question = Question(found, (1,), (2,), {"drafters.depth": (4,), key: values}, ())
    shapes = [one.shape for one in screen(question)]
    assert [one.kind for one in shapes].count(APART) == 2
    assert f"2 targets that draft for themselves, depth 4{co_located}" in [one.title for one in shapes]
    assert len({one.title for one in shapes}) == len(shapes)
    for scenario in map(question.scenario, shapes):
        assert change_scenario(scenario, {}) == scenario  # it is read again from its file


def test_a_target_without_room_for_a_request_is_left_out_with_a_note() -> None:
    base, draft = scenario_of("star", {"workload.prompt_tokens": 20_000}), places_of(DRAFTS[0], "draft")
    narrow, wide = "llama-3.1-70b@h100:fp8", "llama-3.1-70b@2xh100:fp8"
    asked = Question(pairs_of(base, places_of([narrow, wide], "target"), draft, ()), (1,), (1,), {}, ())
    question, (note,) = fitting(asked)
    assert [pair.target_place for pair in question.pairs] == ["2xh100"]
    assert note.startswith("left out, h100: scenario 'star': a request of 20096 tokens")
    none = msgspec.structs.replace(asked, pairs=tuple(one for one in asked.pairs if one.target_place == "h100"))
    with pytest.raises(InputError, match="a request of 20096 tokens"):
        screen(fitting(none)[0])


def test_a_co_located_drafter_may_take_the_targets_precision() -> None:
    (pair,) = pairs("llama-3.1-70b@a100-80gb:int4", f"{DRAFTER}@l4:fp8")
    (own,) = pairs("llama-3.1-70b@a100-80gb:int4", f"{DRAFTER}@l4:int4")
    assert pair.colocated.profile.draft == own.colocated.profile.draft


@pytest.mark.parametrize(
    ("targets", "drafts", "costs", "said"),
    [
        (f"{TARGET}@h100", [DRAFTS[0], f"{DRAFTER}@l4:bf16"], [], "draft = .*l4:bf16.*: the same as .*@l4.; name it"),
        ([f"{TARGET}@h100"] * 2, DRAFTS, [], "target = .*: the same as"),
        ([], DRAFTS, [], "needs one MODEL@DEVICE or more"),
        (f"{TARGET}@h100", "qwen2.5-0.5b@l4", [], "--draft qwen2.5-0.5b@l4: its .* needs the target's tokenizer"),
        (f"{TARGET}@h100", DRAFTS, ["h100=3,l4=0.4"], "rtx-4090 has no price; add --cost rtx-4090=COST"),
    ],
)  # fmt: skip
def test_candidates_that_are_none_are_refused_in_one_line(
    targets: str, drafts: str, costs: list[str], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        pairs(targets, drafts, *costs)


def test_prices_by_role_do_not_apply_to_several_devices() -> None:
    base = msgspec.structs.replace(scenario_of("star", {}), cost=Cost(3.0, 1.0))
    target, drafts = places_of(f"{TARGET}@h100", "target"), places_of(DRAFTS, "draft")
    with pytest.raises(
        InputError, match=r"\[cost\] has one price for every drafter; give --cost h100=COST,l4=COST,rtx-4090=COST"
    ):
        pairs_of(base, target, drafts, [])
    assert len(pairs_of(base, target, drafts, [COSTS])) == 3


def test_a_plan_shows_its_devices_and_each_pairs_best(planned: Plan) -> None:
    assert f"on {planned.chosen.draft_place} for" in planned.lines[0]
    assert planned.chosen.title in planned.lines[0]
    simulated = [row for row in planned.rows if row.method == "simulated"]
    shown = tabled(simulated)
    assert {(row.target_place, row.draft_place) for row in shown if row.kind == APART} == {
        (target, draft) for target in ("h100", "l40s") for draft in ("l4", "rtx-4090", "h100")
    }
    assert shown[0] == simulated[0]
    assert len(shown) <= max(TABLED, 8)
    best = {row.draft_place: row for row in reversed(simulated) if row.kind == APART}
    for row in best.values():
        if row.draft_place != planned.chosen.draft_place:
            assert row.fleet in planned.lines[3] or "more pairs of devices" in planned.lines[3]


def test_the_written_scenario_is_of_the_chosen_pair(planned: Plan, tmp_path: Path) -> None:
    write_answer(planned, tmp_path)
    profile = read_scenario(tmp_path / "chosen.toml").profile
    assert f"on {planned.chosen.draft_place}," in profile.sources["draft"]
    assert f"on {planned.chosen.target_place}," in profile.sources["verify"]
