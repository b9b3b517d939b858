"""Reproductions say what kind of number each row is and predict something; StarSD's predict table 1.

But for StarSD's they run here with less text and fewer seeds than `specfleet reproduce` takes: what is asked of their
rows does not depend on how much was simulated.
"""

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from experiments.draw import draw
from experiments.reproduce import REPRODUCTIONS, batch, dsde, goodspeed, measured
from experiments.reproduce.rows import Inputs, Reproduction
from fleet.errors import InputError
from fleet.scenario.scenario import Scenario
from tests.helpers.marks import slow

BATCH_OF = measured.batch_of


def short_texts(rule: dict[str, Any], requests: int, temperature: float = 0.0) -> Scenario:
    scenario = BATCH_OF(rule, min(requests, 12), temperature)
    return msgspec.structs.replace(scenario, workload=msgspec.structs.replace(scenario.workload, new_tokens=24))


LESS = {
    batch: {"PROMPTS": 20, "NEW_TOKENS": {"low": 7, "high": 32}, "SEEDS": 1},  # the mean over the longest is the same
    dsde: {
        "NEW_TOKENS": 48,
        "SEEDS": 1,
        "correlations": partial(dsde.correlations, tokens=6_000),
        "run_policy": partial(dsde.run_policy, requests=4),
    },
    goodspeed: {"ITERATIONS": 60, "SEEDS": 1, "goodputs": partial(goodspeed.goodputs, iterations=60)},
    measured: {"SIZES": (1, 4), "batch_of": short_texts},
}
MEASURED = ("dsde-table2", "batch-fig5b-engine")
QUICK = ("starsd-fig6", "goodspeed-fig2", "batch-fig5b", "batch-table2")
NAMES = [
    name if name in QUICK else slow(name)
    for name in REPRODUCTIONS
    if name not in ("amusd-a100", *MEASURED)  # that one needs a file: see test_amusd.py
]


@pytest.fixture(scope="module", autouse=True)
def less() -> Iterator[None]:
    """Smaller reproductions, and nothing that is kept of them."""
    with pytest.MonkeyPatch.context() as patch:
        for module, sizes in LESS.items():
            for name, size in sizes.items():
                patch.setattr(module, name, size)
        forget()
        yield
    forget()


def forget() -> None:
    for kept in (reproduced, dsde.signals, dsde.static_opt):
        kept.cache_clear()


@cache
def reproduced(name: str) -> Reproduction:
    """A reproduction: the same whenever it is computed."""
    return REPRODUCTIONS[name](Inputs())


@pytest.fixture(scope="module")
def table1(less: None) -> Reproduction:  # noqa: ARG001  (the sizes are set before)
    return reproduced("starsd-table1")


@pytest.mark.parametrize("name", NAMES)
def test_every_reproduction_predicts_something_and_states_its_errors(name: str) -> None:
    reproduction = reproduced(name)
    assert any(row.kind == "predicted" for row in reproduction.rows)
    assert reproduction.assumptions
    for row in reproduction.rows:
        if row.error is not None:
            assert row.paper is not None
            assert row.ours is not None
            assert row.error == pytest.approx((row.ours - row.paper) / row.paper)


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURED)
def test_what_is_measured_here_does_not_pass_for_a_prediction(name: str) -> None:
    pytest.importorskip("torch")
    rows = reproduced(name).rows
    assert {row.kind for row in rows} == {"measured"}
    assert all(row.ours is not None for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("N", [1, 2, 3, 5, 6])
def test_table_1_has_the_round_speed_within_three_per_cent(table1: Reproduction, N: int) -> None:
    (row,) = [row for row in table1.rows if row.quantity == "rounds_per_s" and row.case == {"N": N}]
    assert row.error is not None
    assert abs(row.error) < 0.03


@pytest.mark.slow
def test_the_papers_throughput_is_not_N_times_that_of_a_target(table1: Reproduction) -> None:
    rows = [row for row in table1.rows if row.quantity == "O against N O_i" and row.case["N"] > 1]
    assert all(row.kind == "identity" and row.error is not None and row.error > 0.15 for row in rows)


@pytest.mark.slow
def test_the_blind_version_uses_nothing_beyond_three_targets() -> None:
    used = [row.case["N"] for row in reproduced("starsd-table1-blind").rows if row.kind == "input"]
    assert max(used) == 3


def test_a_reproduction_is_drawn_from_what_json_printed(tmp_path: Path) -> None:
    (tmp_path / "table2.json").write_bytes(msgspec.json.encode(reproduced("batch-table2")))
    draw("reproduction", tmp_path / "table2.json", tmp_path / "table2.png")
    assert (tmp_path / "table2.png").stat().st_size > 10_000
    with pytest.raises(InputError, match="not a reproduction"):
        draw("reproduction", tmp_path / "table2.png", tmp_path / "again.png")


def test_the_json_form_has_the_documented_keys() -> None:
    content = msgspec.to_builtins(reproduced("batch-table2"))
    assert set(content) == {"name", "rows", "assumptions"}
    assert set(content["rows"][0]) == {"quantity", "case", "kind", "paper", "ours", "error"}
