"""Acceptance models, their draws and their fits, against theory.

Statistical tests raise a false alarm with probability FALSE_ALARM at most, each, were the seeds not fixed.
"""

import math
import tomllib
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import betaln

from specfleet.fleet.acceptance.models import (
    AcceptanceModel,
    BetaGeometric,
    Geometric,
    PerPosition,
    Recorded,
    Sampler,
    committed_closed_form,
    expected_accepted,
    expected_committed,
    pmf,
    survival,
)
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.strict import convert

FALSE_ALARM = 1e-6
DEPTH = 6

probabilities = st.floats(0, 1)
shapes = st.floats(1e-3, 1e6)
depths = st.integers(0, DEPTH)


def six(entries: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Tuples with an entry for each place of a draft of DEPTH tokens."""
    return st.lists(entries, min_size=DEPTH, max_size=DEPTH).map(tuple)


models = st.one_of(
    st.builds(Geometric, probabilities),
    st.builds(BetaGeometric, shapes, shapes),
    st.builds(lambda shares: PerPosition(survival=tuple(sorted(shares, reverse=True))), six(probabilities)),
    st.builds(
        lambda first, rest: PerPosition(histogram=(first, *rest)), st.integers(1, 99), six(st.integers(0, 10**9))
    ),
    st.builds(Recorded, st.just(DEPTH), st.lists(st.lists(depths, min_size=1).map(tuple), min_size=1).map(tuple)),
)


class Content(msgspec.Struct):
    """A scenario or profile, as far as acceptance goes."""

    acceptance: AcceptanceModel


def assert_follows(lengths: list[int], expected: np.ndarray) -> None:
    """Pearson's test of goodness of fit."""
    observed = np.bincount(lengths, minlength=len(expected))
    assert len(observed) == len(expected)
    assert stats.chisquare(observed, expected * len(lengths)).pvalue > FALSE_ALARM


@given(probabilities, st.integers(0, 64))
def test_the_closed_forms_equal_the_tail_sum(beta: float, depth: int) -> None:
    model = Geometric(beta)
    assert committed_closed_form(beta, depth) == pytest.approx(expected_committed(model, depth), rel=1e-12)


def test_the_closed_forms_reach_their_limits() -> None:
    for beta in (1.0, math.nextafter(1, 0), 1 - 1e-13):
        assert committed_closed_form(beta, 5) == pytest.approx(6, rel=1e-11)
    assert committed_closed_form(0, 5) == 1


@given(models, depths)
def test_mean_of_a_distribution_is_its_tail_sum(model: AcceptanceModel, depth: int) -> None:
    chances = pmf(model, depth)
    assert chances.shape == (depth + 1,)
    assert (chances >= 0).all()
    assert chances.sum() == pytest.approx(1)
    assert chances @ np.arange(depth + 1) == pytest.approx(expected_accepted(model, depth))


@given(models, depths)
def test_a_smaller_depth_only_cuts_lengths_off(model: AcceptanceModel, depth: int) -> None:
    assume(not isinstance(model, Recorded))  # see its test below
    assert survival(model, depth).tolist() == survival(model, DEPTH)[:depth].tolist()


@given(shapes, shapes)
def test_beta_geometric_survival_is_a_moment_of_the_beta_distribution(a: float, b: float) -> None:
    j = np.arange(1, DEPTH + 1)
    # betaln cancels for large shapes: eight digits are left of its sixteen
    assert survival(BetaGeometric(a, b), DEPTH) == pytest.approx(np.exp(betaln(a + j, b) - betaln(a, b)), rel=1e-7)


def test_models_stand_in_a_scenario_and_survive_a_profile() -> None:
    for text, model in {
        '{model = "geometric", beta = 0.8}': Geometric(0.8),
        '{model = "beta-geometric", a = 4, b = 1}': BetaGeometric(4, 1),
        '{model = "per-position", survival = [0.9, 0.63]}': PerPosition(survival=(0.9, 0.63)),
        '{model = "per-position", histogram = [39, 1, 0, 3]}': PerPosition(histogram=(39, 1, 0, 3)),
        '{model = "recorded", depth = 3, sessions = [[0, 3], [1]]}': Recorded(3, ((0, 3), (1,))),
    }.items():
        content = convert(tomllib.loads(f"acceptance = {text}"), Content, "fleet.toml")
        assert content == Content(model)
        assert msgspec.json.decode(msgspec.json.encode(content), type=Content) == content


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{model = "geometric", beta = 1.2}', ["acceptance.beta", "1.2", "<= 1"]),
        ('{model = "geometric", alpha = 1}', ["acceptance.alpha", "beta"]),
        ('{model = "beta-geometric", a = 0, b = 1}', ["acceptance.a", "0", "> 0"]),
        ('{model = "beta-geometric", a = 1}', ["acceptance", "both a and b, or neither"]),
        ('{model = "beta-geometric", a = inf, b = 1}', ["acceptance.a", "inf", "<="]),
        ('{model = "per-position", survival = []}', ["acceptance.survival", "[]", ">= 1"]),
        ('{model = "per-position"}', ["acceptance", "needs survival or histogram; given: none"]),
        ('{model = "per-position", survival = [0.5], histogram = [1, 1]}', ["given: survival, histogram"]),
        ('{model = "per-position", survival = [1.1]}', ["acceptance.survival.0", "1.1", "<= 1"]),
        ('{model = "per-position", survival = [0.5, nan]}', ["acceptance.survival.1", "nan"]),
        ('{model = "per-position", survival = [0.5, 0.5, 0.6]}', ["survival[2] = 0.6", "survival[1] = 0.5"]),
        ('{model = "per-position", histogram = [1, -1]}', ["acceptance.histogram.1", "-1", ">= 0"]),
        ('{model = "per-position", histogram = [1, 0.5]}', ["acceptance.histogram.1", "0.5", "int"]),
        ('{model = "per-position", histogram = [5]}', ["acceptance.histogram", "[5]", ">= 2"]),
        ('{model = "per-position", histogram = [0, 0]}', ["histogram = [0, 0]", "a sum above 0"]),
        ('{model = "recorded", depth = 3, sessions = [[1, 2], [4]]}', ["sessions[1]", "4", "0 to depth = 3"]),
    ],
)
def test_an_impossible_model_is_refused_by_key_and_value(text: str, named: list[str]) -> None:
    with pytest.raises(InputError) as refusal:
        convert(tomllib.loads(f"acceptance = {text}"), Content, "fleet.toml")
    for part in ("fleet.toml", *named):
        assert part in str(refusal.value)


