"""Law of the reproductions: what moves with the paper's number of its own row was not predicted, and none counts twice.

None twice in one reproduction. Numbers that a paper prints are changed where the reproduction keeps them, each by a
factor of its own, and everything is computed again. Equal scenarios give equal records, so whatever moves depends on
what was changed.
"""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from specfleet.experiments.reproduce import (
    REPRODUCTIONS,
    amusd,
    batch,
    batch_model,
    batch_turns,
    dsde,
    goodspeed,
    starsd,
)
from specfleet.experiments.reproduce.rows import JUDGED
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


def columns(quantity: str, *Ns: int) -> Callable[[Place], bool]:
    """Places of a quantity of StarSD's table 1."""
    return lambda place: place[0] == quantity and place[1] + 1 in Ns


OF_EXSPEC = (("ExSpec", "tokens_per_s"), ("ExSpec", "overhead_share"))
NOTHING_PRINTED = (  # that a row of ours is held against, and predicts
    "starsd-table2", "starsd-fig4", "goodspeed-fig2", "goodspeed-fig4", "dsde-fig2", "dsde-fig6", "dsde-fig7",
    "dsde-fig8", "batch-eq1", "batch-fig6", "batch-table1",
)  # fmt: skip
PREDICTED: dict[str, tuple[Printed, ...]] = {
    **dict.fromkeys(NOTHING_PRINTED, ()),
    "starsd-table1": (
        Printed(starsd, "TABLE_1", columns("wait_s", 4, 5)),
        Printed(starsd, "TABLE_1", columns("idle_gap_s", *starsd.COLUMNS)),
        Printed(starsd, "TABLE_1", columns("wait_s", 1, 2, 3), fits=True),
        Printed(starsd, "TABLE_1", columns("wait_s", 6), fits=True),
        Printed(starsd, "TABLE_1", first("rounds_per_s"), fits=True),
        Printed(starsd, "TABLE_1", first("load"), fits=True),
    ),
    "starsd-table1-blind": (
        Printed(starsd, "TABLE_1", columns("wait_s", 4, 5, 6)),
        Printed(starsd, "TABLE_1", columns("wait_s", 1, 2, 3), fits=True),
        Printed(starsd, "TABLE_1", columns("rounds_per_s", 4, 5, 6)),
        Printed(starsd, "TABLE_1", columns("load", 4, 5, 6)),  # an identity, as waits are
        Printed(starsd, "TABLE_1", columns("rounds_per_s", 1, 2, 3), fits=True),
        Printed(starsd, "TABLE_1", columns("load", 1, 2, 3), fits=True),
    ),
    "starsd-fig6": (Printed(starsd, "TABLE_1", columns("draft_token_ms", 2)),),
    "goodspeed-fig3": (
        Printed(goodspeed, "OVER_FIXED", second("GoodSpeed")),
        Printed(goodspeed, "OVER_FIXED", second("Random-S"), fits=True),
    ),
    "dsde-table1": (
        Printed(dsde, "TABLE_1", lambda place: (place[0], place[2]) == ("code", "latency_s")),
        Printed(dsde, "TABLE_1", lambda place: (place[0], place[2]) == ("dialogue", "latency_s")),
        Printed(dsde, "TABLE_1", lambda place: place[1:] == (2, "BE"), fits=True),
    ),
    "dsde-table3": (
        # Static-opt at 1.0 sets acceptance.
        Printed(dsde, "TABLE_3", lambda place: place[0] == 0.0 or place[1] in ("dynamic", "AdaEDL")),
        Printed(dsde, "TABLE_1", lambda place: place[1:] == (8, "BE")),
        Printed(dsde, "TABLE_1", lambda place: place[1:] == (2, "BE"), fits=True),
        Printed(dsde, "TABLE_2", second("entropy", "divergence"), fits=True),
    ),
    "dsde-table4": (
        Printed(dsde, "TABLE_4", lambda place: place[1] != "static-opt" and place not in ((dsde.CONFIDENT, "AdaEDL"),)),
        Printed(dsde, "SECTION_4D", first("static_opt")),
        Printed(dsde, "TABLE_4", second("static-opt"), fits=True),
        Printed(dsde, "TABLE_4", lambda place: place == (dsde.CONFIDENT, "AdaEDL"), fits=True),
    ),
    "added-starsd": (Printed(starsd, "TABLE_1", columns("throughput", 4, 5, 6)),),
    "added-dsde": (
        Printed(dsde, "TABLE_2", second("WVIR")),
        Printed(dsde, "TABLE_3", lambda place: place in ((0.0, "autoregressive"), (0.0, "static-opt"))),
        Printed(dsde, "TABLE_3", lambda place: place in ((1.0, "autoregressive"), (1.0, "static-opt")), fits=True),
    ),
    "dsde-fig9": (
        Printed(dsde, "FIGURE_9", second("capped")),
        Printed(dsde, "FIGURE_9", second("uncapped"), fits=True),
    ),
    "batch-fig5a": (Printed(batch, "GAIN"),),
    "batch-fig5b": (
        Printed(batch_model, "OVERHEAD", second(8, 16, 32)),
        Printed(batch_model, "OVERHEAD", second(1), fits=True),
        Printed(batch_model, "TABLE_2", lambda place: place == ("EqSpec", "overhead_share"), fits=True),
    ),
    "batch-fig5c": (Printed(batch, "GROUPED"),),
    "batch-table2": (
        Printed(batch_model, "TABLE_2", lambda place: place in OF_EXSPEC),
        Printed(
            batch_model,
            "TABLE_2",
            lambda place: place[0] == "EqSpec" or place == ("ExSpec", "verifications"),
            fits=True,
        ),
    ),
    "batch-table3": (
        Printed(batch_turns, "TABLE_3", lambda place: place[:2] != (1, "EqSpec") or place[2] == 0),
        Printed(batch_turns, "TABLE_3", lambda place: place[:2] == (1, "EqSpec") and place[2] > 0),
    ),
    "amusd-table1": (
        Printed(amusd, "TABLE_1_MS", second("amusd")),
        Printed(amusd, "TABLE_1_MS", second("sd"), fits=True),
    ),
    "amusd-fig4": (Printed(amusd, "FIGURE_4", first("amusd")), Printed(amusd, "FIGURE_4", first("sd"), fits=True)),
    "amusd-fig5": (Printed(amusd, "FIGURE_5_W", first("amusd")), Printed(amusd, "FIGURE_5_W", first("sd"), fits=True)),
}
ELSEWHERE = {"amusd-a100"}  # of a data file: test_amusd.py
QUICK = ("starsd-table2", "starsd-fig4", "starsd-fig6", "goodspeed-fig2", "batch-table2")


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
            after = REPRODUCTIONS[name]().rows
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
def test_both_tables_of_starsd_predict_other_numbers() -> None:
    of, blind = (reproduced(name).rows for name in ("starsd-table1", "starsd-table1-blind"))
    places = [{(row.quantity, row.case["N"]) for row in rows if row.kind == "predicted"} for rows in (of, blind)]
    assert not places[0] & places[1]
    assert places[1] == {("rounds_per_s", N) for N in (4, 5, 6)}
