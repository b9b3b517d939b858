"""Offered load beyond capacity is a verdict: never below capacity, always above it, with its numbers and bottleneck.

Nothing is accepted here, so that a request of n tokens takes a prefill and n - 1 rounds: capacities are exact. Seeds
are fixed; at load 0.95 a run is called overloaded with a probability far below the rule's 0.001 at load 1.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from specfleet.experiments.sweep.cell import run_cell
from specfleet.fleet.records.metrics.findings import findings_of
from specfleet.fleet.records.metrics.overload import FALSE_ALARM, Overload, overload_of
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import requests_of
from specfleet.results import Result
from specfleet.sim.run import simulate
from tests.helpers.quickly import simulated

ROUNDS = 11  # of a request, on average: new_tokens - 1
S, DELAY, V, PREFILL, DRAFT_PREFILL = 0.01, 0.001, 0.03, 0.02, 0.005
QUEUED = {"queued": {"mean_s": DELAY}}
ROW = 0.004  # what a further row adds to a verification

STAR: dict[str, Any] = {"verifiers": {"count": 8}}
ONLINE: dict[str, Any] = {
    "drafters": {"place": "target"}, "verifiers": {"max_num_seqs": 4, "aligned": {"policy": "realign", "fixed": False}},
}  # fmt: skip
GROUPED: dict[str, Any] = {"drafters": {"group": {"policy": "batch", "most": 2}}, "verifiers": {"count": 16}}
ROUTED: dict[str, Any] = {"drafters": {"count": 2, "route": "shortest-queue"}, "verifiers": {"count": 16}}
ALONE: dict[str, Any] = {"drafters": {"count": 0}, "verifiers": {"count": 2, "max_num_seqs": 1}}
FULL: dict[str, Any] = {"drafters": {"count": 0}, "verifiers": {"count": 1, "max_num_seqs": 4}}
SPLIT: dict[str, Any] = {
    "drafters": {"count": 0}, "verifiers": {"count": 2, "max_num_batched_tokens": 20, "prefill": {"count": 2}}
}  # fmt: skip
TURNS: dict[str, Any] = {
    "devices": {"host": {"sharing": "turns"}}, "drafters": {"device": "host"},
    "verifiers": {"count": 1, "max_num_seqs": 1, "device": "host"},
}  # fmt: skip

# Time of the bottleneck for a request, and its name.
FLEETS: dict[str, tuple[dict[str, Any], float, str]] = {
    "star": (STAR, DRAFT_PREFILL + DELAY + ROUNDS * (S + DELAY), "the drafter is"),
    "full steps": (FULL, (ROUNDS + 1) * V / 4, "target"),  # a prompt shares the fixed time of its step
    "aligned rows": (
        ONLINE,
        PREFILL + DRAFT_PREFILL + 2 * DELAY + ROUNDS * (S + V + 3 * ROW + 3 * DELAY) / 4,
        "target",
    ),
    "no drafter": (ALONE, (PREFILL + ROUNDS * V) / 2, "target"),
    "prefill servers": (SPLIT, PREFILL * 10 / 20 / 2, "prefill server"),  # of 20 tokens a step, prompts of 10
    "a host by turns": (TURNS, PREFILL + DRAFT_PREFILL + ROUNDS * (S + V), "is"),
}


def arriving(tables: dict[str, Any], per_s: float, requests: int = 300, seed: int = 0, **workload: Any) -> Scenario:
    """The fleet with requests of 10 to 14 tokens that arrive at random, and steps that spread by half of their time."""
    random = {"spread": {"spread": "quantiles", "levels": [0.0, 1.0], "ratios_at": [0.5, 1.5]}}
    profile = {
        "name": "p", "draft": {"base_s": S} | random, "verify": {"base_s": V, "per_row_s": ROW} | random,
        "decode": {"base_s": V} | random, "draft_prefill": {"base_s": DRAFT_PREFILL},
        "verify_prefill": {"base_s": PREFILL},
        "overhead": {"own": {"target" if tables is ONLINE else "drafter": QUEUED}, "time_sliced": {}},
    }  # fmt: skip
    content = {
        "seed": seed, "profile": profile, "acceptance": {"model": "geometric", "beta": 0.0},
        "workload": {
            "requests": requests, "prompt_tokens": 10, "new_tokens": {"low": 10, "high": 14},
            "arrivals": {"process": "poisson", "per_s": per_s},
        } | workload,
    }  # fmt: skip
    drafters = tables.get("drafters", {})
    depth = {} if "overlap" in drafters else {"depth": 3}
    return make_scenario(content | tables | {"drafters": depth | drafters})


def verdict_of(scenario: Scenario) -> Overload | None:
    return overload_of(findings_of(simulate(scenario)))


def verdict(
    name: str, load: float, seed: int, requests: int = 300, run: Callable[[Scenario], Run] = simulated
) -> Overload | None:
    tables, demand_s, _ = FLEETS[name]
    return overload_of(findings_of(run(arriving(tables, load / demand_s, requests, seed))))


def check(name: str, seeds: range, run: Callable[[Scenario], Run]) -> None:
    _, demand_s, bottleneck = FLEETS[name]
    for seed in seeds:
        assert verdict(name, 0.95, seed, run=run) is None, f"seed {seed}"
        called = verdict(name, 1.1, seed, run=run)
        assert called is not None, f"seed {seed}"
        assert called.offered_tokens_per_s == pytest.approx(1.1 / demand_s * (ROUNDS + 1), rel=0.03)
        assert called.load == pytest.approx(1.1, rel=0.07)  # two prefills of aligned rows may share a step
        assert called.load == pytest.approx(called.offered_tokens_per_s / called.carried_tokens_per_s)
        assert bottleneck in called.bottleneck


@pytest.mark.parametrize("name", FLEETS)
def test_verdict_is_right_at_loads_95_and_110_percent(name: str) -> None:
    check(name, range(1), simulate)


@pytest.mark.slow
@pytest.mark.parametrize("name", FLEETS)
def test_verdict_is_right_over_many_seeds(name: str) -> None:
    """If one run in five got a wrong verdict, 15 seeds would find it with a probability of 96 %."""
    check(name, range(1, 16), simulated)


@pytest.mark.slow
def test_false_alarm_rate_at_load_1_is_nominal() -> None:
    called = sum(verdict("star", 1.0, seed, requests=150) is not None for seed in range(200))
    assert called <= 3, f"more than {FALSE_ALARM:.1%} of 200 runs; 4 of them would come once in 10,000 times"


def test_verdict_names_offered_and_carried_load_and_bottleneck() -> None:
    called = Overload(624.0, 277.0, 624 / 277, "the drafter is")
    assert called.line() == "overload: offers 624 tokens/s, carries 277; the drafter is the bottleneck"


def test_a_result_beyond_capacity_has_a_verdict_and_no_intervals() -> None:
    demand_s = FLEETS["star"][1]
    below, beyond = (Result(simulate(arriving(STAR, load / demand_s, 80))) for load in (0.3, 1.5))
    assert below.overload is None
    assert below.metrics["throughput"].times_longer < math.inf
    assert beyond.overload is not None
    assert beyond.overload.line() in beyond.line()
    assert beyond.metrics.keys() == below.metrics.keys() - {"speedup"}, "beyond capacity no load is the same"
    assert all(math.isnan(metric.low) and math.isnan(metric.high) for metric in beyond.metrics.values())
    assert math.isinf(beyond.metrics["throughput"].times_longer)
    assert beyond.metrics["requests"].times_longer == 1, "a count has no interval however long the run"


def test_overloaded_cells_have_a_verdict_and_no_intervals() -> None:
    demand_s = FLEETS["star"][1]
    below, beyond = (run_cell({}, arriving(STAR, load / demand_s, 80), "sim", 2) for load in (0.3, 1.5))
    assert not below.overload
    assert beyond.overload.startswith("overload: offers ")
    assert "carries" in beyond.overload
    assert math.isnan(beyond.metrics["throughput"].low)
    assert below.metrics["throughput"].times_longer < math.inf


def test_a_trace_counts_by_the_rate_at_which_it_comes(tmp_path: Path) -> None:
    demand_s = FLEETS["star"][1]
    for load, overloaded in ((0.8, False), (1.3, True)):
        rows = (f"{number * demand_s / load},10,{ROUNDS + 1}" for number in range(150))
        (tmp_path / "trace.csv").write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *rows]))
        trace = {"process": "trace", "file": str(tmp_path / "trace.csv")}
        content = msgspec.to_builtins(arriving(STAR, 1.0, 150))
        called = verdict_of(make_scenario(content | {"workload": {"requests": 150, "arrivals": trace}}))
        assert (called is not None) == overloaded


def test_a_queue_that_only_batches_have_is_no_overload() -> None:
    """A batch without a limit is nearly always busy, far below what it could do."""
    tables = {"drafters": {"count": 8}, "verifiers": {"count": 1}}
    assert verdict_of(arriving(tables, 0.5 / (PREFILL + ROUNDS * ROW))) is None


def test_capacity_of_groups_and_of_several_drafters_is_that_when_full() -> None:
    for tables in (GROUPED, ROUTED):
        demand_s = (DRAFT_PREFILL + DELAY + ROUNDS * (S + DELAY)) / 2
        for load, overloaded in ((0.8, False), (1.4, True)):
            called = verdict_of(arriving(tables, load / demand_s, 120))
            assert (called is not None) == overloaded
            assert called is None or "drafter" in called.bottleneck


@pytest.mark.parametrize("limits", [{}, {"kv_tokens": 1024}], ids=["tokens", "blocks"])
def test_unlike_prompts_saturate_by_their_tokens(limits: dict[str, Any]) -> None:
    """A rare long prompt holds short ones up, which alone would take no step of its length."""
    lengths = {"prompt_tokens": {"low": 10, "high": 1000, "mean": 100, "cv": 2.0}, "new_tokens": 1}
    token_s = 1e-3
    tables = {"drafters": {"count": 0}, "verifiers": {"max_num_batched_tokens": 256, "prefill": {}} | limits}
    content = msgspec.to_builtins(arriving(tables, 1.0, 1000, **lengths))
    content["profile"] |= {"verify_prefill": {"per_token_s": token_s}}
    mean = requests_of(resolve(make_scenario(content))).prompts.mean()
    for load, overloaded in ((0.3, False), (0.8, False), (1.3, True)):
        content["workload"]["arrivals"]["per_s"] = float(load / mean / token_s)
        assert (verdict_of(make_scenario(content)) is not None) == overloaded


@pytest.mark.parametrize("load", [0.8, 1.3])
def test_the_link_of_prefill_servers_is_a_bottleneck(load: float) -> None:
    """It sends a prompt of 10 tokens in twice the time of its part of a step."""
    demand_s = FLEETS["prefill servers"][1] * 2
    link = {"bandwidth_bytes_per_s": 10 * 1000 / (2 * demand_s)}
    split = SPLIT | {"verifiers": SPLIT["verifiers"] | {"prefill": {"count": 2, "link": link}}}
    content = msgspec.to_builtins(arriving(SPLIT, load / demand_s))
    kv = {"profile": content["profile"] | {"kv": {"free_bytes": 1e7, "token_bytes": 1000}}}
    called = verdict_of(make_scenario(content | kv | {"verifiers": split["verifiers"]}))
    assert (called.bottleneck if called else "") == ("the link of the prefill servers is" if load > 1 else "")


def test_a_closed_loop_offers_what_it_carries() -> None:
    assert verdict_of(arriving(STAR, 1.0, 40, arrivals=None)) is None


def test_what_drafts_ahead_is_not_judged() -> None:
    assert verdict_of(arriving({"drafters": {"overlap": "ahead"}}, 50.0, 40)) is None
