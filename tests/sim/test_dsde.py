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

from fleet.acceptance.signals import Regional, read_signals, synthetic, write_signals
from fleet.acceptance.token import Token
from fleet.acceptance.tokens import TokenSampler
from fleet.errors import InputError
from fleet.policies import adaedl
from fleet.policies.adaedl import AdaEdl, Threshold
from fleet.policies.dsde import (
    DECAY,
    LONG_STEPS,
    SHORT_STEPS,
    SL_MIN,
    Dsde,
    Stability,
    scale_factor,
    sl_max,
    wvir,
)
from fleet.policies.outcome import Outcome
from fleet.records.metrics.measure import measure
from fleet.records.replay import replay
from fleet.scenario.reading import make_scenario
from sim.run import simulate
from tests.helpers.stars import repeatable

RNG = np.random.default_rng(0)
STEADY = Stability(klds=(0.1,) * 30, steps=30, longest=8, tokens=20, kld_sum=2.0, kld_peak=0.4)


def test_the_longest_length_is_equation_1() -> None:
    assert sl_max(STEADY) == pytest.approx(8 * (1 + 0.1 / (0.4 + 1e-6)))
    assert sl_max(Stability(longest=5)) == 5


def test_constant_divergence_gives_equations_2_and_3() -> None:
    """0 / 0 counts as 1: the scale factor alone decides."""
    rule = Dsde(cap=False)
    longest = sl_max(STEADY)
    assert wvir(STEADY.klds) == 1
    assert rule.predicted(STEADY) == pytest.approx((1 - math.expm1(0.2)) * (longest - 2) + 2)


def test_the_cap_is_the_mean_of_the_batch() -> None:
    """Equation (11)."""
    calm, wild = STEADY, Stability((*STEADY.klds[1:], 2.0), 30, 8, 20, 2.0, 0.4)
    free = Dsde(cap=False).lengths([calm, wild], RNG)
    capped = Dsde().lengths([calm, wild], RNG)
    assert free[1] == capped[1] == 2
    assert capped[0] == round((Dsde().predicted(calm) + 2) / 2) < free[0]


@repeatable
@given(st.lists(st.tuples(st.integers(0, 16), st.floats(0, 5)), min_size=1, max_size=40))
def test_dsde_lengths_stay_within_their_bounds(steps: list[tuple[int, float]]) -> None:
    rule = Dsde()
    state = rule.start()
    for accepted, kld in steps:
        (length,) = rule.lengths([state], RNG)
        assert SL_MIN <= length <= rule.longest
        state = rule.learn(state, length, Outcome(min(accepted, length), kld=kld, kld_peak=kld))


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
    assert set(np.round(frame.kld_peak[frame.kind == "verify"].unique(), 3)) <= {0.0, 0.1, 0.3, 0.6}


@pytest.mark.parametrize(
    ("sessions", "message"),
    [([], "needs rows"), ([[Token(1.5)]], "ratio = 1.5; allowed"), ([[Token(0.5, -1.0)]], "kld = -1.0; allowed")],
)
def test_bad_signals_are_refused_in_one_line(tmp_path: Path, sessions: list[list[Token]], message: str) -> None:
    write_signals(sessions, tmp_path / "bad.parquet")
    with pytest.raises(InputError, match=message):
        read_signals(tmp_path / "bad.parquet")


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
    flat = {"gap": 0.0, "coupling": 0.0, "entropy": 1.8}  # median at the threshold: p = 1/2
    metric = measure(simulate(batch({"policy": "adaedl", "base": base}, N, flat)))["draft_share"]
    beyond = [0.5**k for k in range(base)]  # P(a row gets more than k)
    longest = sum(1 - (1 - chance) ** N for chance in beyond)
    expected = longest / (longest + 5.0)
    assert abs(metric.value - expected) < (metric.high - metric.low) / 2 * 3.88 / 2.09


@pytest.mark.parametrize(("entropy", "drafted"), [(0.0, AdaEdl().base), (4.9, 1)])
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


