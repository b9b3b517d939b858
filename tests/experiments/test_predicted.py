"""Law of the reproductions: what moves with the paper's number of its own row was not predicted, and none counts twice.

None twice in one reproduction. Numbers that a paper prints are changed where the reproduction keeps them, each by a
factor of its own, and everything is computed again. Equal scenarios give equal records, so whatever moves depends on
what was changed.
"""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from specfleet.experiments.reproduce import REPRODUCTIONS, amusd, batch_model, dsde, estimated, goodspeed, starsd
from specfleet.experiments.reproduce.rows import JUDGED, Inputs
from tests.helpers.marks import slow
from tests.helpers.reproductions import forget_signals, reproduced, smaller

Place = tuple[Any, ...]


def anywhere(_place: Place) -> bool:
    return True


class Printed(NamedTuple):
    """Numbers of a paper: a table of a module, and which of its places. `fits`: rows labelled fitted move, too."""

    module: ModuleType
    table: str
    where: Callable[[Place], bool] = anywhere
    fits: bool = False

    def changed(self) -> Any:
        """The table with every number of those places larger, by 10 to 15 %, each by another factor."""
        factors = (1.1 + 0.001 * number for number in range(50))

        def change(value: Any, place: Place) -> Any:
            if isinstance(value, dict):
                return {key: change(entry, (*place, key)) for key, entry in value.items()}
            if isinstance(value, tuple):
                return tuple(change(entry, (*place, number)) for number, entry in enumerate(value))
            return value * next(factors) if self.where(place) else value

        return change(getattr(self.module, self.table), ())


def first(*places: Any) -> Callable[[Place], bool]:
    """Places with one of these as their first key."""
    return lambda place: place[0] in places


def second(*places: Any) -> Callable[[Place], bool]:
    return lambda place: place[1] in places


NOTHING_PRINTED = (  # that a row of ours is held against, and predicts
    "starsd-table2", "starsd-fig4", "goodspeed-fig2", "goodspeed-fig4", "dsde-fig2", "dsde-fig6", "dsde-fig7",
    "dsde-fig8", "batch-eq1", "batch-fig6", "batch-table1",
)  # fmt: skip
PREDICTED: dict[str, tuple[Printed, ...]] = {
    **dict.fromkeys(NOTHING_PRINTED, ()),
    "starsd-table1": (
        Printed(starsd, "WAIT_S", first(3, 4)),
        Printed(starsd, "IDLE_GAP_S"),
        Printed(starsd, "WAIT_S", first(0, 1, 2), fits=True),
        Printed(starsd, "WAIT_S", first(5), fits=True),
        Printed(starsd, "ROUNDS_PER_S", fits=True),
        Printed(starsd, "LOAD", fits=True),
    ),
    "starsd-table1-blind": (
        Printed(starsd, "WAIT_S", first(3, 4, 5)),
        Printed(starsd, "WAIT_S", first(0, 1, 2), fits=True),
        Printed(starsd, "ROUNDS_PER_S", first(3, 4, 5)),
        Printed(starsd, "LOAD", first(3, 4, 5)),
        Printed(starsd, "ROUNDS_PER_S", first(0, 1, 2), fits=True),
        Printed(starsd, "LOAD", first(0, 1, 2), fits=True),
    ),
    "starsd-fig6": (Printed(starsd, "DRAFT_TOKEN_MS", first(2)),),
    "goodspeed-fig3": (
        Printed(goodspeed, "OVER_FIXED", lambda place: place[0][1] == "GoodSpeed"),
        Printed(goodspeed, "OVER_FIXED", lambda place: place[0][1] == "Random-S", fits=True),
    ),
    "dsde-table1": (
        Printed(dsde, "TABLE_1", lambda place: (place[0], place[2]) == ("code", 0)),
        Printed(dsde, "TABLE_1", lambda place: (place[0], place[2]) == ("dialogue", 0)),
        Printed(dsde, "TABLE_1", lambda place: place[1:] == (0, 1), fits=True),
    ),
    "dsde-table3": (
        Printed(dsde, "TABLE_3", lambda place: place[0] == 0.0 or place[1] > 1),  # static-opt at 1.0 sets acceptance
        Printed(dsde, "TABLE_1", lambda place: place[1:] == (1, 1)),
        Printed(dsde, "TABLE_1", lambda place: place[1:] == (0, 1), fits=True),
        Printed(dsde, "TABLE_2", fits=True),
    ),
    "dsde-table4": (
        Printed(dsde, "TABLE_4", lambda place: place[1] > 0 and place != (dsde.CONFIDENT, 1)),
        Printed(dsde, "LOW_STATIC_OPT"),
        Printed(dsde, "TABLE_4", second(0), fits=True),
        Printed(dsde, "TABLE_4", lambda place: place == (dsde.CONFIDENT, 1), fits=True),
    ),
    "added-starsd": (Printed(starsd, "THROUGHPUT", first(3, 4, 5)),),
    "added-dsde": (
        Printed(dsde, "TABLE_2_WVIR"),
        Printed(dsde, "TABLE_3", lambda place: place in ((0.0, 0), (0.0, 1))),
        Printed(dsde, "TABLE_3", lambda place: place in ((1.0, 0), (1.0, 1)), fits=True),
    ),
    "dsde-fig9": (Printed(dsde, "FIGURE_9", second(1)), Printed(dsde, "FIGURE_9", second(0), fits=True)),
    "batch-fig5a": (Printed(batch_model, "GAIN"),),
    "batch-fig5b": (
        Printed(batch_model, "OVERHEAD", second(8, 16, 32)),
        Printed(batch_model, "OVERHEAD", second(1), fits=True),
        Printed(batch_model, "TABLE_2", lambda place: place == ("EqSpec", 5), fits=True),
    ),
    "batch-fig5c": (Printed(batch_model, "GROUPED"),),
    "batch-table2": (
        Printed(batch_model, "TABLE_2", lambda place: place in (("ExSpec", 0), ("ExSpec", 5))),
        Printed(batch_model, "TABLE_2", lambda place: place[0] == "EqSpec" or place == ("ExSpec", 1), fits=True),
    ),
    "batch-table3": (
        Printed(batch_model, "TABLE_3", lambda place: place[:2] != (1, 0) or place[2] == 0),
        Printed(batch_model, "TABLE_3", lambda place: place[:2] == (1, 0) and place[2] > 0),
    ),
    "amusd-table1": (Printed(amusd, "TABLE_1_MS", second(2)), Printed(amusd, "TABLE_1_MS", second(1), fits=True)),
    "amusd-fig4": (Printed(amusd, "ACCEPTED_ASYNCHRONOUS"), Printed(amusd, "ACCEPTED_SYNCHRONOUS", fits=True)),
    "amusd-fig5": (Printed(amusd, "ASYNCHRONOUS_W"), Printed(amusd, "SYNCHRONOUS_W", fits=True)),
    "estimates": (
        Printed(estimated, "TARGET_S"),
        Printed(estimated, "EAGLE_S", first(0)),
        Printed(estimated, "QWEN_TOKENS_PER_S"),
        Printed(estimated, "GLM_TOKENS_PER_S"),
        Printed(amusd, "TABLE_1_MS", second(0)),
        Printed(amusd, "VERIFY_MS"),
        Printed(starsd, "IDLE_GAP_S", first(0)),
        Printed(starsd, "ROUNDS_PER_S", first(5)),
        Printed(starsd, "DRAFT_TOKEN_MS", first(3)),
        Printed(starsd, "DRAFT_MS", first(2)),
    ),
}
# Those of data that are not ours, or of a data file: test_amusd.py, test_specdecode.py, test_serving.py and
# test_published.py.
ELSEWHERE = {"amusd-a100", "specdecode-fig10", "specdecode-fig1", "serving", "published"}
QUICK = ("starsd-table2", "starsd-fig4", "starsd-fig6", "goodspeed-fig2", "batch-table2", "estimates")


