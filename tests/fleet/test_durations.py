"""Inputs of a step's time: tokens, context, rows and padding."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.fleet.policies.shapes import CHAIN, tree
from specfleet.fleet.times.durations import (
    LocalDraftTimes,
    aligned_durations,
    draft_durations,
    one_way_s,
    ratios,
    step_durations,
    step_name,
    timed,
    verifier_durations,
)
from specfleet.fleet.times.effects import IdleEffect
from specfleet.fleet.times.mixed import extent_of, make_part, parts_of
from specfleet.fleet.times.overhead import Overhead
from specfleet.fleet.times.station_times import DrafterTimes, VerifierTimes
from specfleet.fleet.times.step import Member, Step, StepKind
from specfleet.fleet.times.step_time import Constant, Exponential, LinkTime, StepTime

RNG = np.random.default_rng(0)
TIME = StepTime(
    base_s=1.0, per_token_s=0.1, per_context_token_s=0.01, per_token_context_s=0.001, per_row_s=10.0,
    per_row_token_s=100.0, per_row_context_s=0.5, several_s=1000.0, several_per_token_s=7.0,
)  # fmt: skip


def step(kind: StepKind, *rows: tuple[int, int], ballast: int = 0) -> Step:
    """Return a step; each member has its tokens and its committed length."""
    members = tuple(Member(tag, 0, 1, base, tokens) for tag, (tokens, base) in enumerate(rows))
    return Step(1, kind, members, ballast=ballast)


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("verify", (5, 30)), ("decode", (1, 30)), ("draft", (4, 30)), ("prefill", (4, 30)), ("draft_prefill", (4, 0)),
        ("realign", (4, 30)),
    ],
)  # fmt: skip
def test_the_place_of_a_step_on_the_grid(kind: StepKind, place: tuple[int, int]) -> None:
    assert make_part(kind, 4, 30, CHAIN)[:2] == place
    expected = 1 + 0.1 * place[0] + (0.01 + 0.001 * place[0]) * place[1]
    assert timed(step_durations(TIME, RNG), TIME, step(kind, (4, 30))) == pytest.approx(expected)


def test_drafter_and_target_have_a_prefill_each() -> None:
    assert step_name(True, "prefill") == "draft_prefill"
    assert step_name(False, "prefill") == step_name(False, "chunk") == "verify_prefill"
    assert step_name(True, "draft") == step_name(False, "draft") == "draft"


rows = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 50)), min_size=1, max_size=5)


@given(rows, st.integers(0, 4), st.booleans(), st.sampled_from(["draft", "verify", "prefill"]))
def test_further_rows_count_their_tokens_padded_or_not(
    members: list[tuple[int, int]], ballast: int, padded: bool, kind: StepKind
) -> None:
    one = step(kind, *members, ballast=ballast)
    fed = [tokens + (kind == "verify") for tokens, _ in members]
    known = [base for _, base in members]
    filled = padded and kind != "prefill"  # prompts are read one by one
    grid = [max(fed) if filled else tokens for tokens in fed] + [max(fed)] * ballast
    assert extent_of(parts_of(one, CHAIN), padded, ballast) == (max(fed), max(known), len(grid), sum(grid) - max(fed))
    mean_s = TIME.mean_s(max(fed), max(known), len(grid), sum(grid) - max(fed))
    assert timed(step_durations(TIME, RNG), TIME, one, padded=padded) == pytest.approx(mean_s)


def test_what_the_members_work_on_may_differ_from_the_plan() -> None:
    assert extent_of(parts_of(step("draft", (4, 30), (4, 40)), CHAIN, [2, 3])) == (3, 40, 2, 2)
    assert timed(step_durations(TIME, RNG), TIME, step("draft", (4, 30)), tokens=[2]) == pytest.approx(
        TIME.mean_s(2, 30)
    )
    assert [make_part("verify", 2, 30, shape).fed for shape in (tree(2), CHAIN)] == [7, 3]


def test_drafts_are_slower_after_idle_gaps() -> None:
    """Idle gaps slow drafts only. Any row that is behind makes its batch catch up."""
    idle = IdleEffect(gaps_s=(0.0, 10.0), slowdowns=(1.0, 2.0), recoveries=(1.0, 0.5))
    single = [StepTime(base_s=base_s) for base_s in (2.0, 3.0)]
    times = DrafterTimes(0, *single, 0.25, idle, Overhead())
    even, behind = Member(0, 0, 1, 30, 4), Member(1, 0, 1, 30, 4, behind=2)
    steady = DrafterTimes(0, *single, 0.0, IdleEffect(), Overhead())
    for members in ((behind,), (even, behind)):
        cold = Step(1, "draft", members, idle_gap_s=10.0, warm_tokens=1)
        assert draft_durations(times, RNG)(cold) == pytest.approx(2.0 * 1.5 + 2 * 0.25)
        assert draft_durations(steady, RNG)(cold) == 2.0
    assert draft_durations(times, RNG)(step("draft", (4, 30))) == 2.0
    assert draft_durations(times, RNG)(step("prefill", (4, 30))) == 3.0


def test_the_one_way_time_is_latency_and_payload_over_bandwidth() -> None:
    assert one_way_s(LinkTime(latency_s=0.5, bandwidth_bytes_per_s=100.0), RNG)(25) == pytest.approx(0.75)
    assert one_way_s(LinkTime(latency_s=0.5), RNG)(25) == 0.5


def test_multipliers_go_on_for_ever_and_are_new_ones() -> None:
    assert list(islice(ratios(Constant(), RNG), 3)) == [1.0, 1.0, 1.0]
    drawn = list(islice(ratios(Exponential(), np.random.default_rng(0)), 9000))
    assert len(set(drawn)) == 9000
    assert np.mean(drawn) == pytest.approx(1.0, abs=0.05)


def test_each_kind_of_step_has_its_own_time() -> None:
    def per_token(base_s: float) -> StepTime:
        return StepTime(base_s=base_s, per_token_s=1.0)

    of_target = VerifierTimes(0, per_token(10), per_token(20), per_token(30), Overhead(), per_token(60))
    target = verifier_durations(of_target, tree(2), RNG)
    assert target(step("verify", (2, 9))) == 10 + 7  # six nodes and the root
    assert target(step("prefill", (2, 9))) == 20 + 2
    assert target(step("decode", (2, 9))) == 30 + 1
    of_drafter = DrafterTimes(0, per_token(40), per_token(50), 0.0, IdleEffect(), Overhead())
    drafts = LocalDraftTimes(of_drafter, lambda one: [1 for _ in one.members])
    aligned = aligned_durations(of_target, tree(2), RNG, drafts)
    kinds: list[StepKind] = ["draft", "draft_prefill", "prefill", "verify", "realign"]
    assert [aligned(step(kind, (2, 9))) for kind in kinds] == [41, 52, 22, 17, 62]


@pytest.mark.parametrize(
    ("tokens", "fed", "of_prompt", "time_s"),
    [(2, 3, False, 42), (2, 6, False, 42), (6, 3, False, 46), (0, 1, False, 51), (0, 6, False, 51), (2, 9, True, 98)],
)
def test_a_drafter_reads_prompts_and_a_token_where_it_drafts_nothing(
    tokens: int, fed: int, of_prompt: bool, time_s: float
) -> None:
    drafter = DrafterTimes(0, StepTime(40.0, 1.0), StepTime(50.0, 1.0), 0.0, IdleEffect(), Overhead())
    drafts = LocalDraftTimes(drafter, lambda one: [member.tokens for member in one.members])
    target = VerifierTimes(0, TIME, TIME, TIME, Overhead())
    member = Member(0, 0, 1, 30, tokens, fed, of_prompt=of_prompt)
    assert verifier_durations(target, CHAIN, RNG, drafts)(Step(1, "draft", (member,))) == time_s


def test_a_mixed_step_has_one_fixed_time_by_measured_laws() -> None:
    verify, prefill = StepTime(3.0, 1.0, per_row_s=0.5), StepTime(2.0, 0.25)
    times = VerifierTimes(0, verify, prefill, verify, Overhead())
    kinds: list[tuple[StepKind, int]] = [("chunk", 8), ("prefill", 4), ("verify", 2), ("decode", 1)]
    members = tuple(Member(tag, 0, 1, 0, tokens, 0, kind) for tag, (kind, tokens) in enumerate(kinds))
    together_s = 3.0 + 3 * 1.0 + 0.5  # the longest row, and another
    draw_s = verifier_durations(times, CHAIN, RNG)
    assert draw_s(Step(1, "mixed", members)) == pytest.approx(8 * 0.25 + 4 * 0.25 + together_s)
    alone = tuple(member for member in members if member.kind in ("prefill", "decode"))
    assert draw_s(Step(2, "mixed", alone)) == pytest.approx(3.0 + 4 * 0.25 + 1.0)
