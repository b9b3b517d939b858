"""Memory of prefix caches in the compiled loop; `test_findings.py` compares its rows with SimPy's."""

import numpy as np
import pytest

numba = pytest.importorskip("numba", reason="the compiled loop needs numba: pip install 'specfleet[fast]'")

from specfleet.fleet.policies.blocks import UNLIMITED
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.workload import requests_of
from specfleet.sim.fast import run
from tests.sim.test_prefix_cache import BLOCK, LOADS, serving


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