@pytest.fixture(scope="module", autouse=True)
def less() -> Iterator[None]:
    """Smaller reproductions, and nothing that is kept of them."""
    with smaller(right=False):
        yield


def test_the_law_is_sweep_question_every_reproduction() -> None:
    assert PREDICTED.keys() | ELSEWHERE == REPRODUCTIONS.keys()


@pytest.mark.parametrize("name", [name if name in QUICK else slow(name) for name in PREDICTED])
def test_a_predicted_number_does_not_move_with_the_papers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = reproduced(name).rows
    compared: list[int] = []
    for printed in PREDICTED[name]:
        with monkeypatch.context() as patch:
            patch.setattr(printed.module, printed.table, printed.changed())
            forget_signals()
            after = REPRODUCTIONS[name](Inputs()).rows
        forget_signals()
        moved = [place for place, row in enumerate(before) if row.paper != after[place].paper]
        predicted = [place for place in moved if before[place].kind in JUDGED]
        for place in predicted:
            assert after[place].ours == before[place].ours, f"{before[place]} moves with {printed.table}"
        fitted = [place for place in moved if before[place].kind == "fitted"]
        assert any(after[place].ours != before[place].ours for place in fitted) == printed.fits
        # The factor of the paper's number of a row: of the number that it is, or that it is made of.
        growths = [round(after[place].paper / before[place].paper, 9) for place in predicted]  # type: ignore[operator]
        assert len(set(growths)) == len(growths), f"a number of {printed.table} counts twice"
        compared += predicted
    counted = [place for place, row in enumerate(before) if row.kind in JUDGED and row.error is not None]
    assert {place for place in counted if not before[place].is_claim} <= set(compared)


@pytest.mark.slow
def test_the_rows_that_once_passed_for_predictions_are_told_apart() -> None:
    """Waits, rates and gaps that are in their own fit."""
    kinds = {(row.quantity, row.case["N"]): row.kind for row in reproduced("starsd-table1").rows}
    assert kinds["wait_s", 2] == kinds["wait_s", 6] == "fitted"
    assert kinds["rounds_per_s", 5] == kinds["load", 5] == "fitted"
    assert {kinds["idle_gap_s", N] for N in (1, 2, 3)} == {"identity"}


@pytest.mark.slow
def test_two_waits_are_predicted_by_both_tables_of_starsd() -> None:
    of, blind = (reproduced(name).rows for name in ("starsd-table1", "starsd-table1-blind"))
    places = [{(row.quantity, row.case["N"]) for row in rows if row.kind == "predicted"} for rows in (of, blind)]
    assert places[0] & places[1] == {("wait_s", 4), ("wait_s", 5)}
