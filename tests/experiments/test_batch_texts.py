"""Texts of batches on the demo pair: the engine's are the target's own, and each fault breaks those of batches."""

from typing import Any

import pytest

pytest.importorskip("torch")

from specfleet.experiments.reproduce import batch_model
from specfleet.experiments.reproduce.batch_texts import (
    CACHES,
    batch_texts,
    load_target,
    matches,
    plain_texts,
    scenario_of,
)
from specfleet.experiments.reproduce.every import names


@pytest.fixture(scope="module")
def model() -> Any:
    return load_target()


@pytest.fixture(scope="module")
def plain(model: Any) -> dict[int, list[int]]:
    return plain_texts(scenario_of(batch_model.eqspec(1), 6, 16), model)


@pytest.mark.parametrize("rule", [batch_model.eqspec, batch_model.exspec])
def test_batches_decode_the_targets_own_texts(rule: Any, model: Any, plain: dict[int, list[int]]) -> None:
    assert batch_texts(scenario_of(rule(3), 6, 16), model) == plain


@pytest.mark.parametrize("fault", CACHES)
def test_a_fault_breaks_texts_in_batches_alone(fault: str, model: Any, plain: dict[int, list[int]]) -> None:
    alone, batch = (batch_texts(scenario_of(batch_model.eqspec(B), 6, 16), model, CACHES[fault]) for B in (1, 3))
    assert alone == plain
    assert batch.keys() == plain.keys()
    shares = matches(batch, plain)
    assert shares["exact"] < shares["partial"] < 1


def test_matches_are_of_whole_texts_and_of_what_comes_before_a_difference() -> None:
    assert matches({0: [1, 2, 3, 4], 1: [1, 2, 9, 4]}, {0: [1, 2, 3, 4], 1: [1, 2, 3, 4]}) == {
        "exact": 0.5,
        "partial": 0.75,
    }


def test_reproductions_of_the_engine_are_left_out_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "batch-table1" in names()
    monkeypatch.setattr("specfleet.experiments.reproduce.every.find_spec", lambda _name: None)
    assert "batch-table1" not in names()
