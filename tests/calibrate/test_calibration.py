"""Calibration recovers the numbers of simulated fleets from their records."""

from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from specfleet.calibration.assemble import in_service, profile_of_pair
from specfleet.calibration.effects import factors_in, fit_idle, slowdowns_of, with_recoveries
from specfleet.calibration.fleets import FleetSetup, sharing_fleet, steps_in
from specfleet.calibration.laws import fit_relative
from specfleet.calibration.measurements import Measurements
from specfleet.fleet.acceptance.models import Recorded
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.describe import describe
from specfleet.fleet.times.effects import NEVER_IDLE, IdleEffect
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import StepTime
from specfleet.sim.run import simulate
from tests.helpers.quickly import simulated
from tests.helpers.stars import star

TIMES = {
    "draft": StepTime(0.002, 0.001, 0.0, 1e-6),
    "verify": StepTime(0.006, 0.001, 1e-5),
    "decode": StepTime(0.004),
    "draft_prefill": StepTime(0.001, 1e-5),
    "verify_prefill": StepTime(0.005, 1e-4),
}
IDLE = IdleEffect((0.0006, 0.004, 0.02), (1.0, 1.3, 1.5))
QUEUED_S = 0.0002


def profile_with(**more: Any) -> dict[str, Any]:
    return {"name": "known", **TIMES, **more}


def fleets(scenario: Scenario) -> FleetSetup:
    return FleetSetup(scenario, TIMES)


def test_factors_of_contention_are_found() -> None:
    profile = profile_with(contention=[1.0, 1.2, 1.9], link={"latency_s": 0.0001}, idle=IDLE)
    known = star(profile=profile, acceptance={"model": "geometric", "beta": 0.7})
    runs = [simulate(sharing_fleet(known, targets, 12, "contended")) for targets in (1, 2, 3)]
    assert factors_in(runs, fleets(star()), IDLE) == pytest.approx((1.0, 1.2, 1.9), rel=1e-6)


def test_chunks_of_prompts_have_the_law_of_prefills() -> None:
    chunked = star(
        profile=profile_with(), acceptance={"model": "geometric", "beta": 0.7}, verifiers={"max_num_batched_tokens": 8}
    )
    found = steps_in(simulate(sharing_fleet(chunked, 1, 9, "turns")), fleets(star()), "verify_prefill")
    assert {round(fitted_s, 9) for fitted_s in found.fitted_s} == {0.0058, 0.0052}  # of 8 tokens and of 2
    assert found.ratio.tolist() == pytest.approx([1.0] * len(found))


def idling_drafts(draft: StepTime) -> pd.DataFrame:
    """Drafts of fleets that idle now and then, or never."""
    spread = {"spread": "quantiles", "levels": [0.0, 1.0], "ratios_at": [0.1, 1.9]}
    drafter = {"queued": {"mean_s": QUEUED_S}, "woken": {"mean_s": 0.00015}}
    profile = profile_with(draft=draft, idle=IDLE, link={"latency_s": 0.0002}, overhead={"own": {"drafter": drafter}})
    runs = [
        simulated(
            star(
                profile=profile, workload={"requests": 600, "new_tokens": 60},
                verifiers={"count": count, "kind": "replayed", "verify": {"base_s": 0.02, "spread": spread}},
            )
        )
        for count in (1, 2, 3, 6)
    ]  # fmt: skip
    return pd.concat([steps_in(run, fleets(star())) for run in runs], ignore_index=True)


def test_the_slowdown_after_idleness_is_found() -> None:
    found = fit_idle(idling_drafts(TIMES["draft"]), QUEUED_S)
    for gap_s in (0.0003, 0.005, 0.01, 0.02):
        assert found.slowdown(gap_s) == pytest.approx(IDLE.slowdown(gap_s), rel=0.04)


def test_draft_times_in_service_are_found_apart_from_idleness() -> None:
    spread = {"spread": "quantiles", "levels": [0.0, 1.0], "ratios_at": [0.8, 1.2]}
    slower = msgspec.convert(msgspec.to_builtins(TIMES["draft"].slowed(1.1)) | {"spread": spread}, StepTime)
    drafts = idling_drafts(slower)
    found = in_service(TIMES["draft"], drafts.ratio / slowdowns_of(drafts, IDLE))
    assert found.mean_s(5, 100) == pytest.approx(slower.mean_s(5, 100), rel=0.005)
    np.testing.assert_allclose(found.spread.ratios(np.array([0.0, 0.5, 1.0])), [0.8, 1.0, 1.2], rtol=0.03)
    predicted_s = slowdowns_of(drafts, IDLE) * found.mean_s(5, 100)
    measured_s = drafts.ratio * TIMES["draft"].mean_s(5, 100)
    assert predicted_s.mean() == pytest.approx(measured_s.mean(), rel=0.01)