@repeatable
@given(st.lists(st.floats(0, 3), min_size=1, max_size=40))
def test_the_ratio_of_variances_is_equation_4(klds: list[float]) -> None:
    """With numpy: the 10 newest steps over the 30 newest ones, weighted by age."""

    def variance(window: int) -> float:
        newest = np.array(klds[-window:])
        weights = DECAY ** np.arange(len(newest) - 1, -1, -1.0)
        mean = np.average(newest, weights=weights)
        return float(np.average((newest - mean) ** 2, weights=weights))

    if variance(LONG_STEPS) < 1e-12:
        return
    ratio = variance(SHORT_STEPS) / variance(LONG_STEPS)
    assert wvir(klds) == pytest.approx(ratio, rel=1e-6)
    state = msgspec.structs.replace(STEADY, klds=tuple(klds))
    penalty = math.expm1(2 * klds[-1]) * ratio
    expected = (1 - penalty) * (sl_max(state) - SL_MIN) + SL_MIN if penalty <= 1 else SL_MIN
    assert Dsde(cap=False).predicted(state) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("kld", [0.0, 1e-9, 0.1, 0.35, 0.7, 3.3])
@pytest.mark.parametrize("steps", [1, 7, 30])
def test_constant_divergence_has_a_variance_ratio_of_one(kld: float, steps: int) -> None:
    """The mean of 30 times 0.35 is not 0.35 in floating point: noise over noise once gave the longest draft."""
    assert wvir((kld,) * steps) == 1.0
    assert wvir((*(kld,) * steps, kld + 0.01)) != 1.0 or steps < SHORT_STEPS
    assert wvir(()) == 1.0


def test_dsde_keeps_the_long_window_and_calibration_sums() -> None:
    rule = Dsde()
    state = rule.start()
    steps = [(4, 1), (2, 2), (6, 0), (5, 1), *[(7, 7)] * 28]
    for step, (drafted, accepted) in enumerate(steps, start=1):
        assert step > 4 or rule.lengths([state], RNG) == [8]
        state = rule.learn(state, drafted, Outcome(accepted, kld=0.1 * step, kld_peak=0.3 * step))
    assert state.klds == pytest.approx([0.1 * step for step in range(3, 33)])
    assert (state.steps, state.longest, state.tokens) == (32, 2, 17)
    assert (state.kld_sum, state.kld_peak) == pytest.approx((0.1 * 4 + 0.2 * 2 + 0.3 * 6 + 0.4 * 5, 1.2))


def test_scale_factors_beyond_one_give_the_minimum_length() -> None:
    """Equation (8)."""
    rule = Dsde(cap=False)
    assert scale_factor(math.log(2) / 2) == pytest.approx(1)
    just_below = msgspec.structs.replace(STEADY, klds=(0.34,) * 30)
    assert SL_MIN < rule.predicted(just_below) < SL_MIN + 0.3
    assert rule.predicted(msgspec.structs.replace(STEADY, klds=(0.35,) * 30)) == SL_MIN


def test_adaedl_smooths_acceptance_and_threshold() -> None:
    """By hand: half of the past share, nine tenths of the past threshold."""
    rule = AdaEdl()
    assert rule.start() == rule.learn(rule.start(), 0, Outcome()) == Threshold(0.4, 0.9)
    assert [rule.stops(rule.start(), entropy) for entropy in (1.79, 1.81)] == [False, True]  # 1 - sqrt(0.2 * 1.8) = 0.4
    below = rule.learn(Threshold(0.4, 0.9), 4, Outcome(2))
    assert (below.threshold, below.accepted_share) == pytest.approx((0.9 * 0.4 + 0.1 * 0.41, 0.7))
    at = rule.learn(Threshold(0.4, 0.85), 4, Outcome(4))
    assert (at.threshold, at.accepted_share) == pytest.approx((0.9 * 0.4 + 0.1 * 0.39, 0.925))
    assert rule.learn(Threshold(0.0, 1.0), 4, Outcome(4)).threshold == 0.0
    assert rule.learn(Threshold(1.0, 0.0), 4, Outcome(0)).threshold == 1.0
    assert not rule.stops(Threshold(0.0, 1.0), 5.0 - 1e-9)  # the bound 1 - sqrt(0.2 * 5) = 0 is not below 0
