"""The compiled loop of serving targets with drafters elsewhere: rows and metrics of the SimPy path."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

numba = pytest.importorskip("numba", reason="the compiled loop needs numba: pip install 'specfleet[fast]'")

from fleet.errors import InputError
from fleet.scenario.reading import make_scenario
from fleet.scenario.resolve import resolve
from fleet.scenario.scenario import Scenario
from fleet.scenario.workload import streams_of
from tests.helpers.stars import repeatable, star
from tests.sim import test_fast as fast
from tests.sim import test_findings as findings

batches = st.just({"policy": "one"}) | st.builds(lambda most: {"policy": "batch", "most": most}, st.integers(1, 5))
drafters = st.fixed_dictionaries(
    {"count": st.integers(1, 3), "depth": st.integers(1, 8), "group": batches},
    optional={"kind": st.sampled_from(["model", "eagle", "lookup"]), "tiers": st.just(fast.SLOWER_DRAFTERS)},
)
targets = st.fixed_dictionaries(
    {"count": st.integers(1, 3), "late": st.sampled_from(["skip", "decode", "wait"])},
    optional={
        "max_num_seqs": st.integers(1, 6),
        "max_num_batched_tokens": st.integers(1, 60),
        "prefill_first": st.booleans(),
        "tiers": st.sampled_from([fast.SLOWER_TARGETS, fast.FARTHER_TARGETS]),
    },
)
profiles = st.builds(
    lambda profile, serving: profile | serving,
    fast.profiles,
    st.fixed_dictionaries({"draft": fast.serving_steps, "verify": fast.serving_steps, "decode": fast.serving_steps}),
)


@st.composite
def fleets(draw: st.DrawFn) -> Scenario:
    """Any fleet of targets with drafters elsewhere that the loop supports."""
    texts = st.integers(1, 35) | fast.between
    tables: dict[str, Any] = {
        "name": "elsewhere", "seed": draw(st.integers(0, 5)), "profile": draw(profiles),
        "acceptance": draw(fast.acceptance), "drafters": draw(drafters), "verifiers": draw(targets),
        "workload": {"requests": draw(st.integers(1, 30)), "prompt_tokens": draw(texts), "new_tokens": draw(texts)}
        | draw(fast.loads),
    }  # fmt: skip
    if draw(st.booleans()):
        tables["link"] = draw(fast.links)
    scenario = make_scenario(tables)
    try:
        streams_of(resolve(scenario))
    except InputError:  # a text is longer than the positions of the models
        reject()
    return scenario


@settings(repeatable, max_examples=120, suppress_health_check=list(HealthCheck))
@given(scenario=fleets())
def test_drafters_elsewhere_write_the_rows_of_simpy(scenario: Scenario) -> None:
    fast.check(scenario)


@settings(repeatable, max_examples=60, suppress_health_check=list(HealthCheck))
@given(scenario=fleets())
def test_drafters_elsewhere_make_equal_tables(scenario: Scenario) -> None:
    findings.check(scenario)


def test_a_step_of_more_rows_than_drawn_ratios_sends_in_order() -> None:
    link = {"latency_s": 0.5, "spread": "exponential"}
    fast.check(star(link=link, verifiers={"count": 1}, workload={"requests": 90, "streams": 90, "new_tokens": 9}))
