"""GoodSpeed: the schedule is optimal, the budget holds, estimates converge."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from specfleet.experiments.reproduce.goodspeed import goodputs_of, smoothed
from specfleet.fleet.acceptance.models import committed_closed_form as expected_goodput
from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.policies.allocate import RandomShare
from specfleet.fleet.policies.goodspeed import Client, GoodSpeed, best_goodput, gradient_schedule, utility
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.records.metrics.findings import findings_of
from specfleet.fleet.records.metrics.measure import measure, window_of
from specfleet.fleet.records.metrics.tables import verifications_of
from specfleet.fleet.records.replay import replay
from specfleet.fleet.scenario.reading import change_scenario, make_scenario, read_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.run import simulate

shares = st.floats(0.0, 1.0, allow_nan=False)
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.0])
@given(clients=st.lists(st.tuples(st.floats(1.0, 10.0), shares), min_size=1, max_size=3), budget=st.integers(0, 7))
def test_the_gradient_schedule_is_optimal(alpha: float, clients: list[tuple[float, float]], budget: int) -> None:
    """Of all allocations, by the gradient X^-alpha of the utility at the goodputs X."""

    def gain(lengths: Sequence[int]) -> float:
        return sum(X**-alpha * expected_goodput(a, s) for (X, a), s in zip(clients, lengths, strict=True))

    lengths = GoodSpeed(budget, alpha).lengths([Client(a, X) for X, a in clients], RNG)
    assert sum(lengths) <= budget
    every = itertools.product(range(budget + 1), repeat=len(clients))
    best = max(gain(option) for option in every if sum(option) <= budget)
    assert gain(lengths) == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.0])
def test_the_gradient_schedule_climbs_its_utility(alpha: float) -> None:
    def slope(x: float) -> float:
        return (utility([x + 1e-6], alpha) - utility([x - 1e-6], alpha)) / 2e-6

    goodputs = [1.0, 2.5, 4.0]
    assert [x**-alpha for x in goodputs] == pytest.approx([slope(x) for x in goodputs], rel=1e-6)


def test_the_state_follows_equations_3_and_4() -> None:
    rule = GoodSpeed(10, eta=0.2, beta=0.5)
    state = rule.learn(rule.start(), 4, Outcome(3, ratio=0.9))
    assert (state.acceptance, state.goodput) == (pytest.approx(0.8 * 0.5 + 0.2 * 0.9), pytest.approx(0.5 * 1 + 0.5 * 4))
    for drafted, outcome, kept in ((0, Outcome(), 1.0), (4, Outcome(), 1.0), (4, Outcome(klds=(9.0,) * 4), 0.8)):
        after = rule.learn(state, drafted, outcome)  # nothing drafted, a late draft, a draft without a likely token
        assert after.acceptance == pytest.approx(kept * state.acceptance)
        assert after.goodput == pytest.approx(0.5 * state.goodput + 0.5)


def test_weights_fall_by_their_exponents() -> None:
    rule = GoodSpeed(10, eta=0.8, beta=0.4, eta_exponent=1.0, beta_exponent=0.5)
    state = Client(0.5, 2.0, rounds=3)
    after = rule.learn(state, 4, Outcome(3, ratio=1.0))
    assert (after.acceptance, after.goodput) == (pytest.approx(0.8 * 0.5 + 0.2), pytest.approx(0.8 * 2 + 0.2 * 4))


def test_random_shares_are_equal_on_average() -> None:
    rule = RandomShare(20)
    drawn = np.array([rule.lengths([None] * 8, np.random.default_rng(seed)) for seed in range(500)])
    # The mean is C / N within 4 standard errors: one false alarm in 2,000.
    assert np.abs(drawn.mean(axis=0) - 2.5).max() < 4 * drawn.std() / math.sqrt(500)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.0])
@given(alphas=st.lists(st.floats(0.05, 0.95), min_size=2, max_size=4), budget=st.integers(1, 12))
@settings(max_examples=30)
def test_the_best_goodput_beats_a_general_solver(alpha: float, alphas: list[float], budget: int) -> None:
    def loss(lengths: np.ndarray) -> float:
        return -utility([mixed_goodput(a, s, budget) for a, s in zip(alphas, lengths, strict=True)], alpha)

    N = len(alphas)
    found = minimize(
        loss,
        np.full(N, budget / N),
        method="SLSQP",
        bounds=[(0, budget)] * N,
        constraints={"type": "ineq", "fun": lambda lengths: budget - lengths.sum()},
    )
    best = best_goodput(alphas, budget, alpha)
    assert utility(best, alpha) >= -found.fun - 1e-6
    assert sum(length_of(a, x, budget) for a, x in zip(alphas, best, strict=True)) <= budget + 1e-6


def length_of(alpha: float, goodput: float, budget: int) -> float:
    """The inverse of `mixed_goodput`."""
    whole = range(budget + 1)
    return float(np.interp(goodput, [expected_goodput(alpha, each) for each in whole], whole))


def mixed_goodput(alpha: float, length: float, budget: int) -> float:
    """Linear between whole lengths: the region is of time shares of schedules."""
    whole = range(budget + 1)
    return float(np.interp(length, whole, [expected_goodput(alpha, each) for each in whole]))


def rounds(spread: dict[str, Any] | None = None, **verifiers: Any) -> Scenario:
    clients = [[0.4], [0.6], [0.75], [0.9]]
    return make_scenario(
        {
            "name": "rounds",
            "profile": {"name": "p", "draft": {"base_s": 1.0} | (spread or {}), "verify": {"base_s": 2.0}},
            "acceptance": {"model": "ratios", "clients": clients},
            "drafters": {"count": 4} | ({} if "allocate" in verifiers else {"depth": 3}),
            "verifiers": {"count": 1, "late": "wait"} | verifiers,
            "workload": {"requests": 8, "prompt_tokens": 10, "new_tokens": 600},
        }
    )


def test_a_barrier_round_waits_for_the_longest_draft() -> None:
    """E[max of N exponentials] = H_N. Batch means at 99.9 %."""
    metric = measure(simulate(rounds({"spread": {"spread": "exponential"}})))["rounds_per_s_per_target"]
    expected_s = 2.0 + sum(1 / k for k in range(1, 5))
    half = (metric.high - metric.low) / 2 * 3.88 / 2.09
    assert abs(metric.value - 4 / expected_s) < half  # four clients


def test_every_round_verifies_all_clients_within_the_budget() -> None:
    run = simulate(rounds(allocate={"policy": "goodspeed", "budget": 9}))
    verified = verifications_of(run.columns()).frame()
    full = verified[verified.verified_s < verified.verified_s.max() * 0.3]
    assert (full.groupby("step").tag.nunique() == 4).all()
    assert verified.groupby("step").draft_tokens.sum().max() <= 9
    assert replay(run) == []


def test_every_draft_has_the_length_that_its_clients_whole_history_gives() -> None:
    """Algorithm 1: states outlive requests, and a new request's first draft has its share."""
    rule, smoothing = GoodSpeed(9, eta=0.3, beta=0.3), {"eta": 0.3, "beta": 0.3}
    scenario = rounds(allocate={"policy": "goodspeed", "budget": 9} | smoothing)
    run = simulate(change_scenario(scenario, {"workload.requests": 80, "workload.new_tokens": 40}))
    verified = verifications_of(run.columns()).frame().sort_values(["step", "tag"])
    states, expected, compared = {tag: rule.start() for tag in range(4)}, [], 0
    for _, step in verified.groupby("step"):
        if len(step) < 4:  # a client has no request left
            break
        assert expected in ([], step.draft_tokens.tolist())
        compared += len(expected)
        for row in step.itertuples():
            outcome = Outcome(row.acceptance_length, ratio=row.ratio)
            states[row.tag] = rule.learn(states[row.tag], row.draft_tokens, outcome)
        expected = rule.lengths(list(states.values()), RNG)
    assert compared > 500


