"""Overheads planted in a profile are found in the logs of its simulated fleets."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("torch")
pytest.importorskip("transformers")

from specfleet.calibration.effects import MIN_DELAYS, delay_of, delays_of, link_of, overhead_of
from specfleet.calibration.fleets import sharing_fleet
from specfleet.fleet.records.delays import StationDelays
from specfleet.fleet.records.run import Run
from specfleet.fleet.times.overhead import Delay
from specfleet.fleet.times.step_time import LinkTime, Quantiles
from specfleet.sim.run import simulate
from tests.helpers.stars import star

CONFIDENCE = 0.999  # of each mean; seeds are fixed
SPREAD = {"spread": "quantiles", "levels": [0.0, 0.5, 1.0], "ratios_at": [0.4, 0.9, 1.8]}
STEPS = {"draft": {"base_s": 0.004}, "verify": {"base_s": 0.010}, "decode": {"base_s": 0.008}}
MEANS_S = {
    "drafter": {"queued": 0.0003, "woken": 0.0002, "after": 0.00005},
    "target": {"queued": 0.0004, "woken": 0.0006, "after": 0.00008},
}


def planted(means_s: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Overheads of a profile with those means, all with SPREAD."""
    return {
        station: {name: {"mean_s": mean_s, "spread": SPREAD} for name, mean_s in delays.items()}
        for station, delays in means_s.items()
    }


def profile(**overhead: Any) -> dict[str, Any]:
    return {"name": "known", **STEPS, "link": {"latency_s": 0.0007, "spread": SPREAD}, "overhead": overhead}


def assert_found(found: Delay, mean_s: float, values: int) -> None:
    """The mean lies in the interval that theory gives for so many values, and the quantiles are near the planted."""
    truth = Quantiles(tuple(SPREAD["levels"]), tuple(SPREAD["ratios_at"]))
    ratios = truth.ratios(np.linspace(0, 1, 10001))
    error = stats.norm.ppf(0.5 + CONFIDENCE / 2) * ratios.std() / ratios.mean() / np.sqrt(values)
    assert found.mean_s == pytest.approx(mean_s * ratios.mean(), rel=error)
    assert isinstance(found.spread, Quantiles)
    drawn = found.mean_s * found.spread.ratios(np.random.default_rng(1).uniform(size=values))
    expected = mean_s * truth.ratios(np.random.default_rng(2).uniform(size=values))
    assert stats.ks_2samp(drawn, expected).pvalue > 1 - CONFIDENCE


def assert_all_found(runs: list[Run], station: str) -> None:
    delays = delays_of(runs, drafters=station == "drafter")
    found = overhead_of(delays)
    for name, mean_s in MEANS_S[station].items():
        assert_found(getattr(found, name), mean_s, len(getattr(delays, f"{name}_s")))


def own_fleets() -> list[Run]:
    """Fleets that keep their drafter busy, or not; and a target that decodes by itself."""
    truth = profile(own=planted(MEANS_S))
    workload = {"requests": 30, "new_tokens": 60}
    return [
        simulate(star(profile=truth, verifiers={"count": 1}, workload=workload, seed=1)),
        simulate(star(profile=truth, verifiers={"count": 6}, workload=workload, seed=2)),
        simulate(star(profile=truth, drafters={"count": 0}, verifiers={"count": 1}, workload=workload, seed=3)),
    ]


@pytest.mark.parametrize("station", ["drafter", "target"])
def test_overheads_of_own_devices_are_found(station: str) -> None:
    assert_all_found(own_fleets(), station)


def test_overheads_of_shared_devices_are_found() -> None:
    """One target finds the device free, two wait for it."""
    known = {"profile": profile(time_sliced=planted(MEANS_S)), "acceptance": {"model": "geometric", "beta": 0.7}}
    runs = [simulate(sharing_fleet(star(**known, seed=3 + targets), targets, 20, "turns")) for targets in (1, 2)]
    for station in ("drafter", "target"):
        assert_all_found(runs, station)


def test_the_link_is_found_beside_overheads() -> None:
    run = own_fleets()[0]
    ways = int(run.frame().event.isin(["draft", "draft-request"]).sum())
    found = link_of([run], LinkTime())
    assert_found(Delay(found.latency_s, found.spread), 0.0007, ways)


def test_payload_counts_with_the_bandwidth_only() -> None:
    truth = profile() | {"link": {"latency_s": 0.0007, "bandwidth_bytes_per_s": 1e6}, "vocabulary": 50}
    run = simulate(star(profile=truth, verifiers={"count": 1}, workload={"requests": 30}))
    found = link_of([run], LinkTime(bandwidth_bytes_per_s=1e6))
    assert found.latency_s == pytest.approx(0.0007)


def test_rare_starts_share_the_distribution_of_all_starts() -> None:
    delays = StationDelays(queued_s=[0.5], woken_s=[1.0] * MIN_DELAYS, after_s=[])
    found = overhead_of(delays)
    assert found.queued == delay_of([0.5] + [1.0] * MIN_DELAYS)
    assert found.woken.mean_s == 1.0
    assert found.after == Delay()


def test_the_border_of_a_draft_and_its_verification_is_no_delay() -> None:
    """Half of an engine's starts follow at once: no drawn delay is 0, and the sum stays."""
    starts_s = [0.0, 0.0003, 0.0, 0.0005] * MIN_DELAYS
    found = overhead_of(StationDelays(starts_s, [], [])).queued
    drawn_s = found.mean_s * found.spread.ratios(np.random.default_rng(1).uniform(size=10_000))
    assert drawn_s.min() > 0
    assert drawn_s.mean() == pytest.approx(0.0002, rel=0.02)
