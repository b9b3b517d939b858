"""Drafters of blocks against published figures: which numbers a prediction knows, and how near it comes."""

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import pytest

from bench import blocks, methods
from bench.methods import METHODS, reproduce
from specfleet.experiments.reproduce.rows import PaperRow, nulls_of
from specfleet.sim.predict import predict

PARTS: dict[str, tuple[Callable[..., Iterable[PaperRow]], str, int]] = {  # measured numbers of a row, and known ones
    "rates": (methods._rates, "tokens_per_s", 1),
    "in_flight": (lambda table: methods._in_flight(table, METHODS["rates"]["rows"]), "rows", 1),
    "crossover": (methods._crossover, "fixed", 2),
}


@pytest.mark.parametrize("part", PARTS)
def test_predictions_know_the_fitted_rows_alone(part: str) -> None:
    make, key, known = PARTS[part]
    table: dict[str, Any] = deepcopy(METHODS[part])
    for entry in table["rows"] if part == "rates" else [table]:
        entry[key] = [*entry[key][:known], *map(doubled, entry[key][known:])]
    before, after = (list(make(of)) for of in (METHODS[part], table))
    assert [row.ours for row in after if not row.is_claim] == [row.ours for row in before if not row.is_claim]
    assert [row.paper for row in after] != [row.paper for row in before]


def doubled(entry: Any) -> Any:
    return [*entry[:-1], 2 * entry[-1]] if isinstance(entry, list | tuple) else 2 * entry


def test_one_block_drafter_carries_more_targets_than_a_chain() -> None:
    of = [blocks.fleet(arm, blocks.CHAIN, 4, 1, 8, 64) for name, arm in blocks.ARMS.items() if "own device" in name]
    chain, block = map(predict, of)
    assert block.N_full > 2 * chain.N_full - 1
    assert block.throughput.with_bonus > 1.5 * chain.throughput.with_bonus


def test_a_requests_other_time_predicts_rates_better_than_division() -> None:
    rows = reproduce().rows
    (null,) = nulls_of(rows).values()
    assert null.rows == 12
    assert null.ours < 0.01 < null.error
    loops = [row for row in rows if "device" in row.case and row.kind == "predicted"]
    assert max(abs(row.error or 1.0) for row in loops) <= 0.1
