"""Reproductions in the shapes of their papers: curves, stacked parts, grouped bars, each with the rows' own numbers."""

from collections.abc import Iterator

import numpy as np
import pytest
from matplotlib.container import BarContainer

from experiments.draw import draw
from experiments.reproduce.rows import PAPER as OF_ROWS
from experiments.reproduce.rows import Curve, PaperFigure, ReproducedRows
from figures.paper_shapes import PAPER
from tests.helpers.marks import slow
from tests.helpers.reproductions import reproduced, smaller


@pytest.fixture(scope="module", autouse=True)
def less() -> Iterator[None]:
    with smaller(right=False):
        yield


def made(shape: str, *lines: Curve) -> ReproducedRows:
    return ReproducedRows("x", [], ["nothing"], picture=PaperFigure(shape, "across", "up", lines, "a note"))  # type: ignore[arg-type]


def test_curves_carry_their_names_and_bands() -> None:
    figure = draw("reproduction", made("curves", Curve("a", "ours", (1, 2), (3, 4), (2, 3), (4, 5)),
                                       Curve("b", "theirs", (1, 2), (3, 5))))  # fmt: skip
    first, second = figure.axes
    assert [text.get_text() for axes in figure.axes for text in axes.texts] == ["ours", "theirs"]
    assert (len(first.collections), len(second.collections)) == (1, 0)
    assert (first.get_ylabel(), first.get_xlabel(), first.get_title("left")) == ("up", "across", "a")
    assert "A note." in figure.texts[0].get_text().replace("\n", " ")


def test_stacked_parts_stand_on_each_other() -> None:
    figure = draw(
        "reproduction", made("stacked", Curve("", "a", ("x", "y"), (1, 2)), Curve("", "b", ("x", "y"), (3, 4)))
    )
    lower, upper = (part for part in figure.axes[0].containers if isinstance(part, BarContainer))
    assert [bar.get_y() for bar in upper] == [bar.get_height() for bar in lower] == [1, 2]


def test_grouped_bars_have_the_papers_numbers_as_marks() -> None:
    lines = Curve("", "sd", ("x", "y"), (1, 2)), Curve("", f"sd{PAPER}", ("x", "y"), (1.5, 2.5))
    (axes,) = draw("reproduction", made("grouped", *lines)).axes
    (bars,) = (part for part in axes.containers if isinstance(part, BarContainer))
    assert [bar.get_height() for bar in bars] == [1, 2]
    assert [list(mark.get_ydata()) for mark in axes.lines] == [[1.5, 2.5]]
    assert PAPER == OF_ROWS


@pytest.mark.parametrize(
    ("name", "shape", "panels"),
    [
        ("goodspeed-fig2", "curves", 2),
        slow("amusd-fig4", "curves", 1),
        slow("amusd-table1", "grouped", 1),
        slow("starsd-table1", "stacked", 2),
        slow("goodspeed-fig3", "stacked", 2),
        slow("goodspeed-fig4", "curves", 4),
    ],
)
def test_figures_have_the_shapes_of_the_papers(name: str, shape: str, panels: int) -> None:
    reproduction = reproduced(name)
    assert reproduction.picture is not None
    assert reproduction.picture.shape == shape
    drawn = draw("reproduction", reproduction)
    assert len([axes for axes in drawn.axes if axes.axison]) == panels
    for one in reproduction.picture.lines:
        assert len(one.x) == len(one.y) > 1
        assert np.isfinite(one.y).all()


@pytest.mark.slow
def test_what_is_drawn_is_what_the_rows_say() -> None:
    table, figure = reproduced("amusd-table1"), reproduced("goodspeed-fig4")
    assert table.picture is not None
    for line in table.picture.lines:
        name, of_paper = line.name.removesuffix(PAPER), line.name.endswith(PAPER)
        rows = [row for row in table.rows if row.quantity == f"token time of {name}, ms"]
        assert list(line.y) == [row.paper if of_paper else row.ours for row in rows]
    assert figure.picture is not None
    ends = {(line.panel, line.name): line.y[-1] for line in figure.picture.lines}
    for row in figure.rows:
        if row.quantity.startswith("utility at iteration"):
            place = f"{row.case['clients']} clients, C = {row.case['C']}", row.case["rule"]
            assert ends[place] == pytest.approx(row.ours, rel=1e-3)


@pytest.mark.slow
def test_drafting_ahead_is_sooner_than_in_turn() -> None:
    picture = reproduced("amusd-fig4").picture
    assert picture is not None
    tokens = {line.name: line.y[-1] for line in picture.lines}  # after the same time
    assert tokens["amusd"] > tokens["sd"] > tokens["greedy"] > 0
