"""Plans of random budgets against grids of all their fleets, simulated with other seeds."""

import pytest

pytest.importorskip("numba")

from bench.planned import compared, question_of
from tests.helpers.marks import slow


def test_questions_are_repeatable_and_of_every_kind() -> None:
    made = [question_of(number) for number in range(6)]
    assert made[:2] == [question_of(number) for number in range(2)]
    assert {bool(one.load.in_flight) for one in made} == {True, False}
    assert sum(one.aim == "hour" for one in made) == 2


@pytest.mark.parametrize("number", [slow(number) for number in (1, 2, 3)])
def test_the_answer_is_the_grids_best(number: int) -> None:
    row = compared(number)
    assert row["verdict"] != "WORSE", row