def test_the_share_that_warm_up_tokens_leave_is_found() -> None:
    effect = IdleEffect((0.001, 0.02), (1.0, 1.5), recoveries=(1.0, 0.6, 0.4, 0.3))
    warmed = []
    for tokens in (0, 1, 3):
        warm_up = {"policy": "after-idle", "idle_gap_s": 0.0, "tokens": tokens} if tokens else {"policy": "none"}
        run = simulate(
            star(
                profile=profile_with(idle=effect), drafters={"warm_up": warm_up},
                verifiers={"count": 1, "kind": "replayed", "verify": {"base_s": 0.03}},
            )
        )  # fmt: skip
        warmed.append((tokens, steps_in(run, fleets(star()))))
    unknown = msgspec.structs.replace(effect, recoveries=(1.0,))
    assert with_recoveries(unknown, warmed).recoveries == pytest.approx((1.0, 0.6, 0.45, 0.3), abs=0.02)
    assert with_recoveries(NEVER_IDLE, warmed) == NEVER_IDLE


def test_a_few_interrupted_drafts_make_no_effect_of_a_gap() -> None:
    """Another process keeps a core for tens of milliseconds now and then."""
    rng = np.random.default_rng(3)
    gap_s = np.concatenate([rng.uniform(0.0, 0.0002, 300), rng.uniform(0.02, 0.05, 300)])
    ratio = np.where(gap_s > 0.01, 1.6, 1.0) * rng.uniform(0.8, 1.2, 600)
    ratio[::60] = 50.0
    found = fit_idle(pd.DataFrame({"gap_s": gap_s, "ratio": ratio}), 0.0002)
    assert found.slowdown(0.03) == pytest.approx(1.6, rel=0.06)


def test_fits_of_acceptance_are_shown() -> None:
    rng = np.random.default_rng(3)
    betas = rng.beta(2.0, 1.0, size=(40, 50))
    lengths = np.minimum(rng.geometric(1 - betas) - 1, 5)
    record = Recorded(5, tuple(map(tuple, lengths.tolist())))
    profile = HardwareProfile(name="own", draft=StepTime(), verify=StepTime(), acceptance=record)
    shown = {quantity: (value, distance) for quantity, value, distance in describe(profile)}
    parameters, distance = shown["acceptance, beta-geometric"]
    a, b = (float(part.split(" = ")[1]) for part in parameters.split(", "))
    assert a / (a + b) == pytest.approx(2 / 3, rel=0.05)
    assert float(distance.split()[-1].rstrip("%")) < float(shown["acceptance, geometric"][1].split()[-1].rstrip("%"))


def test_an_acceptance_without_rounds_is_one_line() -> None:
    with pytest.raises(InputError, match="no draft was verified"):
        profile_of_pair(HardwareProfile("own", StepTime(), StepTime()), Measurements(), star())


def test_a_step_that_never_ran_in_service_keeps_its_time() -> None:
    assert in_service(TIMES["decode"], []) == TIMES["decode"]


@pytest.mark.parametrize("wrong_s", [2e-5, 0.0, 3.0])
def test_few_wrong_times_do_not_move_a_fit(wrong_s: float) -> None:
    # A server's count of rounds cuts some rounds in two, so a few times are nearly 0.
    rng = np.random.default_rng(1)
    rows = rng.choice([1.0, 4.0, 16.0], 3000)
    design = np.stack([np.ones_like(rows), rows - 1, (rows > 1).astype(float)], axis=1)
    law_s: NDArray[np.float64] = np.array([0.002, 0.003, 0.001])
    times_s = design @ law_s * rng.lognormal(0.0, 0.1, len(rows))
    wrong = rng.random(len(rows)) < 0.02
    _, ratios = fit_relative(design, np.where(wrong, wrong_s, times_s))
    fitted_s = times_s[~wrong] / ratios[~wrong]
    assert fitted_s == pytest.approx(design[~wrong] @ law_s, rel=0.05)


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.2])
def test_a_fall_at_long_gaps_is_found_and_noise_is_none(noise: float) -> None:
    """Errors are at most those of a bin's median, half of them where nothing changes, and the bins' width."""
    of_median, draws = 1.25 * noise / np.sqrt(300 / 8), 10
    curves = {
        "flat": ((1.0, 1.0, 1.0, 1.0), of_median / 2),
        "rising": ((1.0, 1.3, 1.5, 1.5), of_median + 0.01),
        "falling": ((1.0, 1.3, 1.5, 1.0), of_median + 0.025),  # a fit that only rises is 12 % off
    }
    gaps_s, rng = np.geomspace(0.001, 0.1, 300), np.random.default_rng(5)
    gap_s = np.concatenate([rng.uniform(0.0, 0.0002, 600), gaps_s])
    for name, (slowdowns, allowed) in curves.items():
        made = np.interp(np.log(gap_s), np.log([0.0005, 0.004, 0.02, 0.06]), slowdowns)
        errors = []
        for _ in range(draws):
            found = fit_idle(pd.DataFrame({"gap_s": gap_s, "ratio": made * rng.lognormal(0, noise, 900)}), 0.0002)
            assert min(found.slowdowns) == found.slowdowns[0] == 1.0
            errors.append(np.interp(gaps_s, found.gaps_s, found.slowdowns) / made[600:] - 1)
        assert np.sqrt(np.mean(np.square(errors))) < allowed, name
