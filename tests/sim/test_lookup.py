"""Prompt lookup finds a draft in some rounds alone: what was recorded of that is played back."""

from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

from specfleet.fleet.acceptance.models import Found, Geometric, Recorded, Sampler, expected_accepted
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.strict import convert
from specfleet.fleet.records.replay import replay
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.effects import NEVER_IDLE
from specfleet.fleet.times.mixed import drafting_s
from specfleet.fleet.times.overhead import Overhead
from specfleet.fleet.times.station_times import DrafterTimes
from specfleet.fleet.times.step import Member, Step
from specfleet.fleet.times.step_time import StepTime
from specfleet.sim.fast.choice import unsupported_in
from specfleet.sim.run import simulate

ACCEPTED, FOUND = ((3, 0, 1, 0, 2, 0), (0, 2, 0, 3, 1, 1)), ((3, 0, 2, 3, 2, 0), (0, 2, 1, 3, 1, 3))
RECORD = Recorded(3, ACCEPTED, FOUND)
RECORDED = {tuple(zip(*pair, strict=True)) for pair in zip(FOUND, ACCEPTED, strict=True)}
STEP = {"base_s": 0.01, "per_token_s": 0.001}


def served(record: Recorded = RECORD, kind: str = "lookup", **verifiers: int) -> Scenario:
    """Answers as long as the recorded ones, after the token of their prompt."""
    return make_scenario(
        {
            "name": "found", "profile": {"name": "p", "draft": {}, "verify": STEP, "verify_prefill": STEP},
            "acceptance": msgspec.to_builtins(record),
            "drafters": {"place": "target", "kind": kind, "depth": 3},
            "verifiers": {"max_num_seqs": 2, "max_num_batched_tokens": 64} | verifiers,
            "workload": {"streams": 3, "requests": 8, "prompt_tokens": 20, "new_tokens": 13},
        }
    )  # fmt: skip


def rounds_of(scenario: Scenario) -> set[tuple[tuple[int, int], ...]]:
    frame = simulate(scenario).frame()
    rounds = frame[(frame.event == "done") & (frame.kind == "verify")]
    return {tuple(zip(one.tokens, one.accepted, strict=True)) for _, one in rounds.groupby("request")}


def test_rounds_have_the_drafts_that_were_found() -> None:
    assert rounds_of(served()) == RECORDED


def test_a_draft_that_is_lost_with_its_cache_is_found_again() -> None:
    """A preempted text has one round less for each time that its prefill yields a token."""
    rounds = rounds_of(served(kv_tokens=48, kv_block_size=4))
    assert rounds != RECORDED
    assert all(any(one == recorded[: len(one)] for recorded in RECORDED) for one in rounds)


def test_other_drafters_draft_in_each_round() -> None:
    assert {tokens for rounds in rounds_of(served(kind="model")) for tokens, _ in rounds} == {3}


def test_the_compiled_loop_leaves_found_drafts_to_simpy() -> None:
    assert "drafts that are found" in unsupported_in(resolve(served()))
    assert not unsupported_in(resolve(served(Recorded(3, ACCEPTED))))


def test_shorter_drafts_end_with_the_match_that_was_found() -> None:
    """By hand: the first four places go on with a whole match; the third round has none, the next one ends."""
    record = Recorded(3, ((3, 0, 1),), ((3, 0, 2),))
    assert record.at(1) == (((1, 1, 0, 1),), ((1, 1, 0, 1),))
    assert record.at(2) == (((2, 1, 1),), ((2, 2, 2),))


FIRST: dict[str, Any] = {"place": "target", "kind": "eagle", "depth": 12, "first": {"kind": "suffix", "least": 4}}
REST = FIRST | {"first": FIRST["first"] | {"drafter": "rest"}}
STATED: dict[str, Any] = {
    "model": "found", "share": 0.4, "mean": 7.0, "beta": 0.8, "least": 4, "head": {"model": "geometric", "beta": 0.6},
}  # fmt: skip
PRICES = {"draft": {"base_s": 0.001, "per_token_s": 0.002}, "verify": STEP, "verify_prefill": STEP}


def mixture(acceptance: object, rows: int, **changes: object) -> Scenario:
    """What is found goes before what a head drafts."""
    return make_scenario(
        {
            "name": "mixture", "profile": {"name": "p"} | PRICES, "drafters": FIRST, "acceptance": acceptance,
            "verifiers": {"max_num_seqs": rows},
            "workload": {"streams": rows, "requests": 400, "prompt_tokens": 20, "new_tokens": 100},
        }
        | changes
    )  # fmt: skip


def done(scenario: Scenario, kind: str) -> pd.DataFrame:
    run = simulate(scenario)
    assert replay(run) == []
    rows = run.frame().query("event == 'done' and tokens > 0")
    return rows[rows.kind == kind]