@pytest.mark.parametrize("model", [PerPosition((0.9, 0.7)), PerPosition(histogram=(4, 0, 2)), Recorded(2, ((0, 2),))])
def test_a_depth_of_which_nothing_is_known_is_refused(model: AcceptanceModel) -> None:
    for use in (survival, lambda model, depth: Sampler(model, depth, np.random.default_rng(0))):
        use(model, 2)
        with pytest.raises(InputError, match=r"depth = 3 goes beyond .*; allowed: up to 2"):
            use(model, 3)


# --- acceptance in the words of serving engines ---


counts = st.builds(lambda first, rest: (first, *rest), st.integers(1, 10**6), six(st.integers(0, 10**6)))


@given(counts)
def test_counts_and_positions_are_equivalent(histogram: tuple[int, ...]) -> None:
    model, steps = PerPosition(histogram=histogram), sum(histogram)
    at_least = [sum(histogram[j:]) for j in range(len(histogram) + 1)]
    assert steps * survival(model, DEPTH) == pytest.approx(at_least[1:-1])
    assert [at_least[j] - at_least[j + 1] for j in range(DEPTH + 1)] == list(histogram), "h[j] = n[j-1] - n[j]"
    assert steps * pmf(model, DEPTH) == pytest.approx(histogram, abs=1e-6 * steps)
    accepted = sum(j * count for j, count in enumerate(histogram))
    assert expected_committed(model, DEPTH) == pytest.approx(1 + accepted / steps)


@given(models.filter(lambda model: isinstance(model, PerPosition)))
def test_per_position_forms_convert_into_each_other(model: PerPosition) -> None:
    reached = survival(model, DEPTH)
    as_survival = PerPosition(survival=tuple(reached.tolist()))
    as_counts = PerPosition(histogram=tuple(np.rint(1e15 * pmf(model, DEPTH)).clip(0).astype(int).tolist()))
    for other in (as_survival, as_counts):
        assert survival(other, DEPTH) == pytest.approx(reached, abs=1e-12)


@pytest.mark.parametrize("drafted", [DEPTH, 3])
@pytest.mark.parametrize(
    "model",
    [
        Geometric(0.75),
        BetaGeometric(3, 1),
        PerPosition((0.9, 0.8, 0.7, 0.6, 0.5, 0.2)),
        PerPosition(histogram=(10, 5, 8, 7, 6, 5, 20)),
        Recorded(DEPTH, tuple((length,) for length in (0, 1, 1, 2, 3, 4, 5, 6, 6, 6))),
    ],
)
def test_draws_follow_the_distribution(model: AcceptanceModel, drafted: int) -> None:
    if isinstance(model, Recorded):
        drafted = DEPTH  # at another depth a session's first round is not like the others
    sampler = Sampler(model, DEPTH, np.random.default_rng(1))
    lengths = []
    for request in range(20_000):  # another each time, so that lengths are independent whatever sessions remember
        sampler.begin_session(0, request)
        lengths.append(sampler.draw(0, drafted))
    assert_follows(lengths, pmf(model, drafted))


@pytest.mark.parametrize(("beta", "accepted"), [(0.0, 0), (1.0, DEPTH)])
def test_certainty_is_certain(beta: float, accepted: int) -> None:
    sampler = Sampler(Geometric(beta), DEPTH, np.random.default_rng(0))
    sampler.begin_session(0, 0)
    assert {sampler.draw(0, DEPTH) for _ in range(10_000)} == {accepted}


