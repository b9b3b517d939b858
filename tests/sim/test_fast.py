"""The compiled loop writes exactly the rows of the SimPy path, over the whole corner that it knows, and they replay."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.records.replay import replay
from fleet.records.run import Run
from fleet.scenario.reading import make_scenario
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle
from sim.fast.plain import unknown_in
from sim.fast.run import records_of
from sim.run import simulate
from tests.helpers.stars import repeatable

Given = dict[str, Any]

seconds = st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(0.0, 3.0)  # round ones, so that events fall together
small = st.sampled_from([0.0, 0.125, 1e-3]) | st.floats(0.0, 0.1)
quantiles = {"spread": "quantiles", "levels": [0.0, 0.3, 1.0], "ratios_at": [0.5, 0.9, 1.8]}
spreads = st.sampled_from(["constant", "exponential", quantiles])
lengths = st.integers(1, 40) | st.builds(lambda low, more: {"low": low, "high": low + more}, st.integers(1, 20), st.integers(0, 30))
ROOFLINE = {"tokens": [1, 8, 64], "pass_s": [0.1, 0.15, 0.9], "attention": [{"read_s": 1e-3, "pair_s": 1e-4}], "host_s": 0.05}


steps = st.fixed_dictionaries(
    {"base_s": seconds},
    optional={
        "per_token_s": small,
        "per_context_token_s": small,
        "per_token_context_s": small,
        "spread": spreads,
        "roofline": st.just(ROOFLINE) | st.just(ROOFLINE | {"in_turn": True}),
    },
)
links = st.fixed_dictionaries(
    {"latency_s": seconds}, optional={"bandwidth_bytes_per_s": st.floats(10, 1e6), "spread": spreads}
)
idle = st.fixed_dictionaries(
    {"gaps_s": st.just([0.0, 0.5, 2.0]), "slowdowns": st.just([1.0, 1.0, 1.7])},
    optional={"overheads": st.just([1.0, 1.5, 3.0])},
)
recent_load = st.fixed_dictionaries(
    {
        "half_life_s": st.floats(0.5, 50),
        "loads": st.just([0.1, 0.5, 0.9]),
        "slowdowns": st.just([2.0, 1.4, 1.0]),
    },
    optional={"paces": st.just([1.3, 1.0, 1.1])},
)
profiles = st.fixed_dictionaries(
    {"name": st.just("p"), "draft": steps, "verify": steps},
    optional={
        "draft_prefill": steps,
        "verify_prefill": steps,
        "decode": steps,
        "link": links,
        "busy_link": links,
        "turnaround_s": small,
        "decode_turnaround_s": small,
        "turnaround_row_s": small,
        "wake_up_s": small,
        "dispatch_s": small,
        "delay_spread": spreads,
        "catch_up_s": small,
        "idle": idle,
        "recent_load": recent_load,
        "vocabulary": st.just(1000),
        "hidden": st.just(64),
        "positions": st.integers(90, 120),
    },
)
acceptance = (
    st.builds(lambda beta: {"model": "geometric", "beta": beta}, st.sampled_from([0.0, 1.0]) | st.floats(0, 1))
    | st.builds(
        lambda a, b, per: {"model": "beta-geometric", "a": a, "b": b, "per": per},
        st.floats(0.5, 9), st.floats(0.5, 9), st.sampled_from(["round", "session"]),
    )
    | st.just({"model": "per-position", "rates": [0.9, 0.8, 0.6, 0.5, 0.4, 0.4, 0.2, 0.1]})
    | st.just({"model": "recorded", "depth": 8, "sessions": [[0, 8, 3], [5], [1, 1, 2, 7, 8, 0]]})
)  # fmt: skip
workloads = st.fixed_dictionaries(
    {"requests": st.integers(1, 25), "prompt_tokens": lengths, "new_tokens": lengths},
    optional={
        "streams": st.integers(1, 12),
        "arrivals": st.builds(lambda per_s: {"process": "poisson", "per_s": per_s}, st.floats(0.05, 5)),
        "temperature": st.just(0.7),
    },
)
drafters = st.fixed_dictionaries(
    {"count": st.integers(0, 3), "depth": st.integers(1, 8)},
    optional={"kind": st.sampled_from(["model", "eagle", "lookup"]), "tiers": st.just([{"first": 2, "draft": {"base_s": 0.75}}])},
)
verifiers = st.fixed_dictionaries(
    {"count": st.integers(1, 9)},
    optional={
        "priorities": st.just([2, 0, 1]),
        "tiers": st.just([{"first": 3, "verify": {"base_s": 1.5, "spread": "exponential"}, "link": {"latency_s": 0.5}}]),
    },
)


@st.composite
def plain_stars(draw: st.DrawFn) -> Scenario:
    """Any star of the corner that the loop knows."""
    given_workload, made = draw(workloads), draw(drafters)
    if "arrivals" in given_workload:
        given_workload.pop("streams", None)
    if made["count"] == 0:
        made = {"count": 0}
    tables = {
        "name": "plain", "seed": draw(st.integers(0, 5)), "profile": draw(profiles), "acceptance": draw(acceptance),
        "drafters": made, "verifiers": draw(verifiers), "workload": given_workload,
    }  # fmt: skip
    if draw(st.booleans()):
        tables["link"] = draw(links)
    return make_scenario(tables)


@settings(repeatable, max_examples=150, suppress_health_check=list(HealthCheck))
@given(scenario=plain_stars())
def test_the_compiled_loop_writes_the_rows_of_the_simpy_path_and_they_replay(scenario: Scenario) -> None:
    fleet = settle(scenario)
    assert unknown_in(fleet) == ""
    slow = simulate(scenario)
    fast = Run(slow.header, records_of(fleet))
    assert fast.table.num_rows == slow.table.num_rows
    assert fast.digest() == slow.digest()
    assert replay(fast) == []
