"""What calibration reads from records: simulated fleets, whose numbers are known, must give them back."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from calibrate.contention import factors_in
from calibrate.fits import Point, fit_step
from calibrate.idle import fit_idle, rising, with_recoveries, without_idleness
from calibrate.inservice import FleetSetup, rounds_in
from calibrate.load import fit_recent_load, recent_loads
from calibrate.reference import at_pace
from calibrate.turns import sharing_fleet, turns_in
from calibrate.under_way import links_under_way
from fleet.scenario.names import DRAFTER
from fleet.scenario.reading import make_scenario
from fleet.scenario.scenario import Scenario
from fleet.times.effects import NEVER_IDLE, IdleEffect, RecentLoad, Turns
from fleet.times.pace import Pace
from fleet.times.profile import HardwareProfile
from fleet.times.step_time import LinkTime, StepTime
from sim.run import simulate
from tests.helpers.quickly import simulated
from tests.helpers.stars import star

TIMES = {
    "draft": StepTime(0.002, 0.001, 0.0, 1e-6),
    "verify": StepTime(0.006, 0.001, 1e-5),
    "decode": StepTime(0.004),
    "draft_prefill": StepTime(0.001, 1e-5),
    "verify_prefill": StepTime(0.005, 1e-4),
}
SLOWDOWNS = {"draft": 1.1, "verify": 1.3, "draft_prefill": 1.2, "verify_prefill": 1.05}


def known(**more: Any) -> dict[str, Any]:
    return {"name": "known", **TIMES, **more}


def fleets(scenario: Scenario) -> FleetSetup:
    return FleetSetup(scenario, TIMES, 0.0, Path())


@pytest.mark.parametrize(("sharing", "targets"), [("turns", 1), ("turns", 2), ("turns", 3), ("one-process", 1)])
def test_what_turns_cost_is_read_back(sharing: str, targets: int) -> None:
    """With steps and what passes around them slower than elsewhere, whatever idleness does besides."""
    around = {"wake_up_s": 0.0002, "dispatch_s": 0.00007, "link": {"latency_s": 0.0004}}
    turns = {"slowdowns": SLOWDOWNS, "handover_s": 0.0003} | around
    idle = IdleEffect((0.0006, 0.004, 0.02), (1.0, 1.3, 1.5), (1.0, 1.5, 2.0))
    fleet = sharing_fleet(star(), targets, 12, sharing)
    profile = known(
        turns=[turns] * targets, one_process=turns, link={"latency_s": 0.0001}, wake_up_s=0.0001, dispatch_s=0.00005,
        busy_link={"latency_s": 0.0009}, idle=idle,
    )  # fmt: skip
    acceptance = {"model": "geometric", "beta": 0.7}
    tables = {"profile": profile, "acceptance": acceptance, "seed": 3}
    run = simulate(make_scenario(tables | sharing_tables(fleet)))
    read = turns_in(run, fleets(fleet), idle)
    assert read.slowdowns == pytest.approx(SLOWDOWNS)
    assert read.handover_s == pytest.approx(0.0003)
    assert read.dispatch_s == pytest.approx(0.00007)
    if sharing == "one-process":
        assert (read.wake_up_s, read.link) == (None, None)
    else:
        assert read.wake_up_s == (None if targets > 1 else pytest.approx(0.0002))  # hardly anybody finds it free
        assert read.link is not None
        assert read.link.latency_s == pytest.approx(0.0004)


def test_factors_of_contention_are_read_back() -> None:
    paid = {"slowdowns": SLOWDOWNS}
    profile = known(turns=[paid], contention=[1.0, 1.2, 1.9], link={"latency_s": 0.0001})
    acceptance = {"model": "geometric", "beta": 0.7}
    runs = []
    for targets in (1, 2, 3):
        fleet = sharing_fleet(star(), targets, 12, "contended")
        runs.append(simulate(make_scenario({"profile": profile, "acceptance": acceptance} | sharing_tables(fleet))))
    factors = factors_in(runs, fleets(star()), [Turns(SLOWDOWNS)] * 3)
    assert factors == pytest.approx((1.0, 1.2, 1.9), rel=1e-6)


def sharing_tables(fleet: Scenario) -> dict[str, Any]:
    return {
        "name": fleet.name, "devices": fleet.devices, "drafters": fleet.drafters,
        "verifiers": fleet.verifiers, "workload": fleet.workload,
    }  # fmt: skip


def test_turnaround_wake_up_and_link_are_read_back() -> None:
    profile = known(turnaround_s=0.0002, wake_up_s=0.00015, link={"latency_s": 0.0004})
    workload = {"requests": 20, "new_tokens": 60}
    alone, crowd = (
        rounds_in(simulate(star(profile=profile, verifiers={"count": count}, workload=workload)), TIMES["draft"], 0.0)
        for count in (1, 8)
    )
    np.testing.assert_allclose(alone.wake_up_s[1:], 0.00015)
    np.testing.assert_allclose(crowd.turnaround_s, 0.0002)
    # A target that idled wakes up before it verifies; replayed targets, which calibration uses, do not sleep.
    np.testing.assert_allclose(alone.returns.time_s, 2 * 0.0004 + 0.00015)
    np.testing.assert_allclose(alone.ratios, 1.0)
    assert links_under_way([alone.returns], NEVER_IDLE)[0].latency_s == pytest.approx((0.0008 + 0.00015) / 2)


def test_what_idleness_does_is_read_back() -> None:
    """Slowdowns of drafts, overheads, both links, dispatch and wake-up, from fleets that idle now and then."""
    effect = IdleEffect((0.0006, 0.004, 0.02), (1.0, 1.3, 1.5), (1.0, 1.5, 2.0))
    profile = known(
        turnaround_s=0.0002, wake_up_s=0.00015, dispatch_s=0.00005, idle=effect,
        delay_spread={"spread": "quantiles", "levels": [0.0, 1.0], "ratios_at": [0.5, 1.5]},
        link={"latency_s": 0.0002}, busy_link={"latency_s": 0.0009},
    )  # fmt: skip
    spread = {"spread": "quantiles", "levels": [0.0, 1.0], "ratios_at": [0.1, 1.9]}
    runs = [
        rounds_in(
            simulated(
                star(
                    profile=profile, workload={"requests": 600, "new_tokens": 60},
                    verifiers={"count": count, "kind": "replayed", "verify": {"base_s": 0.02, "spread": spread}},
                )
            ),
            TIMES["draft"],
            0.0,
        )
        for count in (1, 2, 3, 6)
    ]  # fmt: skip
    idle = fit_idle(runs)
    for gap_s in (0.0003, 0.005, 0.01, 0.02):
        assert idle.slowdown(gap_s) == pytest.approx(effect.slowdown(gap_s), rel=0.04)
        assert idle.overhead(gap_s) == pytest.approx(effect.overhead(gap_s), rel=0.08)
    warm = [without_idleness(rounds, idle) for rounds in runs]
    assert np.concatenate([rounds.dispatch_s for rounds in warm]).mean() == pytest.approx(0.00005, rel=0.05)
    assert np.concatenate([rounds.wake_up_s for rounds in warm]).mean() == pytest.approx(
        0.00015, rel=0.08
    )  # seeds: 0.032
    turnarounds_s = np.concatenate([rounds.turnaround_s for rounds in runs])
    assert turnarounds_s.mean() == pytest.approx(0.0002, rel=0.05)
    np.testing.assert_allclose(np.quantile(turnarounds_s, [0.1, 0.9]), [0.00012, 0.00028], rtol=0.06)
    link, busy_link = links_under_way([rounds.returns for rounds in runs], idle)
    assert busy_link is not None
    assert link.latency_s == pytest.approx(0.0002, rel=0.05)
    assert busy_link.latency_s == pytest.approx(0.0009, rel=0.05)


def test_what_warm_up_tokens_take_of_an_idle_gap_is_read_back() -> None:
    effect = IdleEffect((0.001, 0.02), (1.0, 1.5), recoveries=(1.0, 0.6, 0.4, 0.3))
    warmed = []
    for tokens in (0, 1, 3):
        warm_up = {"policy": "after-idle", "idle_gap_s": 0.0, "tokens": tokens} if tokens else {"policy": "none"}
        run = simulate(
            star(
                profile=known(idle=effect), drafters={"warm_up": warm_up},
                verifiers={"count": 1, "kind": "replayed", "verify": {"base_s": 0.03}},
            )
        )  # fmt: skip
        warmed.append((tokens, rounds_in(run, TIMES["draft"], 0.0)))
    unknown = msgspec.structs.replace(effect, recoveries=(1.0,))
    assert with_recoveries(unknown, warmed).recoveries == pytest.approx((1.0, 0.6, 0.45, 0.3), abs=0.02)
    assert with_recoveries(NEVER_IDLE, warmed) == NEVER_IDLE


def test_a_few_interrupted_values_make_no_effect_of_a_gap() -> None:
    """Another process keeps a core for tens of milliseconds now and then: that is no wake-up after a long gap."""
    rng = np.random.default_rng(3)
    gaps_s = [rng.uniform(0.0, 0.05, 200) for _ in range(3)]
    values = [np.where(gap > 0.02, 1.6, 1.0) * rng.uniform(0.8, 1.2, 200) for gap in gaps_s]
    clean = rising(gaps_s, values, np.array([0.02]))[1]
    for run in values:
        run[:4] = 50.0
    assert clean[1] == pytest.approx(1.6, rel=0.03)
    assert rising(gaps_s, values, np.array([0.02]))[1][1] == pytest.approx(1.6, rel=0.06)


def test_the_effect_of_recent_load_is_read_back() -> None:
    effect = {"half_life_s": 0.032, "loads": [0.1, 0.9], "slowdowns": [1.6, 1.0]}
    runs = [
        rounds_in(
            simulate(star(profile=known(recent_load=effect), verifiers={"count": count}, workload={"requests": 60})),
            TIMES["draft"],
            0.0,
        )
        for count in (1, 2, 3, 6)
    ]
    read = fit_recent_load(runs)
    for rounds in runs:
        loads = recent_loads(rounds, read.half_life_s)
        expected = np.interp(loads, read.loads, read.slowdowns)
        assert np.abs(rounds.ratios / expected - 1).mean() < 0.02


def test_a_profile_referred_to_another_pace_predicts_the_same_runs() -> None:
    """With a station's measured pace played back, whatever pace the profile's times are told at, and blind."""
    turns = Turns({}, 0.0003, wake_up_s=0.0003, dispatch_s=0.0001, link=LinkTime(0.0005))
    overheads = {"turnaround_s": 0.0003, "wake_up_s": 0.0002, "link": LinkTime(0.0004), "turns": (turns,)}
    load = RecentLoad(0.03, (0.1, 0.9), (1.2, 1.0), (1.1, 1.05))
    first = HardwareProfile("first", **TIMES, **overheads, recent_load=load, control_s=2e-5)
    second = at_pace(first, 1.25)
    assert second.control_s == pytest.approx(2.5e-5)
    scenario = star(verifiers={"kind": "real", "count": 2})
    stations = (DRAFTER, "verifier.1", "verifier.2")
    paced = [
        simulate(
            msgspec.structs.replace(scenario, profile=profile),
            {station: Pace((3e-5 / profile.control_s,)) for station in stations},
        ).frame()
        for profile in (first, second)
    ]
    np.testing.assert_allclose(paced[0].time_s, paced[1].time_s)
    assert second.recent_load is not None
    blind_s = second.draft.mean_s(5, 100) * second.recent_load.pace(0.5)
    assert blind_s == pytest.approx(first.draft.mean_s(5, 100) * load.pace(0.5))


def test_a_fit_finds_the_terms_that_made_the_times() -> None:
    made = StepTime(0.002, 0.001, 1e-5, 1e-6)
    points = [Point(k, n, (made.mean_s(k, n),) * 3) for k in (1, 2, 5, 9) for n in (64, 128, 256)]
    fit, residuals = fit_step(points)
    assert (fit.base_s, fit.per_token_s, fit.per_context_token_s, fit.per_token_context_s) == pytest.approx(
        (0.002, 0.001, 1e-5, 1e-6)
    )
    assert any(residual.held_out for residual in residuals)
    assert all(abs(residual.error) < 1e-9 for residual in residuals)