def test_stated_matches_have_their_share_length_and_acceptance() -> None:
    """Within five standard errors of some 10,000 rounds, apart from the last rounds, which requests cut short."""
    drafts = done(mixture(STATED, 4), "draft")
    found = drafts[drafts.flag].tokens
    longer = (1 - 1 / 4) ** np.arange(1, 9)  # of geometric lengths from 4 on, cut at 12
    assert drafts.flag.mean() == pytest.approx(0.4, abs=0.025)
    assert found.mean() == pytest.approx(4 + longer.sum(), abs=0.2)
    assert set(drafts[~drafts.flag].tokens) == {4}
    model = Found(0.4, 7.0, 0.8, 4, Geometric(0.6))
    survived = 0.4 * (sum(0.8**j for j in range(1, 5)) + (longer * 0.8 ** np.arange(5, 13)).sum())
    assert expected_accepted(model, 12) == pytest.approx(survived + 0.6 * sum(0.6**j for j in range(1, 5)))
    sampler = Sampler(model, 12, np.random.default_rng(0))
    accepted = np.concatenate([next(sampler.blocks(request)) for request in range(400)])
    assert accepted.mean() == pytest.approx(expected_accepted(model, 12), abs=5 * accepted.std() / len(accepted) ** 0.5)


def test_a_batch_pays_the_head_for_all_rows_or_those_without_a_match() -> None:
    for rows in (1, 3):
        every = done(mixture(STATED, rows), "draft")
        assert set(every[every.base > 21].duration_s.round(9)) == {0.009}
        steps = done(mixture(STATED, rows, drafters=REST), "draft").groupby("step")
        paid, all_found = steps.duration_s.first(), steps.flag.all()
        later = steps.base.min() > 21  # rounds that read no prompt
        assert set(paid[all_found & later].round(9)) == {0.0}
        assert set(paid[~all_found & later].round(9)) == {0.009}
        assert all_found[later].mean() == pytest.approx(0.4**rows, abs=0.03)


def test_recorded_rounds_of_a_mixture_are_played_back() -> None:
    accepted, found = (2, 0, 9, 4, 0) * 8, (0, 6, 12, 0, 0) * 8
    record = msgspec.to_builtins(Recorded(12, (accepted,), (found,)))
    rounds = done(mixture(record, 2), "verify")
    assert set(zip(rounds.tokens, rounds.accepted, strict=True)) >= {(4, 2), (6, 0), (12, 9), (4, 4), (4, 0)}
    with pytest.raises(InputError, match="hold for depth = 12 alone"):
        simulate(mixture(record, 2, drafters=FIRST | {"depth": 8}))


def test_roofs_price_the_rows_that_no_text_drafts_for() -> None:
    """A pass of two rows costs as one of the head's row alone."""
    roof = {"tokens": [1, 64], "pass_s": [0.01, 0.64]}
    laws = {name: {"roofline": roof} for name in ("draft", "draft_prefill")}
    of_step = [convert(law, StepTime, "law") for law in laws.values()]
    times = DrafterTimes(0, *of_step, 0.0, NEVER_IDLE, Overhead())
    step = Step(1, "draft", (Member(0, 0, 1, 50, 4, behind=3), Member(1, 1, 1, 70, 12, behind=5)))
    alone = Step(1, "draft", step.members[:1])
    assert drafting_s(times, step, [4, -9]) == drafting_s(times, alone, [4])
    assert drafting_s(times, step, [-5, -9]) == 0.0
    assert drafting_s(times, step, [4, 4]) > drafting_s(times, alone, [4])
    for_all = msgspec.structs.replace(times, dropped=4)
    assert drafting_s(for_all, step, [4, -9]) == drafting_s(times, step, [4, 4])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"acceptance": {"model": "geometric", "beta": 0.5}}, "'geometric' does not say what is found"),
        ({"acceptance": STATED | {"head": None}}, "beside drafters.first needs a head, and least = 4"),
        ({"acceptance": STATED | {"least": 3}}, "needs a head, and least = 4"),
        ({"acceptance": STATED | {"mean": 3.5}}, "mean = 3.5 is below least = 4"),
        ({"drafters": FIRST | {"kind": "lookup"}}, "'lookup' .* leave drafters.first out"),
        ({"drafters": FIRST | {"place": "own"}}, "drafts elsewhere; leave drafters.first out"),
        ({"drafters": FIRST | {"depth": 3}}, "drafters.first.least = 4 is above the longest draft, 3"),
        ({"drafters": FIRST | {"shape": {"kind": "tree"}}}, "finds chains; leave drafters.shape out"),
        ({"drafters": {"place": "target"}}, "acceptance.model = 'found' needs drafters.first"),
        ({"verifiers": {"allocate": "dsde"}, "drafters": {**FIRST, "depth": 5}}, "'dsde' looks at distributions"),
        ({"verifiers": {"aligned": {"policy": "realign"}}}, "leave drafters.first out"),
    ],
)
def test_mixtures_without_sense_are_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate(mixture(**{"acceptance": STATED, "rows": 2} | changes))


def test_the_compiled_loop_leaves_mixtures_to_simpy() -> None:
    assert "drafters.first" in unsupported_in(resolve(mixture(STATED, 2)))
    alone = {"place": "target", "kind": "suffix", "depth": 12}
    assert "found" in unsupported_in(resolve(mixture(STATED | {"head": None}, 2, drafters=alone)))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (((3, 0),), "a number for each round"),
        (((2, 0, 1),), "drafted holds 2 beside 3 accepted"),
        (((4, 0, 1),), "drafted holds 4 beside 3 accepted; allowed: up to 3"),
    ],
)
def test_found_drafts_are_as_long_as_they_can_be(found: tuple[tuple[int, ...], ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recorded(3, ((3, 0, 1),), found)
    with pytest.raises(InputError, match="acceptance"):
        make_scenario({"name": "x", "acceptance": {"model": "recorded", "depth": 3, "sessions": [[3, 0, 1]],
                                                   "drafted": found}})  # fmt: skip