def test_requests_that_wait_for_a_place_have_no_share() -> None:
    scenario = rounds(allocate={"policy": "goodspeed", "budget": 12}, max_num_seqs=2, late="skip")
    changes = {"workload.streams": 16, "workload.requests": 32, "workload.new_tokens": 40, "drafters.count": 1}
    verified = verifications_of(simulate(change_scenario(scenario, changes)).columns()).frame()
    assert verified.draft_tokens.mean() > 3  # of 12 for two rows; 16 clients would have less than one each


@pytest.mark.parametrize("start", [0.1, 1.0, 8.0])
def test_smoothed_goodputs_follow_the_fluid_path_to_the_best_ones(start: float) -> None:
    """Theorems 1 to 3: for small beta, X(t / beta) is near x' = v - x, and near x* in the end, from any start."""
    alphas, budget, until = [0.4, 0.6, 0.75, 0.9], 9, 8.0
    fluid = fluid_path(alphas, budget, start, until)
    away = {beta: np.abs(smoothed_path(alphas, budget, start, until, beta) - fluid).max() for beta in (0.1, 0.01, 1e-3)}
    assert away[1e-3] < away[0.01] < away[0.1]
    assert away[1e-3] < 0.25
    assert fluid[-1] == pytest.approx(best_goodput(alphas, budget), abs=0.02)