def test_each_round_has_its_own_beta() -> None:
    """Two first tokens of a session then pass with E[beta]^2, not with E[beta^2]."""
    sampler = Sampler(BetaGeometric(3, 1), 1, np.random.default_rng(2))
    successes = 0
    for number in range(20_000):
        sampler.begin_session(0, 2 * number)
        first = sampler.draw(0, 1)
        sampler.begin_session(1, 2 * number + 1)  # another one in between has no influence
        sampler.draw(1, 1)
        successes += first * sampler.draw(0, 1)
    assert stats.binomtest(successes, 20_000, (3 / 4) ** 2).pvalue > FALSE_ALARM


def test_recordings_play_in_order_then_continue_with_another_session() -> None:
    recording = Recorded(9, ((1, 2, 3), (4, 5), (6, 7, 8, 9)))
    sampler = Sampler(recording, 9, np.random.default_rng(3))
    sampler.begin_session(0, 0)
    sampler.begin_session(1, 1)
    played: dict[int, list[int]] = {0: [], 1: []}
    for turn in range(600):
        played[turn % 2].append(sampler.draw(turn % 2, 9))
    following = {length: next_ for session in recording.sessions for length, next_ in pairwise(session)}
    openings = {session[0] for session in recording.sessions}
    for lengths in played.values():
        assert lengths[0] in openings
        for length, next_ in pairwise(lengths):
            assert next_ == following[length] if length in following else next_ in openings
        assert openings <= set(lengths)  # misses one of three in 75 choices or more: 3 (2/3)^75 < 1e-12


@pytest.mark.parametrize(
    "model",
    [
        Geometric(0.8),
        BetaGeometric(3, 1),
        PerPosition((0.9, 0.8, 0.7, 0.6, 0.5, 0.2)),
        Recorded(DEPTH, ((0, 1, 2), (3, 4), (5,), (6, 6))),
    ],
)
def test_acceptance_of_a_request_is_independent_of_other_requests(model: AcceptanceModel) -> None:
    """One sampler draws all requests in turn, another a few of them, round by round and in another order."""
    rounds, numbers = 100, [17, 3, 5]
    one, other = (Sampler(model, DEPTH, np.random.default_rng(5)) for _ in range(2))
    in_turn = {}
    for request in range(20):
        one.begin_session(0, request)
        in_turn[request] = [one.draw(0, DEPTH) for _ in range(rounds)]
    for tag, request in enumerate(numbers):
        other.begin_session(tag, request)
    mixed = [[other.draw(tag, DEPTH) for tag in range(len(numbers))] for _ in range(rounds)]
    assert [list(lengths) for lengths in zip(*mixed, strict=True)] == [in_turn[request] for request in numbers]
    assert len({tuple(lengths) for lengths in in_turn.values()}) > 3, "or all requests would be the same"
    other_seed = Sampler(model, DEPTH, np.random.default_rng(6))
    other_seed.begin_session(0, 17)
    assert [other_seed.draw(0, DEPTH) for _ in range(rounds)] != in_turn[17]


@pytest.mark.parametrize("sessions", [1, 4, 7])
def test_each_recorded_session_plays_once_before_any_repeats(sessions: int) -> None:
    recording = Recorded(9, tuple((number,) for number in range(sessions)))
    sampler = Sampler(recording, 9, np.random.default_rng(0))
    for deck in range(3):
        first = []
        for request in reversed(range(deck * sessions, (deck + 1) * sessions)):
            sampler.begin_session(0, request)
            first.append(sampler.draw(0, 9))
        assert sorted(first) == list(range(sessions))


def rounds_of(agrees: list[bool], depth: int) -> tuple[int, ...]:
    """Walk over a text with drafts of a depth, to the last whole round."""
    rounds, place = [], 0
    while place + depth < len(agrees):
        draft = agrees[place : place + depth]
        rounds.append(draft.index(False) if False in draft else depth)
        place += rounds[-1] + 1
    return tuple(rounds)


@pytest.mark.parametrize("depth", [1, 3, 5])
def test_recordings_are_unbiased_at_smaller_depths(depth: int) -> None:
    """Texts differ in how easy they are; a shallower draft has more rounds in the easy ones than were recorded."""
    rng = np.random.default_rng(1)
    texts = [(rng.random(400) < beta).tolist() for beta in rng.uniform(0.3, 0.98, 300)]
    recording = Recorded(8, tuple(rounds_of(text, 8) for text in texts))
    truth = np.concatenate([rounds_of(text, depth) for text in texts])
    truncated = np.minimum(np.concatenate(recording.sessions), depth).mean()
    assert expected_accepted(recording, depth) == pytest.approx(truth.mean(), rel=0.005)
    assert truncated < 0.95 * truth.mean()
    assert recording.at(8) == (recording.sessions, ())
