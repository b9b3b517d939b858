"""Prompt lookup finds a draft in some rounds alone: what was recorded of that is played back."""

import msgspec
import pytest

from specfleet.fleet.acceptance.models import Recorded
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
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
    assert (record.at(1), record.drafted_at(1)) == (((1, 1, 0, 1),), ((1, 1, 0, 1),))
    assert (record.at(2), record.drafted_at(2)) == (((2, 1, 1),), ((2, 2, 2),))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (((3, 0),), "a number for each round"),
        (((3, 0, 0),), "drafted holds 0 beside 1 accepted"),
        (((4, 0, 1),), "drafted holds 4 beside 3 accepted; allowed: up to 3"),
    ],
)
def test_found_drafts_are_as_long_as_they_can_be(found: tuple[tuple[int, ...], ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recorded(3, ((3, 0, 1),), found)
    with pytest.raises(InputError, match="acceptance"):
        make_scenario({"name": "x", "acceptance": {"model": "recorded", "depth": 3, "sessions": [[3, 0, 1]],
                                                   "drafted": found}})  # fmt: skip