GRID = 400  # points of a path


def fluid_path(alphas: list[float], budget: int, start: float, until: float) -> np.ndarray:
    """x' = v - x, v = the goodputs of the gradient schedule at x (lemma 2), in Euler's steps of 1 / 1000 at most."""
    x, path = np.full(len(alphas), start), []
    step = until / GRID / 40
    for _ in range(GRID):
        for _ in range(40):
            lengths = gradient_schedule(list(1 / x), alphas, budget)
            x = x + step * (np.array([expected_goodput(a, s) for a, s in zip(alphas, lengths, strict=True)]) - x)
        path.append(x)
    return np.array(path)


def smoothed_path(alphas: list[float], budget: int, start: float, until: float, beta: float) -> np.ndarray:
    """X(t / beta) of the rule itself, at the times of `fluid_path`; drafted tokens are accepted one by one."""
    rng, rule = np.random.default_rng(7), GoodSpeed(budget, eta=1e-6, beta=beta)
    states, path = [Client(alpha, start) for alpha in alphas], []
    for point in range(GRID):
        for _ in range(round((point + 1) * until / GRID / beta) - round(point * until / GRID / beta)):
            lengths = rule.lengths(states, rng)
            for i, length in enumerate(lengths):
                accepted = min(int(rng.geometric(1 - alphas[i])) - 1, length)
                states[i] = rule.learn(states[i], length, Outcome(accepted, ratio=alphas[i]))
        path.append([state.goodput for state in states])
    return np.array(path)


def test_goodspeed_is_near_the_best_utility() -> None:
    rules: dict[str, dict[str, Any]] = {"goodspeed": {"beta": 0.05, "eta": 0.05}, "fixed-share": {}, "random-share": {}}
    for alpha in (1.0, 2.0):
        metrics = {
            name: measure(simulate(rounds(allocate={"policy": name, "budget": 9, "alpha": alpha} | more)))
            for name, more in rules.items()
        }
        best = utility(best_goodput([0.4, 0.6, 0.75, 0.9], 9, alpha), alpha)
        for metric in metrics.values():
            assert metric["utility_optimum"].value == pytest.approx(best, abs=0.15)
            assert metric["utility_gap"].value == metric["utility_optimum"].value - metric["utility"].value
        gaps = {name: metric["utility_gap"].value for name, metric in metrics.items()}
        assert -0.05 < gaps["goodspeed"] < 0.05
        assert gaps["goodspeed"] < min(gaps["fixed-share"], gaps["random-share"])


@pytest.mark.parametrize("policy", ["fixed-share", "random-share"])
def test_baselines_share_among_all_clients_for_ever(policy: str) -> None:
    """S_i = C / N, also when clients have no prompt left."""
    run = simulate(rounds(allocate={"policy": policy, "budget": 10}))
    verified = verifications_of(run.columns()).frame()
    lengths = verified.groupby("tag").draft_tokens
    if policy == "fixed-share":
        assert lengths.agg(["min", "max"]).to_numpy().tolist() == [[3, 3], [3, 3], [2, 2], [2, 2]]
    left = verified[verified.groupby("step").tag.transform("nunique") == 1]
    assert len(left) > 100
    assert left.draft_tokens.mean() < 4
    assert replay(run) == []


def test_the_shipped_clients_share_every_measured_round() -> None:
    scenario = change_scenario(read_scenario(shipped_files("scenarios")["goodspeed"]), {"workload.requests": 40})
    findings = findings_of(simulate(scenario))
    verified = findings.verified
    assert verified is not None
    steps = verified.where(window_of(findings).inside(verified.verified_s)).frame().groupby("step").tag.nunique()
    assert (steps.iloc[1:] == 8).all()  # the window's edge cuts the first


def test_smoothed_goodput_is_equation_4() -> None:
    x = pd.DataFrame([[2.0, np.nan], [4.0, 6.0]])
    assert smoothed(x, 0.5, 1.0).to_numpy().tolist() == [[1.5, 1.0], [2.75, 3.5]]


def test_iterations_are_the_verifiers_steps() -> None:
    x = goodputs_of(simulate(rounds()), 4)
    assert x.shape[1] == 4
    assert np.nanmin(x) >= 1
    assert np.nanmax(x) <= 4  # three draft tokens and the bonus token


def test_equal_clients_share_equally_and_hopeless_ones_get_nothing() -> None:
    assert gradient_schedule([1, 1, 1], [0.5, 0.5, 0.5], 9) == [3, 3, 3]
    assert gradient_schedule([1, 1], [0.0, 0.5], 4) == [0, 4]
