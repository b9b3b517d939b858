"""Rooflines: their time never falls with work, they are exact at their knots, and steps draw them."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.strict import convert
from specfleet.fleet.times.durations import step_durations, timed
from specfleet.fleet.times.roofline import AttentionTime, Roofline
from specfleet.fleet.times.step import Member, Step
from specfleet.fleet.times.step_time import StepTime

FLAT_THEN_STEEP = Roofline(tokens=(1, 64, 128), pass_s=(5.0, 5.0, 10.0))
TIMES_S = st.floats(0, 10)
attention = st.builds(AttentionTime, TIMES_S, TIMES_S, st.integers(0, 300))  # long rows may cost less: not here


@st.composite
def rooflines(draw: st.DrawFn) -> Roofline:
    tokens = sorted(draw(st.sets(st.integers(1, 500), min_size=2, max_size=6)))
    times_s = sorted(draw(st.lists(TIMES_S, min_size=len(tokens), max_size=len(tokens))))
    kinds = tuple(draw(st.lists(attention, max_size=2)))
    sharpness, host_s = draw(st.floats(1, 8)), draw(TIMES_S)
    return Roofline(tuple(tokens), tuple(times_s), kinds, sharpness, host_s, draw(st.booleans()))


def test_rooflines_extrapolate_with_the_last_slope() -> None:
    assert [FLAT_THEN_STEEP.mean_s(fed) for fed in (1, 64, 96, 128, 256)] == pytest.approx([5, 5, 7.5, 10, 20])


def test_the_tokens_of_all_rows_share_a_pass() -> None:
    assert FLAT_THEN_STEEP.mean_s(1, 0, rows=96, row_tokens=95) == pytest.approx(7.5)


def test_drafts_take_a_pass_per_token_of_the_longest_row() -> None:
    draft = msgspec.structs.replace(FLAT_THEN_STEEP, in_turn=True)
    assert draft.mean_s(4) == pytest.approx(20)
    assert draft.mean_s(4, 0, rows=96, row_tokens=4 * 95) == pytest.approx(4 * 7.5)
    assert draft.mean_s(0) == 0


def test_attention_is_bound_by_context_or_pairs() -> None:
    reads = Roofline((1, 2), (0.0, 0.0), (AttentionTime(read_s=2.0, pair_s=0.0),))
    assert reads.mean_s(1, 100, rows=3, row_tokens=2) == pytest.approx(2 * (3 * 100 + 3))
    pairs = Roofline((1, 2), (0.0, 0.0), (AttentionTime(read_s=0.0, pair_s=2.0),))
    assert pairs.mean_s(4, 100) == pytest.approx(2 * sum(100 + place for place in (1, 2, 3, 4)))


def test_windowed_layers_look_no_farther_back() -> None:
    windowed = Roofline((1, 2), (0.0, 0.0), (AttentionTime(read_s=1.0, pair_s=0.0, window=50),))
    assert windowed.mean_s(1, 50) == windowed.mean_s(1, 5000) > windowed.mean_s(1, 40)


def test_passes_are_no_shorter_than_their_launch() -> None:
    assert msgspec.structs.replace(FLAT_THEN_STEEP, host_s=7.0).mean_s(1) == 7.0
    assert msgspec.structs.replace(FLAT_THEN_STEEP, host_s=7.0).mean_s(128) == 10.0


@given(rooflines(), st.integers(1, 200), st.integers(1, 20), st.lists(st.integers(0, 2000), min_size=1, max_size=5))
def test_an_array_of_contexts_takes_what_each_of_them_takes(
    roofline: Roofline, tokens: int, rows: int, contexts: list[int]
) -> None:
    step = StepTime(0.5, per_context_token_s=0.1, per_row_s=0.2, roofline=roofline)
    together = step.mean_s(tokens, np.array(contexts, dtype=float), rows, tokens * (rows - 1))  # type: ignore[arg-type]
    assert together == pytest.approx([step.mean_s(tokens, each, rows, tokens * (rows - 1)) for each in contexts])


@given(rooflines(), st.integers(1, 200), st.integers(0, 2000), st.integers(1, 20), st.data())
def test_time_never_falls_with_tokens_context_or_rows(
    roofline: Roofline, tokens: int, context: int, rows: int, data: st.DataObject
) -> None:
    row_tokens = data.draw(st.integers(rows - 1, (rows - 1) * tokens))
    now_s = roofline.mean_s(tokens, context, rows, row_tokens) * (1 - 1e-9)
    share = (tokens + 1) / tokens if roofline.in_turn else 1  # passes in turn: all rows are longer
    assert roofline.mean_s(tokens + 1, context, rows, row_tokens * share) >= now_s
    assert roofline.mean_s(tokens, context + 7, rows, row_tokens) >= now_s
    assert roofline.mean_s(tokens, context, rows + 1, row_tokens + data.draw(st.integers(1, tokens))) >= now_s


@given(rooflines(), st.integers(1, 50), st.integers(0, 500), st.integers(1, 9), st.floats(0.1, 10))
def test_step_time_is_its_terms_plus_its_roofline(
    roofline: Roofline, tokens: int, context: int, rows: int, factor: float
) -> None:
    time = StepTime(base_s=1.0, per_row_s=2.0, roofline=roofline)
    others = tokens * (rows - 1)
    expected = 1.0 + 2.0 * (rows - 1) + roofline.mean_s(tokens, context, rows, others)
    assert time.mean_s(tokens, context, rows, others) == pytest.approx(expected)
    assert time.slowed(factor).mean_s(tokens, context, rows, others) == pytest.approx(factor * expected)
    members = tuple(Member(tag, 0, 1, context, tokens) for tag in range(rows))
    drawn = timed(step_durations(time, np.random.default_rng(0)), time, Step(1, "draft", members))
    assert drawn == pytest.approx(expected)


@pytest.mark.parametrize(
    "content",
    [
        {"tokens": [1, 1], "pass_s": [1.0, 2.0]},
        {"tokens": [1, 2], "pass_s": [2.0, 1.0]},
        {"tokens": [1, 2, 3], "pass_s": [1.0, 2.0]},
        {"tokens": [1], "pass_s": [1.0]},
        {"tokens": [1, 2], "pass_s": [1.0, 2.0], "sharpness": 0.5},
    ],
)
def test_a_roofline_that_contradicts_itself_is_refused_in_one_line(content: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"profile: .*roofline"):
        convert({"roofline": content}, StepTime, "profile")
