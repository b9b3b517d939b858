"""Null models: computed of a paper's own numbers by a rule for a group of rows, and scored beside ours."""

import msgspec
import pytest

from specfleet.experiments.reproduce import REPRODUCTIONS, amusd, batch_model, dsde, goodspeed, starsd
from specfleet.experiments.reproduce.rows import PaperRow, nulls_of, row, score_of
from specfleet.fleet.acceptance.models import committed_closed_form

PAPERS = (amusd.PAPER, batch_model.PAPER, dsde.PAPER, goodspeed.PAPER, starsd.PAPER)


def of_table_4(ours: float) -> list[PaperRow]:
    cases = [({"method": "dynamic", "dataset": name}, paper["dynamic"] / 100) for name, paper in dsde.TABLE_4.items()]
    rows = [row("growth of latency", case, "predicted", paper, ours) for case, paper in cases]
    return [dsde.PAPER.with_null("dsde-table4", made) for made in rows]


def test_each_group_has_a_reproduction_and_a_rule_of_its_own() -> None:
    groups = [(entry["of"], entry["rule"]) for paper in PAPERS for entry in paper.nulls]
    assert len(set(groups)) == len(groups)
    assert {of for of, _ in groups} <= REPRODUCTIONS.keys()


def test_null_models_use_no_number_of_ours() -> None:
    assert [made.null for made in of_table_4(ours=9.0)] == [made.null for made in of_table_4(ours=2.0)]


def test_a_groups_null_error_is_the_mean_by_hand() -> None:
    (null,) = nulls_of(of_table_4(ours=2.0)).values()
    by_hand = (2 / 180, 3 / 234, 30 / 229, 17 / 208, 4 / 198)  # 178 for 180, 231 for 234, ...
    assert (null.rows, null.error) == (5, pytest.approx(sum(by_hand) / 5))


def test_formulas_and_tables_of_null_models_equal_those_by_hand() -> None:
    assert starsd.PAPER.computed("table_1/load/3 + table_1/load/6 / 2", {}) == pytest.approx((0.754 + 0.996) / 2)
    of_others = amusd.PAPER.computed("table_1_ms/~{dataset}/sd * 2", {"dataset": "HumanEval"})
    assert of_others == pytest.approx(20.64 + 19.18)
    by_hand = {task: committed_closed_form(beta, 8) for task, beta in dsde.table_1_acceptance().items()}
    assert dsde.PAPER["one_acceptance"] == pytest.approx(by_hand, abs=5e-4)


@pytest.mark.parametrize(("guess", "explained"), [(1.0, 2), (1.1, 2), (1.3, 0)])
def test_rows_that_a_null_model_explains_are_told_apart(guess: float, explained: int) -> None:
    made = msgspec.structs.replace(row("x", {}, "predicted", 1.0, 1.1, null=guess), rule="a: b")
    score = score_of([made, made, row("y", {}, "predicted", 1.0, 1.3)])
    assert (score.rows, score.explained) == (3, explained)
    assert score.median_of_rest == pytest.approx(0.3 if explained else 0.1)
