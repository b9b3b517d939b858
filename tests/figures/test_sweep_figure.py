"""Figures of sweeps: any metric along any varied key."""

from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specfleet.experiments.draw import draw as drawn
from specfleet.experiments.sweep.figure import in_numbers, sweep_figure
from specfleet.experiments.sweep.sweep import read_table, sweep
from specfleet.figures.style import resized, scale_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.glossary import METRICS, Meaning
from specfleet.sim.run import simulate
from tests.helpers.stars import star

DEPTHS, TARGETS = (2, 5), (1, 2, 4)
CELLS = [
    ({"verifiers.count": N, "drafters.depth": d}, star(verifiers={"count": N}, drafters={"depth": d}))
    for d in DEPTHS
    for N in TARGETS
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("swept")
    sweep(CELLS, place, seeds=3)
    return place


@pytest.fixture(scope="module")
def swept(folder: Path) -> pd.DataFrame:
    return read_table(folder)


def draw(*given: Any, **keys: Any) -> Figure:
    return drawn(*given, **keys).figure


def marks_of(axes: Axes) -> list[list[str]]:
    """The texts above a panel, N_full's and N_max's."""
    heights = sorted({text.xyann[1] for text in axes.texts})
    return [[text.get_text() for text in axes.texts if text.xyann[1] == height] for height in heights]


def made(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """A sweep's table with a metric `wait_s` and what else rows say."""
    base = {"world": "sim", "quantity": "wait_s", "unit": "s", "value": 1.0, "low": np.nan, "high": np.nan}
    return pd.DataFrame([base | row for row in rows])


def test_lines_carry_their_names_and_axes_their_units(swept: pd.DataFrame) -> None:
    figure = draw("sweep", swept, metric="tpot_s")
    (axes,) = figure.axes
    lines = figure.legends[-1]
    assert [lines.get_title().get_text(), *(text.get_text() for text in lines.get_texts())] == ["depth d", "2", "5"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("targets N", "TPOT, s")
    assert "time for each token after a request's first one, the mean" in figure.texts[0].get_text().replace("\n", " ")


def test_points_and_bands_are_those_of_the_table(swept: pd.DataFrame) -> None:
    figure = draw("sweep", swept, metric="throughput")
    drawn = [line.get_ydata() for line in figure.axes[0].lines if line.get_linestyle() == "-" and len(line.get_xdata())]
    for depth in DEPTHS:
        results = swept[(swept.quantity == "throughput") & (swept.world == "sim") & (swept["drafters.depth"] == depth)]
        assert any(np.allclose(line, results.value) for line in drawn if len(line) == len(TARGETS))


def test_quantities_are_found_and_placed_in_any_unit() -> None:
    texts = made([{"link.latency_s": text, "value": 0.1} for text in ("1ms", "20ms", "100ms")])
    assert in_numbers(texts)["link.latency_s"].tolist() == [0.001, 0.02, 0.1]
    (axes,) = draw("sweep", texts, metric="wait_s").axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("link.latency, ms", "wait T_wait, ms")
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "20", "100"]


def test_a_second_key_may_have_panels_and_knees_are_marked() -> None:
    rows: list[dict[str, Any]] = []
    for depth, knee in ((3, 2.0), (5, 9.0)):
        for N in (1, 2, 3):
            place = {"verifiers.count": N, "drafters.depth": depth}
            rows += [place | {"value": 10.0 * N, "low": 9.0 * N, "high": 11.0 * N}]
            rows += [place | {"quantity": "N_full", "world": "analytic", "value": knee}]
            rows += [place | {"quantity": "N_max", "world": "analytic", "value": 3.0 * (depth == 3)}]
    table = made([{"quantity": "throughput"} | row for row in rows])
    figure = draw("sweep", table, panels=True)
    assert [axes.get_title() for axes in figure.axes] == ["depth d = 3", "depth d = 5"]
    marks = [["$N_{full}$", "2"], ["$N_{max}$", "3"]], [["9 \N{RIGHTWARDS ARROW}"]]  # beyond the sweep
    assert tuple(map(marks_of, figure.axes)) == marks
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert "by the equations, an arrow beyond the axis: N_full" in figure.texts[0].get_text().replace("\n", " ")


def test_many_values_have_rows_of_panels_or_colours_of_their_own() -> None:
    table = made([{"a.b": a, "c.d": c} for a in (1, 2) for c in range(10)])
    width, height = draw("sweep", table, metric="wait_s", panels=True, caption=False).get_size_inches()
    assert width < 1.5 * height
    (legend,) = draw("sweep", table, metric="wait_s").legends
    assert len({handle.get_color() for handle in legend.legend_handles}) == 10


def test_an_equal_curve_shows_behind_the_others() -> None:
    heights = {"fixed": 2.0, "halve, most 6": 2.0, "by-batch": 3.0}
    rows = [{"verifiers.count": N, "verifiers.allocate": name, "value": N * height}
            for name, height in heights.items() for N in (1, 2)]  # fmt: skip
    (axes,) = draw("sweep", made(rows), metric="wait_s").axes
    widths = [line.get_linewidth() for line in axes.lines if line.get_linestyle() == "-" and len(line.get_xdata()) == 2]
    assert widths[0] > widths[1] == widths[2]


def test_a_figure_fits_a_column_and_may_leave_its_caption(folder: Path, tmp_path: Path) -> None:
    figure = draw("sweep", folder, tmp_path / "sweep.pdf", width_inches=3.3, caption=False)
    assert figure.get_size_inches()[0] == pytest.approx(3.3)
    assert not figure.texts
    with pytest.raises(InputError, match="needs 2 to 30 inches"):
        draw("sweep", folder, width_inches=0.5)


def test_values_that_are_words_stand_side_by_side() -> None:
    for names in ({"fifo": "fifo", "a": "a"}, {True: "true", False: "false"}, {None: "none", 1: "1", 2: "2"}):
        words = made([{"verifiers.count": name, "value": 0.1} for name in names])
        (axes,) = draw("sweep", words, metric="wait_s").axes
        assert [tick.get_text() for tick in axes.get_xticklabels()] == list(names.values())


def test_metrics_that_a_figure_does_not_show_are_refused(swept: pd.DataFrame) -> None:
    with pytest.raises(InputError, match="--y goodness: the table has no such metric; it has throughput, "):
        draw("sweep", swept, metric="goodness")
    with pytest.raises(InputError, match="--y is for figure sweep"):
        draw("timeline", simulate(star()), metric="load")


def test_panels_show_all_of_their_lines_and_one_legend() -> None:
    cells = product(enumerate((1, 2)), enumerate((0.1, 0.2)), enumerate((0.5, 0.9)))
    keys = "verifiers.count", "link.latency_s", "acceptance.beta"
    rows = [dict(zip(keys, (N, link, beta), strict=True)) | {"value": 1.0 + i + j + 90 * k, "world": world}
            for (i, N), (j, link), (k, beta) in cells for world in ("sim", "analytic")]  # fmt: skip
    figure = sweep_figure(made(rows), "wait_s").figure
    assert [axes.get_ylim()[1] > 93 for axes in figure.axes] == [True, True]
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    with resized(figure, 3.9):
        (legend,) = figure.legends
        assert [text.get_text() for text in legend.get_texts()][-1] == "link.latency, ms = 200"


def test_a_third_key_has_panels_and_a_fourth_is_refused() -> None:
    keys, cells = ("a.b", "c.d", "e.f", "g.h"), product((1, 2), (1, 2), (8, 9), "xy")
    rows = made([dict(zip(keys, cell, strict=True)) for cell in cells])
    with pytest.raises(InputError, match=r"g\.h was varied, too"):
        sweep_figure(rows, "wait_s")
    by_third, by_second = (sweep_figure(rows, "wait_s", {"g.h": "x"}, panels) for panels in (False, True))
    assert "Cells with g.h = x." in by_third.caption
    assert [axes.get_title() for axes in by_third.figure.axes] == ["e.f = 8", "e.f = 9"]
    assert [axes.get_title() for axes in by_second.figure.axes] == ["c.d = 1", "c.d = 2"]


@pytest.mark.parametrize("meaning", METRICS, ids=lambda meaning: meaning.name)
def test_every_metric_has_a_label_with_its_unit(meaning: Meaning) -> None:
    assert scale_of(meaning.name, meaning.unit, 2.0)[0].endswith(f", {meaning.unit}")


def counters(**keys: Any) -> pd.DataFrame:
    """A measured sweep of N whose drafter's clock and power rise; targets have a clock only."""
    rows = [
        {"verifiers.count": N, "quantity": f"measured_{name}", "unit": unit, "value": value * N} | keys
        for name, unit, value in (
            ("drafter_clock_mhz", "MHz", 300.0), ("drafter_power_w", "W", 50.0), ("target_clock_mhz", "MHz", 100.0),
        )
        for N in TARGETS
    ]  # fmt: skip
    return made(rows)


def test_counters_of_devices_have_a_panel_each() -> None:
    figure = draw("devices", counters())
    clock, power = figure.axes
    assert [axes.get_title() for axes in (clock, power)] == ["graphics clock, MHz", "power, W"]
    heights = [line.get_ydata().tolist() for axes in (clock, power) for line in axes.lines if line.get_label() != "_"]
    assert all([value, 2 * value, 4 * value] in heights for value in (300.0, 100.0, 50.0))
    assert clock.get_xlabel() == "targets N"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["drafters' devices", "targets' devices"]


def test_counters_need_samples_and_one_key(swept: pd.DataFrame) -> None:
    with pytest.raises(InputError, match=r"^figure devices: no cell has samples; only runs on a device with counters"):
        draw("devices", swept)
    two = pd.concat([counters(**{"drafters.depth": depth}) for depth in DEPTHS])
    with pytest.raises(InputError, match=r"^figure devices: drafters.depth was varied, too; sweep one key"):
        draw("devices", two)


def test_marks_of_three_lines_have_their_colours_and_values() -> None:
    rows: list[dict[str, Any]] = []
    for (depth, knee), N in product(((3, 3.0), (5, 2.0), (8, 3.0)), (1, 2, 4)):
        cell = {"verifiers.count": N, "drafters.depth": depth}
        rows += [cell | {"quantity": "throughput"}]
        rows += [cell | {"quantity": "N_full", "world": "analytic", "value": knee}]
    figure = draw("sweep", made(rows))
    colours = [handle.get_color() for handle in figure.legends[-1].legend_handles]
    marks = [line for line in figure.axes[0].lines if list(line.get_xdata()) in ([2.0, 2.0], [3.0, 3.0])]
    shown = [(line.get_xdata()[0], line.get_color()) for line in marks]
    assert shown == [(2.0, colours[1]), (3.0, colours[0]), (3.0, colours[2])]
    assert marks_of(figure.axes[0]) == [["$N_{full}$", "2", "3"]]
    assert figure.axes[0].texts[1].get_color() == colours[1]


@pytest.mark.parametrize("width", [3.3, 7.0])
def test_numbers_above_a_figure_touch_nothing(width: float) -> None:
    rows: list[dict[str, Any]] = []
    for (beta, most), N in product(((0.6, 9.0), (0.75, 10.0), (0.8, 14.0), (0.9, 20.0)), range(1, 11)):
        cell = {"verifiers.count": N, "acceptance.beta": beta, "world": "analytic"}
        rows += [cell | {"quantity": "throughput", "world": "sim"}]
        rows += [cell | {"quantity": "N_full", "value": 4.0}, cell | {"quantity": "N_max", "value": most}]
    figure = draw("sweep", made(rows), width_inches=width, caption=False)
    figure.canvas.draw()
    (axes,) = figure.axes
    assert marks_of(axes)[1:] == [["$N_{max}$", "9", "10", "14,", "20 \N{RIGHTWARDS ARROW}"]]
    lines = [line.get_color() for line in axes.lines if line.get_linestyle() == "-" and len(line.get_xdata()) == 10]
    assert [text.get_color() for text in axes.texts[-4:]] == lines
    boxes = [artist.get_window_extent() for artist in (*axes.texts, *figure.legends)]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    legend = axes.get_legend() if width < 4 else figure.legends[-1]
    assert [text.get_text() for text in legend.get_texts()] == ["0.6", "0.75", "0.8", "0.9"]
    assert axes.get_position().width > 0.65, "names take little of a column"


def test_no_speculation_is_a_level_along_depths() -> None:
    values = {"throughput": 60.0, "throughput_per_target": 20.0, "standalone_tokens_per_s": 7.0}
    cells = [{"drafters.depth": d, "world": "analytic", "quantity": name, "value": value}
             for d in (1, 2) for name, value in values.items()]  # fmt: skip
    rows = drawn("sweep", made(cells)).rows
    assert rows[rows.world == "no speculation"].value.tolist() == [7.0 * 60.0 / 20.0]
    at_0 = made([{"verifiers.allocate.depth": d, "value": 3.0 - d} for d in (0, 1, 2)])
    (axes,) = draw("sweep", at_0, metric="wait_s").axes
    assert [3.0, 3.0] in [list(line.get_ydata()) for line in axes.lines]


def test_rows_are_what_the_artists_draw(swept: pd.DataFrame) -> None:
    figure, _, rows, labels = drawn("sweep", swept, metric="tpot_s")
    part = rows[(rows.line == "5") & (rows.world == "sim")]
    assert any(np.array_equal(line.get_xydata(), part[["x", "value"]]) for line in figure.axes[0].lines)
    assert labels == {"x": "targets N", "value": "TPOT, s", "line": "depth d", "panel": ""}


@pytest.mark.parametrize(("width", "ticks"), [(7.2, 12), (3.4, 6)])
def test_ticks_never_touch(width: float, ticks: int) -> None:
    figure = draw("sweep", made([{"a.b": 100 + n} for n in range(12)]), metric="wait_s", width_inches=width)
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_xticklabels() if label.get_text()]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    assert len(boxes) == ticks


def test_a_table_in_csv_is_read_as_its_folder(folder: Path, tmp_path: Path) -> None:
    pd.testing.assert_frame_equal(drawn("sweep", folder / "sweep.csv").rows, drawn("sweep", folder).rows)
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"x\.csv: no table as sweep\.csv of"):
        draw("sweep", tmp_path / "x.csv")


def test_the_legend_of_a_users_panel_is_the_users(swept: pd.DataFrame) -> None:
    figure, (panel, _) = pyplot.subplots(1, 2, figsize=(7, 3))
    drawn("sweep", swept, ax=panel)
    limits = panel.get_ylim()
    assert limits == draw("sweep", swept).axes[0].get_ylim()
    assert panel.get_legend() is None
    assert panel.legend().get_texts()[0].get_text() == "equations (8)-(11)"
    figure.draw_without_rendering()
    assert panel.get_ylim() == limits
    with pytest.raises(InputError, match=r"ax: is one panel, not 2; leave ax out, or draw Sweep\(CELLS\)"):
        drawn("sweep", swept.assign(**{"link.latency_s": 0.0}), panels=True, ax=panel)
    pyplot.close(figure)
