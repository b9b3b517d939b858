"""Speculation lengths by load: vLLM's table, and the lengths of the largest goodput."""

from itertools import product

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.profile import estimate
from specfleet.fleet.policies.by_batch import ByBatch
from specfleet.fleet.policies.goodput import Goodput, RoundCosts, Trials, acceptances
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.scenario.reading import make_scenario, scenario_of
from specfleet.fleet.scenario.resolve import resolve
from specfleet.sim.run import simulate

RNG = np.random.default_rng(0)


def test_a_table_by_batch_is_vllms() -> None:
    """[[1, 64, 3], [65, 128, 1], [129, 512, 0]]"""
    table = ByBatch(up_to=(64, 128), depths=(3, 1, 0))
    assert [table.lengths([None] * rows, RNG)[:1] for rows in (1, 64, 65, 128, 129)] == [[3], [3], [1], [1], [0]]
    assert table.longest == 3


times = st.lists(st.floats(0.01, 1.0), min_size=4, max_size=4).map(lambda each: tuple(np.cumsum(each).tolist()))
trials = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda each: Trials(min(each), max(each)))


@given(draft_s=times, verify_s=times, states=st.lists(trials, min_size=1, max_size=3))
def test_no_other_lengths_have_a_larger_goodput(
    draft_s: tuple[float, ...], verify_s: tuple[float, ...], states: list[Trials]
) -> None:
    rule = Goodput(most=3, trials=5.0, costs=RoundCosts((1,), (draft_s,), (verify_s,)))
    reached = np.power.outer(acceptances(states, rule.acceptance, rule.trials), np.arange(1, 4))

    def goodput(lengths: tuple[int, ...]) -> float:
        expected = len(states) + sum(reached[row, :length].sum() for row, length in enumerate(lengths))
        verified_s = np.interp(sum(lengths) / len(states), np.arange(4), verify_s)
        return float(expected / (draft_s[max(lengths)] + verified_s))

    found = tuple(rule.lengths(states, RNG))
    assert goodput(found) == pytest.approx(max(map(goodput, product(range(4), repeat=len(states)))))


def test_times_between_numbers_of_rows_are_linear() -> None:
    costs = RoundCosts((1, 3), ((1.0, 2.0), (3.0, 4.0)), ((0.0, 0.0), (10.0, 20.0)))
    for rows, share in ((1, 0.0), (2, 0.5), (3, 1.0), (9, 1.0)):
        draft_s, verify_s = costs.of(rows)
        assert draft_s.tolist() == [1 + 2 * share, 2 + 2 * share]
        assert verify_s.tolist() == [10 * share, 20 * share]


@pytest.mark.parametrize("in_flight", [1, 16, 64])
def test_goodput_is_level_with_the_best_depth_at_each_load(in_flight: int) -> None:
    """It knows neither the acceptance nor the load beforehand."""
    profile = estimate("llama-3.1-8b@h100", "eagle3-llama-3.1-8b@h100", engine="vllm")
    load = {"requests": max(2 * in_flight, 20), "streams": in_flight}
    tables = {
        "profile": profile,
        "drafters": {"kind": "eagle", "place": "target"},
        "verifiers": {"max_num_batched_tokens": 8192},
        "acceptance": {"model": "geometric", "beta": 0.6},
        "workload": load | {"prompt_tokens": 500, "new_tokens": {"low": 60, "high": 120}},
    }
    base = make_scenario(tables)

    def tokens_per_s(**allocate: object) -> float:
        verifiers = msgspec.structs.replace(base.verifiers, allocate=msgspec.convert(allocate, ByBatch | Goodput))
        return measure(simulate(msgspec.structs.replace(base, verifiers=verifiers)))["throughput"].value

    fixed = [tokens_per_s(policy="by-batch", up_to=(), depths=(depth,)) for depth in (1, 2, 3, 5, 7)]
    assert tokens_per_s(policy="goodput", most=7) > 0.98 * max(fixed)


def test_goodput_without_a_law_of_plain_steps_speculates() -> None:
    """A row without a draft is a verification of one token: profiles may leave plain decoding out."""
    scenario = scenario_of(
        "eqspec", {"verifiers.aligned": None, "verifiers.allocate": {"policy": "goodput", "most": 5}}
    )
    costs = resolve(scenario).verifiers.allocate.costs  # type: ignore[union-attr]
    assert {table[0] for table in costs.verify_s} == {0.0249}


def test_free_rounds_need_no_drafts() -> None:
    free = RoundCosts((1,), ((0.0, 0.0),), ((0.0, 0.0),))
    assert Goodput(most=1, costs=free).lengths([Trials()], RNG) == [0]


def test_goodput_needs_times() -> None:
    scenario = {"drafters": {"place": "target"}, "verifiers": {"allocate": {"policy": "goodput", "most": 3}}}
    rule = resolve(make_scenario(scenario)).verifiers.allocate
    assert isinstance(rule, Goodput)
    assert rule.costs is None
    with pytest.raises(InputError, match=r"'goodput' needs drafters.place = 'target'"):
        make_scenario({"verifiers": scenario["verifiers"]})
