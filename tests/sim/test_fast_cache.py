"""Prefix caches in the compiled loop: SimPy's rows, hits counted by hand, and memory."""

from pathlib import Path

import numpy as np
import pytest

numba = pytest.importorskip("numba", reason="the compiled loop needs numba: pip install 'specfleet[fast]'")

from specfleet.fleet.policies.blocks import UNLIMITED
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.workload import requests_of
from specfleet.sim.fast import run
from specfleet.sim.run import observe, simulate
from tests.sim.test_prefix_cache import BLOCK, LOADS, serving, trace


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("cached", [False, True])
def test_the_compiled_loop_hits_as_simpy_does(load: str, cached: bool) -> None:
    for keys in ({}, {"drafters": {"kind": "eagle"}}, {"verifiers": {"kv_tokens": 1600 * cached}}):
        scenario = serving(cached, LOADS[load], **keys)
        assert simulate(scenario, path="fast").digest() == simulate(scenario, path="simpy").digest()


def test_without_limit_all_that_came_before_is_found(tmp_path: Path) -> None:
    """By hand; an id is four blocks. The window of metrics begins with the first answer, after the first prompt."""
    rng, rows, known, asked, hits = np.random.default_rng(3), list[tuple[float, int, list[int]]](), set[str](), 0, 0
    for number in range(200):
        ids = rng.integers(0, 3, size=rng.integers(1, 6)).tolist()
        prompt = 64 * len(ids)
        rows.append((1e5 * number, prompt, ids))
        beginnings = [str(ids[:place]) for place in range(1, len(ids) + 1)]
        found = sum(beginning in known for beginning in beginnings)
        known |= set(beginnings)
        if number:
            asked, hits = asked + prompt, hits + min(64 * found, prompt - BLOCK)
    scenario = serving(
        workload={"requests": 200, "arrivals": trace(tmp_path / "a.jsonl", rows)}, verifiers={"kv_tokens": 0}
    )
    by_loop, by_simpy = (measure(observe(scenario, path))["prefix_hit_share"].value for path in ("fast", "simpy"))
    assert by_loop == by_simpy == pytest.approx(hits / asked)


@pytest.mark.parametrize("kv_tokens", [1600, 0])
def test_memory_of_the_loop_is_that_of_distinct_blocks(kv_tokens: int) -> None:
    """An EAGLE head computes the last found block again: without a limit, such copies make room for others."""
    load = LOADS["both"] | {"requests": 3000}
    fleet = resolve(serving(workload=load, drafters={"kind": "eagle"}, verifiers={"kv_tokens": kv_tokens}))
    arrays = run.served(fleet, run.KEPT, lambda _arrays, _log: None, recorded=False)
    sharing, requests = arrays.sharing, requests_of(fleet)
    assert sharing is not None
    state, whole = sharing.states[0], (requests.prompts + requests.answers - 1) // BLOCK
    goes_on = np.isin(np.arange(3000), requests.before)
    distinct = int(whole[~goes_on].sum())  # with its last turn a conversation has all of its blocks
    running = sharing.tables.size
    assert state["contents"] <= 1 + (kv_tokens // BLOCK or distinct)
    assert state["blocks"] <= 1 + (kv_tokens // BLOCK or distinct + running)
    assert (sharing.blocks["users"].sum(), state["spares"]) == (0, len(sharing.spares))
    assert arrays.stations["free_blocks"][0] == (kv_tokens // BLOCK or UNLIMITED)
