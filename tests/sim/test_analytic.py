"""StarSD's equations against a star played round by round, and exponential services against balanced states.

Oracles use integers or fractions, so ties in the paper's conditions are exact.
"""

import heapq
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.admit import N_max
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.stations.star import star_inputs
from specfleet.sim.analytic import (
    N_full,
    N_full_of,
    idle_s,
    is_busy,
    is_fully_loaded,
    iteration_s,
    load,
    plateau_ratio,
    play,
    predict_star,
    regime,
    rounds_per_s,
    rounds_per_s_per_target,
    wait_s,
)
from specfleet.sim.predict import predict
from specfleet.sim.run import simulate
from tests.helpers.stars import star
from tests.helpers.theory import exponential_round_rate

ACCURACY = 1e-9

targets = st.integers(1, 40)
service_ms = st.integers(1, 2000)
return_ms = st.integers(0, 20_000)
positive_s = st.floats(1e-4, 10)
not_negative_s = st.just(0.0) | st.floats(1e-4, 100)


def replay(services: list[list[float]], returns: list[list[float]]) -> list[tuple[int, float, float, float]]:
    """Serve rounds in order of arrival, all targets ready at 0. Return (target, ready, start, back) of each."""
    waiting = [(0.0, target, 0) for target in range(len(services))]
    free, rounds = 0.0, []
    while waiting:
        ready, target, done = heapq.heappop(waiting)
        start = max(ready, free)
        free = start + services[target][done]
        back = free + returns[target][done]
        rounds.append((target, ready, start, back))
        if done + 1 < len(services[target]):
            heapq.heappush(waiting, (back, target, done + 1))
    return rounds


# --- the equations of the star ---


@pytest.mark.parametrize(("S", "Z"), [(1, 0), (1, 4), (2, 7), (3, 12), (5, 1), (7, 50)])
@pytest.mark.parametrize("N", range(1, 11))
def test_equations_equal_a_star_played_round_by_round(N, S, Z):
    rounds = 5
    served = replay([[S] * rounds] * N, [[Z] * rounds] * N)
    before, last = served[-2 * N : -N], served[-N:]
    period = last[0][2] - before[0][2]
    gaps = sum(now[2] - (earlier[2] + S) for earlier, now in zip(served[-N - 1 : -1], last, strict=True))
    assert last[0][0] == before[0][0], "the same target begins each iteration"
    assert iteration_s(N, S, Z) == period
    assert idle_s(N, S, Z) == gaps
    assert {wait_s(N, S, Z)} == {start - ready for _, ready, start, _ in last}
    assert rounds_per_s(N, S, Z) == pytest.approx(N / period, rel=ACCURACY)
    assert rounds_per_s_per_target(N, S, Z) == pytest.approx(1 / period, rel=ACCURACY)
    assert load(N, S, Z) == pytest.approx((period - gaps) / period, rel=ACCURACY)


# --- where the regimes meet ---


@given(service_ms, return_ms | st.integers(0, 30), st.booleans())
def test_N_full_is_the_smallest_N_that_covers_the_return(S_ms, Z_ms, whole_ratio):
    if whole_ratio:
        Z_ms = (Z_ms % 50) * S_ms
    S_s, Z_s = S_ms / 1000, Z_ms / 1000
    smallest = next(N for N in range(1, Z_ms + 2) if Z_ms <= (N - 1) * S_ms)
    assert N_full(S_s, Z_s) == smallest
    assert smallest == math.ceil(Fraction(Z_ms, S_ms)) + 1, "equation (12)"
    for N in {1, smallest - 1, smallest, smallest + 1} - {0}:
        assert is_fully_loaded(N, S_s, Z_s) == (smallest <= N)
        assert regime(N, S_s, Z_s) == ("fully-loaded" if smallest <= N else "under-loaded")


