"""Goals of requests, loads, prices and speedup over plain decoding: laws of every measured run."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.fleet.records.metrics.measure import combine, measure
from specfleet.fleet.records.metrics.service import meets
from specfleet.fleet.records.metrics.window import Metric
from specfleet.fleet.scenario.cost import per_million_tokens
from specfleet.fleet.scenario.facts import devices_of
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.slo import Slo
from specfleet.sim.fast.choice import unsupported_in
from specfleet.sim.run import simulate
from tests.helpers.stars import star

PRICES = {"target_per_hour": 2.0, "drafter_per_hour": 0.5, "unit": "EUR"}
SHARED: dict[str, Any] = {"devices": {"host": {}}, "drafters": {"device": "host"}, "verifiers": {"device": "host"}}
SERVED = {"requests": 60, "new_tokens": 20, "arrivals": {"process": "poisson", "per_s": 0.02}}
limits = st.one_of(st.none(), st.floats(0.01, 100))
slos = st.builds(Slo, ttft_s=limits, tpot_s=limits, e2el_s=limits)


def measured(**changes: Any) -> dict[str, Metric]:
    return measure(simulate(star(**changes)))


@given(slos, st.lists(st.tuples(*[st.floats(0.01, 100)] * 3), min_size=1), st.floats(1, 5))
def test_good_requests_meet_every_goal(slo: Slo, requests: list[tuple[float, float, float]], looser: float) -> None:
    times_s = {
        name: np.array(each)
        for name, each in zip(("ttft", "tpot", "latency"), zip(*requests, strict=True), strict=True)
    }
    goals = (slo.ttft_s, slo.tpot_s, slo.e2el_s)
    by_hand = [all(goal is None or time <= goal for time, goal in zip(one, goals, strict=True)) for one in requests]
    assert meets(slo, times_s).tolist() == by_hand
    wider = Slo(*(None if goal is None else looser * goal for goal in goals))
    assert np.all(meets(wider, times_s) >= meets(slo, times_s))


def test_unlike_targets_without_a_drafter_have_a_speedup_of_one() -> None:
    steps = {"draft": {"base_s": 1.0}, "verify": {"base_s": 1.0}}
    slow, fast = ({"name": name, "decode": {"base_s": time_s}} | steps for name, time_s in (("a", 3.0), ("b", 0.5)))
    unlike = {"count": 3, "tiers": [{"first": 2, "profile": fast}]}
    metrics = measured(profile=slow, verifiers=unlike, drafters={"count": 0})
    assert 0.5 < metrics["tpot_s"].value < 3.0
    assert metrics["speedup"].value == pytest.approx(1)


def test_requests_of_one_token_meet_any_tpot_goal() -> None:
    metrics = measured(workload=SERVED | {"new_tokens": 1}, slo={"tpot_s": 1e-9})
    assert metrics["slo_attainment"].value == 1


@pytest.mark.parametrize("tpot_s", [0.5, 1.5, 2.5, 50.0])
def test_goodput_is_attainment_of_what_is_carried(tpot_s: float) -> None:
    metrics = measured(workload=SERVED, slo={"tpot_s": tpot_s, "ttft_s": 1e6})
    attained, carried = metrics["slo_attainment"].value, metrics["carried_requests_per_s"].value
    assert metrics["goodput_requests_per_s"].value == pytest.approx(attained * carried)
    assert (attained == 1) == (tpot_s == 50)
    assert (attained == 0) == (tpot_s == 0.5)
    assert not {"slo_attainment", "goodput_requests_per_s"} & measured(workload=SERVED).keys()


def test_carried_load_ends_at_the_capacity() -> None:
    """A round of 3.4 tokens on average takes 5 s and more, one request after the other: one every 29 s or so."""
    for per_s in (0.01, 5.0):
        workload = SERVED | {"requests": 200, "arrivals": {"process": "poisson", "per_s": per_s}}
        metrics = measured(verifiers={"count": 1, "max_num_seqs": 1}, workload=workload)
        carried = metrics["carried_requests_per_s"].value
        assert metrics["offered_requests_per_s"].value == per_s
        assert carried == pytest.approx(per_s, rel=0.25) if per_s < 0.02 else 0.02 < carried < 0.06
    assert "offered_requests_per_s" not in measured()


@pytest.mark.parametrize("changes", [{}, {"drafters": {"count": 3}}, SHARED, {"drafters": {"count": 0}}])
def test_cost_of_tokens_counts_all_devices(changes: dict[str, Any]) -> None:
    profile = {"decode": {"base_s": 1.0}, "power": {"idle_w": 250.0, "draft_w": 250.0, "verify_w": 250.0}}
    metrics = measured(cost=PRICES, profile=profile, **changes)
    drafters, targets = devices_of(resolve(star(**changes)))
    throughput, one = metrics["throughput"].value, metrics["cost_per_million_tokens"]
    assert one.value == pytest.approx(per_million_tokens(0.5 * drafters + 2 * targets, throughput))
    assert one.unit == "cost/million tokens, EUR"
    assert metrics["power_w"].value == pytest.approx(250 * (drafters + targets))
    assert metrics["energy_j_per_token"].value == pytest.approx(metrics["power_w"].value / throughput)


def test_speedup_of_plain_decoding_is_one() -> None:
    profile = {"decode": {"base_s": 3.0, "per_context_token_s": 0.01}}
    plain = measured(profile=profile, drafters={"count": 0})["speedup"]
    assert plain.value == pytest.approx(1.0, rel=1e-3)
    fast = measured(profile=profile)
    step_s = 3.0 + 0.01 * (10 + 25)
    assert fast["speedup"].value == pytest.approx(step_s / fast["tpot_s"].value)
    assert fast["speedup"].value > 1
    assert fast["speedup"].low <= fast["speedup"].value <= fast["speedup"].high or np.isnan(fast["speedup"].low)
    assert "speedup" not in measured()  # the profile has no plain step


@pytest.mark.parametrize(
    ("changes", "name", "load"),
    [
        ({"verifiers": {"count": 9}}, "drafter", 1.0),  # S = 1, Z = 4: five targets keep the drafter busy
        ({"verifiers": {"count": 1}}, "verifier.1", 0.8),
        ({**SHARED, "verifiers": {"device": "host", "count": 1}}, "device host", 1.0),
        ({"drafters": {"place": "target"}, "verifiers": {"count": 1, "max_num_seqs": 2}}, "verifier.1", 1.0),
    ],
)
def test_the_bottleneck_is_what_is_busiest(changes: dict[str, Any], name: str, load: float) -> None:
    metrics = measured(workload={"new_tokens": 200}, **changes)
    one = metrics["bottleneck"]
    assert one.unit == f"share of time, {name}"
    assert one.value == pytest.approx(load, abs=0.02)
    if name == "drafter":
        assert one.value == pytest.approx(metrics["load"].value)
        assert metrics["target_load"].value == pytest.approx(4 / 9, abs=0.02)
    if name == "verifier.1":
        assert one.value == pytest.approx(metrics["target_load"].value)


def test_steps_at_once_do_not_count_twice() -> None:
    devices = {"host": {"sharing": "contended"}}
    metrics = measured(**{**SHARED, "devices": devices, "profile": {"contention": [1.0, 1.5, 2.0, 2.5]}})
    assert 0.9 < metrics["bottleneck"].value <= 1


def test_steps_at_once_have_no_power() -> None:
    profile = {"contention": [1.0, 1.5, 2.0, 2.5], "power": {"idle_w": 10.0, "draft_w": 100.0, "verify_w": 300.0}}
    assert "power_w" not in measured(**{**SHARED, "devices": {"host": {"sharing": "contended"}}, "profile": profile})


def test_replications_name_the_commonest_bottleneck() -> None:
    runs = [{"bottleneck": Metric(0.9, 0.9, 0.9, f"share of time, {name}")} for name in ("a", "b", "b")]
    assert combine(runs)["bottleneck"].unit == "share of time, b"


def test_a_role_without_devices_needs_no_price() -> None:
    cost = {"cost": {"target_per_hour": 1.0}}
    for changes in (SHARED, {"drafters": {"count": 0}, "profile": {"decode": {"base_s": 1.0}}}):
        assert isinstance(star(**cost, **changes), Scenario)


def test_goals_and_prices_change_no_record() -> None:
    priced = star(slo={"tpot_s": "40ms"}, cost=PRICES)
    assert simulate(priced).digest() == simulate(star()).digest()
    assert unsupported_in(resolve(priced)) == ""
