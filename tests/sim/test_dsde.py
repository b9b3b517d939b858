"""DSDE, AdaEDL and their signals: equations, statistics of the process, and rows that share steps."""

import itertools
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.fleet.acceptance.signals import Regional, read_signals, synthetic, write_signals
from specfleet.fleet.acceptance.tokens import TokenSampler
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies import adaedl
from specfleet.fleet.policies.adaedl import AdaEdl, Threshold
from specfleet.fleet.policies.dsde import (
    DECAY,
    LONG_TOKENS,
    SHORT_TOKENS,
    SL_MIN,
    STILL,
    Dsde,
    Stability,
    predicted,
    scale_factor,
    sl_max,
    wvir,
)
from specfleet.fleet.policies.outcome import Outcome, Token
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.replay import replay
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.sim.run import simulate

RNG = np.random.default_rng(0)
STEADY = Stability(klds=(0.1, 0.2) * 15, last=0.15, longest=8, sl_max=12)


def test_the_longest_length_is_equation_1() -> None:
    """A whole number of tokens, from 2 to 20."""
    assert sl_max(Stability((0.1,) * 20, longest=8)) == 16
    assert sl_max(Stability((0.1, 0.1, 0.4, 0.2), longest=8)) == 12  # 8 (1 + 0.2 / 0.4)
    assert [sl_max(Stability((0.3,), longest=longest)) for longest in (0, 1, 9, 20)] == [2, 2, 18, 20]
    assert sl_max(Stability(longest=5)) == 5


def test_the_length_is_equations_2_and_3_rounded_up() -> None:
    penalty = math.expm1(2 * 0.15) * wvir(STEADY.klds)
    assert predicted(STEADY) == math.ceil((1 - penalty) * 10 + 2) == 9


def test_the_cap_is_the_mean_of_the_batch() -> None:
    """Equation (11), rounded up; a sequence in its calibration neither counts nor is capped."""
    calm, wild, new = STEADY, msgspec.structs.replace(STEADY, last=2.0), Stability(length=20)
    assert Dsde(cap=False).lengths([calm, wild, new], RNG) == [9, 2, 20]
    assert Dsde().lengths([calm, wild, new], RNG) == [6, 2, 20]


@given(st.lists(st.tuples(st.integers(0, 16), st.floats(0, 5)), min_size=1, max_size=40))
def test_dsde_lengths_stay_within_their_bounds(steps: list[tuple[int, float]]) -> None:
    rule = Dsde()
    state = rule.start()
    for accepted, kld in steps:
        (length,) = rule.lengths([state], RNG)
        assert SL_MIN <= length <= rule.longest
        state = rule.learn(state, length, Outcome(min(accepted, length), klds=(kld,) * length))


# Signals.


def test_synthetic_signals_have_their_mean_and_correlations() -> None:
    """20,000 tokens in regions of 20 are about 1,000 independent ones. The mean is within 5 standard errors."""
    model = Regional(0.7, gap=0.1, coupling=0.6)
    ratio, kld, entropy = np.array(list(itertools.islice(synthetic(model, np.random.default_rng(0)), 20_000))).T
    assert ratio.mean() == pytest.approx(0.7, abs=5 * 0.32 / math.sqrt(1_000))
    assert np.corrcoef(ratio, entropy)[0, 1] < -0.2
    assert np.corrcoef(ratio, kld)[0, 1] < -0.5
    assert kld.min() >= 0
    assert entropy.min() > 0


@pytest.mark.parametrize(("acceptance", "gap"), [(0.98, 0.05), (0.03, 0.5), (0.5, 0.9), (0.995, 0.2)])
def test_synthetic_signals_keep_their_mean_near_its_bounds(acceptance: float, gap: float) -> None:
    """Within 5 standard errors of 20,000 tokens; regions change with probability 1/20."""
    tokens = itertools.islice(synthetic(Regional(acceptance, gap), np.random.default_rng(3)), 20_000)
    mean = np.mean([token.ratio for token in tokens])
    variance = acceptance * (1 - acceptance) / 2 + 19 * min(acceptance, 1 - acceptance) ** 2
    assert abs(mean - acceptance) < 5 * math.sqrt(variance / 20_000)