@pytest.mark.parametrize("ratio", [1, 3, 7, 11, 19, 22, 38, 49, 1000])
@pytest.mark.parametrize("Z_s", [0.013, 0.1, 0.3, 2.1])
def test_both_regimes_agree_at_their_boundary(ratio, Z_s):
    """Z / ratio rounds up or down; both count as an integer ratio."""
    S_s = Z_s / ratio
    N = ratio + 1
    assert N_full(S_s, Z_s) == N
    assert regime(N, S_s, Z_s) == "fully-loaded"
    assert regime(N - 1, S_s, Z_s) == "under-loaded"
    assert N * S_s == pytest.approx(S_s + Z_s, rel=ACCURACY), "equations (8) and (10) meet"
    assert idle_s(N, S_s, Z_s) == pytest.approx(0, abs=ACCURACY * Z_s)
    assert wait_s(N, S_s, Z_s) == pytest.approx(0, abs=ACCURACY * Z_s)


def test_N_full_does_not_round_a_real_excess_away():
    assert N_full(1.0, 3.0 + 1e-9) == 5
    assert N_full(1.0, 2e9 + 1.0) == 2_000_000_002


@given(positive_s, not_negative_s)
def test_the_round_rate_stops_growing_at_the_plateau(S_s, Z_s):
    N = N_full(S_s, Z_s)
    one, full = rounds_per_s(1, S_s, Z_s), rounds_per_s(N, S_s, Z_s)
    assert full / one == pytest.approx(plateau_ratio(S_s, Z_s), rel=ACCURACY)
    assert rounds_per_s(N + 10, S_s, Z_s) == pytest.approx(full, rel=ACCURACY)
    assert N == 1 or rounds_per_s(N - 1, S_s, Z_s) < full


# --- where speculation stops to pay ---


@given(st.integers(10, 500), st.integers(0, 3000), st.integers(1, 10), st.integers(1, 200))
def test_N_max_is_the_last_N_without_slower_targets(S_ms, Z_ms, tokens, standalone):
    def pays(N: int) -> bool:
        return tokens * 1000 >= standalone * max(N * S_ms, S_ms + Z_ms)

    assume(tokens * 1000 != standalone * (S_ms + Z_ms))  # at this tie, rounding decides
    last = 0
    while pays(last + 1):
        last += 1
    assert N_max(S_ms / 1000, Z_ms / 1000, tokens, standalone) == last


# --- unlike targets ---

unlike = st.lists(st.integers(0, 20), min_size=2, max_size=6)


@settings(max_examples=25)
@given(unlike, st.integers(1, 4))
def test_unlike_targets_keep_within_the_equations(returns: list[int], S: int) -> None:
    (R_q, rates), N = play(S, returns), len(returns)
    least = sum(1 / (S + Z) for Z in returns)
    assert 0.7 * min(1 / S, least) < R_q < min(1 / S, least) * (1 + 1e-3)
    assert all(rate <= 1 / (S + Z) for rate, Z in zip(rates, returns, strict=True))
    assert sum(rates) == pytest.approx(R_q, rel=0.01)
    if any(k * S >= Z for k, Z in enumerate(sorted(returns))):  # equation (7) of the fastest k + 1
        assert is_busy(R_q, S)
    most = N_full_of(S, returns)
    assert (most <= N) == is_busy(R_q, S)
    assert sum(1 / (S + Z) for Z in (returns + [returns[-1]] * most)[:most]) >= (1 - ACCURACY) / S


@settings(max_examples=25)
@given(st.integers(1, 12), service_ms, st.integers(0, 20_000))
def test_equal_targets_are_played_as_the_equations_say(N: int, S: int, Z: int) -> None:
    R_q, rates = play(S, [Z] * N)
    assert rates == pytest.approx([rounds_per_s_per_target(N, S, Z)] * N, rel=1e-3)
    assert R_q == pytest.approx(rounds_per_s(N, S, Z), rel=1e-3)
    assert is_busy(R_q, S) == is_fully_loaded(N, S, Z)
    assert N_full_of(S, [Z] * N) == N_full(S, Z)


def common_wait_s(S: float, returns: list[int]) -> float:
    """The wait of all with which rounds just fill the drafter's time, by halving; 0 where they do not."""
    low, high = 0.0, S * len(returns) + max(returns)
    for _ in range(60):
        wait = (low + high) / 2
        low, high = (wait, high) if sum(S / (S + Z + wait) for Z in returns) > 1 else (low, wait)
    return low