def test_recorded_signals_are_played_back(tmp_path: Path) -> None:
    file = tmp_path / "signals.parquet"
    sessions = [[Token(1.0, 0.1, 0.2), Token(0.0, 0.3, 0.4)], [Token(0.5, 0.6, 0.7)]]
    write_signals(sessions, file)
    assert read_signals(file) == tuple(tuple(session) for session in sessions)
    scenario = make_scenario(
        {
            "profile": {"name": "p", "draft": {"base_s": 1.0}, "verify": {"base_s": 1.0}},
            "acceptance": {"model": "signals", "file": "signals.parquet"},
            "drafters": {"place": "target"},
            "verifiers": {"max_num_seqs": 2, "allocate": "dsde"},
            "workload": {"requests": 4, "streams": 4, "prompt_tokens": 5, "new_tokens": 20},
        },
        base=tmp_path,
    )
    frame = simulate(scenario).frame()
    drafts = [klds for klds in frame.klds[frame.kind == "verify"] if len(klds)]
    assert {round(kld, 3) for klds in drafts for kld in klds} == {0.1, 0.3, 0.6}


@pytest.mark.parametrize(
    ("sessions", "message"),
    [([], "needs rows"), ([[Token(1.5)]], "ratio = 1.5; allowed"), ([[Token(0.5, -1.0)]], "kld = -1.0; allowed")],
)
def test_bad_signals_are_refused_in_one_line(tmp_path: Path, sessions: list[list[Token]], message: str) -> None:
    write_signals(sessions, tmp_path / "bad.parquet")
    with pytest.raises(InputError, match=message):
        read_signals(tmp_path / "bad.parquet")
    with pytest.raises(InputError, match=r"acceptance.file .*nowhere.parquet: cannot be read"):
        read_signals(tmp_path / "nowhere.parquet")


def test_a_place_keeps_its_signals() -> None:
    sampler = TokenSampler(Regional(0.5), np.random.default_rng(0))
    sampler.begin_session(0, first=10)
    first = sampler.verify(0, 11, 5)
    sampler.begin_session(1, first=0)
    sampler.verify(1, 1, 30)
    assert sampler.verify(0, 11, 5) == first


# In rows that share steps.


def batch(
    allocate: Any, size: int, acceptance: dict[str, Any] | None = None, tokens: int = 1500, **profile: Any
) -> Any:
    return make_scenario(
        {
            "name": "dsde",
            "profile": {"name": "p", "draft": {"per_token_s": 1.0}, "verify": {"base_s": 5.0}} | profile,
            "acceptance": {"model": "synthetic-signals", "acceptance": 0.8} | (acceptance or {}),
            "drafters": {"place": "target"},
            "verifiers": {"max_num_seqs": size, "allocate": allocate},
            "workload": {"requests": 2 * size, "streams": size, "prompt_tokens": 5, "new_tokens": tokens},
            "measure": {"warm_up_share": 0.0},
        }
    )


@pytest.mark.parametrize("allocate", ["dsde", "adaedl", {"policy": "fixed", "depth": 3}])
def test_a_run_of_every_length_rule_replays(allocate: Any) -> None:
    assert replay(simulate(batch(allocate, 2, tokens=60))) == []


def test_the_longest_row_sets_the_time_of_a_draft_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """With fixed lambda and independent entropies, a row gets min(G, base) tokens, P(G > k) = (1 - p)^k.

    A step takes E[max of N] tokens. Batch means at 99.9 %.
    """
    monkeypatch.setattr(adaedl, "STEP", 0.0)
    base, N = 6, 4
    flat = {"gap": 0.0, "coupling": 0.0, "entropy": 2.5}  # median at the threshold: p = 1/2
    metric = measure(simulate(batch({"policy": "adaedl", "base": base}, N, flat)))["draft_share"]
    beyond = [0.5**k for k in range(base)]  # P(a row gets more than k)
    longest = sum(1 - (1 - chance) ** N for chance in beyond)
    expected = longest / (longest + 5.0)
    assert abs(metric.value - expected) < (metric.high - metric.low) / 2 * 3.88 / 2.09


@pytest.mark.parametrize(("entropy", "drafted"), [(0.0, AdaEdl().base), (2.6, 1)])
def test_drafts_stop_after_a_token_of_high_entropy_alone(tmp_path: Path, entropy: float, drafted: int) -> None:
    write_signals([[Token(1.0, 0.0, entropy)]], tmp_path / "signals.parquet")
    tables = msgspec.to_builtins(batch("adaedl", 2, tokens=60))
    tables["acceptance"] = {"model": "signals", "file": "signals.parquet"}
    frame = simulate(make_scenario(tables, base=tmp_path)).frame()
    verified = frame[(frame.event == "done") & (frame.kind == "verify")]
    assert verified.tokens.mode().tolist() == [drafted]


@pytest.mark.slow
def test_the_cap_speeds_a_large_batch_up() -> None:
    """By a fifth, for texts of any length."""
    costs = {"verify": {"base_s": 5.0, "per_row_token_s": 0.1}}
    uneven = {"gap": 0.15}
    capped, free = (
        measure(simulate(batch({"policy": "dsde", "cap": cap}, 32, uneven, tokens=300, **costs)))["throughput"].value
        for cap in (True, False)
    )
    assert capped > free


# The two windows of equation (4).


@given(st.lists(st.floats(0, 3), min_size=1, max_size=40))
def test_the_ratio_of_variances_is_equation_4(klds: list[float]) -> None:
    """With numpy: the 10 newest tokens over the 30 newest ones, weighted by age; 20 where those hardly vary."""

    def variance(window: int) -> float:
        newest = np.array(klds[-window:])
        weights = DECAY ** np.arange(len(newest) - 1, -1, -1.0)
        mean = np.average(newest, weights=weights)
        return float(np.average((newest - mean) ** 2, weights=weights))

    if abs(variance(LONG_TOKENS) - STILL) < 1e-12:
        return
    ratio = variance(SHORT_TOKENS) / variance(LONG_TOKENS) if variance(LONG_TOKENS) > STILL else 20.0
    assert wvir(klds) == pytest.approx(ratio, rel=1e-6)


def test_dsde_calibrates_on_30_tokens_and_keeps_as_many() -> None:
    """Drafts of 5 tokens, doubled when all were accepted; the step that reaches 30 tokens is no part of (1)."""
    rule = Dsde()
    state = rule.start()
    given = []
    for drafted, accepted, kld in ((5, 5, 0.1), (10, 6, 0.2), (10, 10, 0.3), (20, 20, 3.0)):
        given += rule.lengths([state], RNG)
        state = rule.learn(state, drafted, Outcome(accepted, klds=(kld,) * drafted))
    assert given == [5, 10, 10, 20]
    assert state.klds == (0.3,) * 10 + (3.0,) * 20
    mean = (5 * 0.1 + 10 * 0.2 + 10 * 0.3) / 25
    assert (state.longest, state.last, state.sl_max) == (10, 3.0, round(10 * (1 + mean / 0.3)))
    assert rule.learn(state, 0, Outcome()) == state


def test_scale_factors_beyond_one_give_the_minimum_length() -> None:
    """Equation (8)."""
    assert scale_factor(math.log(2) / 2) == pytest.approx(1)
    ratio = wvir(STEADY.klds)
    lasts = [math.log1p(penalty / ratio) / 2 for penalty in (0.0, 0.95, 1.05, 9.0)]
    assert [predicted(msgspec.structs.replace(STEADY, last=last)) for last in lasts] == [12, 3, 2, 2]


def test_adaedl_smooths_acceptance_and_threshold() -> None:
    """By hand: half of the past share, nine tenths of the past threshold; it falls after whole drafts alone."""
    rule = AdaEdl(base=4)
    assert rule.start() == rule.learn(rule.start(), 0, Outcome()) == Threshold(0.5, 0.0)
    assert [rule.stops(rule.start(), entropy) for entropy in (2.49, 2.51)] == [False, True]  # 1 - sqrt(0.1 * 2.5) = 0.5
    below = rule.learn(Threshold(0.4, 0.9), 4, Outcome(2))
    assert (below.threshold, below.accepted_share) == pytest.approx((0.9 * 0.4 + 0.1 * 0.41, 0.7))
    at = rule.learn(Threshold(0.4, 0.85), 4, Outcome(4))
    assert (at.threshold, at.accepted_share) == pytest.approx((0.9 * 0.4 + 0.1 * 0.39, 0.925))
    cut = rule.learn(Threshold(0.4, 0.85), 3, Outcome(3))
    assert (cut.threshold, cut.accepted_share) == pytest.approx((0.4, 0.925))