@given(st.lists(st.integers(0, 300), min_size=1, max_size=5), st.integers(10, 90), st.integers(1, 9), st.data())
def test_each_targets_N_max_is_the_last_N_that_it_gains_from(returns, S, tokens, data):
    own, standalone = data.draw(st.sampled_from(returns)), data.draw(st.sampled_from([1, 7, 19, 53])) / 1009

    def gains(N: int) -> bool:
        served = (returns + [returns[-1]] * N)[:N]
        return tokens >= standalone * (S + own + common_wait_s(S, served)) * (1 - 1e-9)

    last = N_max(S, own, tokens, standalone, among=returns)
    assert gains(max(last, 1)) == (last > 0)
    assert not gains(last + 1)


# --- the whole prediction ---


@given(targets, positive_s, not_negative_s, st.floats(0, 10))
def test_a_prediction_is_consistent_with_itself(N, S_s, Z_s, accepted):
    star = predict_star(N, S_s, Z_s, accepted_per_round=accepted, standalone_tokens_per_s=20.0)
    system, target = star.throughput, star.throughput_per_target
    assert (star.regime == "fully-loaded") == (star.N_full <= N)
    assert system.without_bonus == pytest.approx(accepted * star.rounds_per_s, rel=ACCURACY)
    assert system.with_bonus - system.without_bonus == pytest.approx(star.rounds_per_s, rel=1e-6), "one a round"
    assert target.with_bonus == pytest.approx((accepted + 1) * star.rounds_per_s_per_target, rel=ACCURACY)
    assert target.without_bonus == pytest.approx(accepted * star.rounds_per_s_per_target, rel=ACCURACY)
    assert star.load == pytest.approx(star.rounds_per_s * star.S_s, rel=ACCURACY)
    assert (star.S_s, star.Z_s, star.N) == (S_s, Z_s, N)
    assert (star.acceptance_length, star.mean_acceptance_length) == (accepted, accepted + 1)
    assert star.N_max == N_max(S_s, Z_s, accepted + 1, 20.0)


# --- exponential services ---


@pytest.mark.parametrize("N", [1, 2, 3, 8, 20, 64])
@pytest.mark.parametrize(
    "ratio", [Fraction(0), Fraction(1, 10), Fraction(1), Fraction(4), Fraction(19, 3), Fraction(50)]
)
def test_one_station_is_the_machine_repairman_model(N, ratio):
    """n requests at the drafter: arrivals at rate (N - n) / Z, departures at rate 1 / S; balanced exactly."""
    S = Fraction(1, 4)
    Z = ratio * S
    weights = [Fraction(1)]  # from n = N down, so that Z = 0 needs no division
    for n in range(N, 0, -1):
        weights.append(weights[-1] * Z / ((N - n + 1) * S))
    P = [weight / sum(weights) for weight in reversed(weights)]
    round_rate = (1 - P[0]) / S
    assert exponential_round_rate(N, float(S), float(Z)) == pytest.approx(float(round_rate), rel=ACCURACY)


def test_drafts_that_take_no_time_are_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"scenario 'unnamed': its profile's drafts take no time"):
        predict(star(profile={"draft": {"base_s": 0.0}}))


@pytest.mark.parametrize("drafters", [{"shape": {"kind": "tree", "branching": [3, 1]}}, {"kind": "eagle"}])
def test_equations_equal_simulation_for_trees_and_hidden_states(drafters):
    """Nothing is accepted, so all rounds are equal: all nodes are verified, one hidden state is sent."""
    profile = {
        "draft": {"per_token_s": 1.0}, "verify": {"per_token_s": 0.5}, "hidden": 1000,
        "link": {"latency_s": 0.1, "bandwidth_bytes_per_s": 1000.0},
    }  # fmt: skip
    scenario = star(
        profile=profile, drafters={"depth": 3} | drafters, verifiers={"count": 1},
        acceptance={"model": "geometric", "beta": 0.0}, workload={"requests": 1, "new_tokens": 40},
    )  # fmt: skip
    starts = simulate(scenario).frame().query("station == 'drafter' and event == 'start' and kind == 'draft'").time_s
    rounds_s = np.diff(starts)[1:]  # the first one includes a prefill
    assert rounds_s == pytest.approx(rounds_s[0])
    inputs = star_inputs(resolve(scenario))
    assert inputs.service_s + inputs.return_s == pytest.approx(rounds_s[0])
    nodes = 9 if "shape" in drafters else 3
    assert inputs.verify_s == pytest.approx(0.5 * (nodes + 1))
