"""Figures of sweeps: any metric along any varied key, and differences between lines seed by seed."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from typer.testing import CliRunner

from experiments.draw import draw
from experiments.sweep.figure import answer_of, more_is_better
from experiments.sweep.sweep import sweep, table
from experiments.sweep.table import SweepPlot, completed, in_numbers, read_sweep
from figures.front import unbeaten
from figures.labels import scale_of, spread
from fleet.errors import InputError
from fleet.records.metrics.glossary import METRICS, Meaning, meanings
from fleet.records.metrics.intervals import student_t_interval
from specfleet.cli.entry import app
from specfleet.results import sweep_question
from tests.helpers.stars import repeatable, star

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
    return read_sweep(folder)


def texts_of(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def made(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """A sweep's table with a metric `wait_s` and what else rows say."""
    base = {"world": "sim", "quantity": "wait_s", "unit": "s", "value": 1.0, "low": np.nan, "high": np.nan}
    return pd.DataFrame([base | row for row in rows])


def test_lines_carry_their_names_and_axes_their_units(swept: pd.DataFrame) -> None:
    figure = draw("sweep", swept, plot=sweep_question(x="verifiers.count", y="tpot_s", lines="drafters.depth"))
    (axes,) = figure.axes
    assert {"2", "5", "drafters.depth"} <= set(texts_of(figure))
    assert not figure.legends
    assert not axes.get_legend()
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("verifiers.count, targets", "tpot, s")
    assert "time for each token after a request's first one, the mean" in figure.texts[0].get_text().replace("\n", " ")


def test_points_and_bands_are_those_of_the_table(swept: pd.DataFrame) -> None:
    figure = draw("sweep", swept, plot=SweepPlot(x="verifiers.count", y="throughput", where={"drafters.depth": "5"}))
    drawn = [line.get_ydata() for line in figure.axes[0].lines if line.get_linestyle() == "-" and len(line.get_xdata())]
    results = swept[(swept.quantity == "throughput") & (swept.world == "sim") & (swept["drafters.depth"] == 5)]
    assert any(np.allclose(line, results.value) for line in drawn if len(line) == len(TARGETS))


def test_differences_are_paired_by_seed(folder: Path) -> None:
    """What both lines share drops out: the interval is that of the differences, not of two means."""
    results = {tuple(one.cell.values()): one for one in sweep(CELLS, folder, seeds=3)}
    found = answer_of(read_sweep(folder), SweepPlot(y="throughput", against="2"))
    assert len(found) == len(TARGETS)
    for row in found.itertuples():
        ours, theirs = (np.array(results[row.x, depth].by_seed["throughput"]) for depth in (5, 2))
        assert row.value == pytest.approx((ours - theirs).mean(), rel=1e-6)
        assert (row.low, row.high) == pytest.approx(student_t_interval(ours - theirs), rel=1e-6)


def test_a_constant_difference_has_no_uncertainty() -> None:
    rows = [{"a.b": 1, "c.d": d, "by_seed": f"{1 + d} {7 + d} {30 + d}", "value": 13.0 + d} for d in (0, 2)]
    (row,) = answer_of(made(rows), SweepPlot(y="wait_s", x="b", lines="d", against="0")).itertuples()
    assert (row.value, row.low, row.high) == pytest.approx((2, 2, 2))


def test_a_figure_with_differences_has_a_second_panel(swept: pd.DataFrame) -> None:
    figure = draw("sweep", swept, plot=SweepPlot(y="tpot_s", against="2"))
    assert [axes.get_ylabel() for axes in figure.axes] == ["tpot, s", "less that of\ndrafters.depth = 2, s"]


def test_quantities_are_found_and_placed_in_any_unit() -> None:
    texts = made([{"link.latency_s": text, "value": 0.1} for text in ("1ms", "20ms", "100ms")])
    assert in_numbers(texts)["link.latency_s"].tolist() == [0.001, 0.02, 0.1]
    (axes,) = draw("sweep", texts, plot=sweep_question(y="wait_s")).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("link.latency, ms", "wait, ms")
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "20", "100"]
    table = made([{"link.latency_s": text, "a.b": n} for text in ("1ms", "20ms") for n in (1, 2)])
    assert draw("sweep", table, plot=SweepPlot(x="a.b", y="wait_s", where={"latency_s": "0.02"}))


def test_values_that_are_words_stand_side_by_side() -> None:
    words = made([{"drafters.order": name, "value": 0.1} for name in ("fifo", "priority")])
    (axes,) = draw("sweep", words, plot=SweepPlot(y="wait_s")).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["fifo", "priority"]


def test_a_heat_map_writes_every_value_and_frames_the_best(swept: pd.DataFrame) -> None:
    figure = draw("sweep", swept, plot=SweepPlot(y="throughput", kind="heat"))
    results = swept[(swept.quantity == "throughput") & (swept.world == "sim")]
    assert sorted(texts_of(figure)) == sorted(f"{value:.3g}" for value in results.value)
    (frame,) = figure.axes[0].patches
    best = results.loc[results.value.idxmax()]
    place = (frame.get_x() + 0.5, frame.get_y() + 0.5)
    assert place == (TARGETS.index(best["verifiers.count"]), DEPTHS.index(best["drafters.depth"]))


def test_two_metrics_mark_the_pareto_front(swept: pd.DataFrame) -> None:
    figure = draw("sweep", swept, plot=SweepPlot(x="tpot_s", y="throughput", kind="pareto"))
    assert figure.axes[0].get_xlabel() == "tpot, s (less is better)"
    best = swept[(swept.quantity == "throughput") & (swept.world == "sim")].sort_values("value").iloc[-1]
    assert f"count {best['verifiers.count']}, depth {best['drafters.depth']}" in texts_of(figure)


@pytest.mark.parametrize(
    ("plot", "said"),
    [
        (SweepPlot(y="goodness"), "--y goodness: the table has no such metric; it has throughput, "),
        (SweepPlot(x="drafters.width"), "no such varied key; it has verifiers.count, drafters.depth"),
        (SweepPlot(x="throughput", y="throughput", kind="heat"), "no such varied key"),
        (SweepPlot(lines="verifiers.count", x="verifiers.count"), "is along x already; varied: verifiers.count"),
        (SweepPlot(against="7"), "--against 7: no such line; there are 2, 5"),
        (SweepPlot(against="2", kind="heat"), "--against is for --kind lines"),
        (SweepPlot(where={"drafters.depth": "9"}), "--where drafters.depth=9: no cell has it; values: 2, 5"),
        (SweepPlot(where={"seed": "9"}), "--where seed: the table has no such varied key"),
        (SweepPlot(x="load", y="loud", kind="pareto"), "--y loud: the table has no such metric"),
        (SweepPlot(x="lord", y="load", kind="pareto"), "--x lord: the table has no such metric"),
    ],
)
def test_missing_columns_are_refused_with_those_allowed(swept: pd.DataFrame, plot: SweepPlot, said: str) -> None:
    with pytest.raises(InputError) as refused:
        draw("sweep", swept, plot=plot)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_third_key_that_varies_wants_a_value() -> None:
    rows = made([{"a.b": a, "c.d": c, "e.f": e} for a in (1, 2) for c in (1, 2) for e in (8, 9)])
    with pytest.raises(InputError, match=r"e\.f was varied, too; add --where e\.f=VALUE; values: .*8, 9"):
        completed(rows, SweepPlot(y="wait_s"))
    assert completed(rows, SweepPlot(y="wait_s", where={"f": "8"})).lines == "c.d"


def test_differences_want_two_seeds(tmp_path: Path) -> None:
    swept = table(sweep(CELLS[:4], tmp_path, seeds=1))
    with pytest.raises(InputError, match="run the sweep with --seeds 2 or more"):
        draw("sweep", swept, plot=SweepPlot(against="2"))


def test_other_figures_show_one_thing_and_say_so(swept: pd.DataFrame) -> None:
    with pytest.raises(InputError, match="--x, --y, --lines and the like are for figure sweep"):
        draw("throughput", swept, plot=SweepPlot(y="load"))


def test_the_command_draws_and_prints_the_differences(folder: Path, tmp_path: Path) -> None:
    words = ["figure", "sweep", str(folder), "--y", "tpot_s", "--against", "2", "-o", str(tmp_path / "a.png")]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0, ended.output
    assert "verifiers.count = 4, drafters.depth = 5" in ended.output
    assert (tmp_path / "a.png").stat().st_size > 10_000


@repeatable
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12).map(sorted))
def test_names_keep_their_order_and_never_touch(heights: list[float]) -> None:
    places = spread(heights, 0.05)
    assert all(upper - lower >= 0.05 - 1e-9 for lower, upper in pairwise(places))
    assert np.mean(places) == pytest.approx(np.mean(heights))


@repeatable
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12), st.booleans(), st.booleans())
def test_nothing_beats_what_is_joined_and_something_beats_the_rest(
    dots: list[tuple[int, int]], more_x: bool, more_y: bool
) -> None:
    signs = np.array([1 if more_x else -1, 1 if more_y else -1])
    kept = unbeaten(pd.DataFrame(dots, columns=["x", "y"]), (more_x, more_y))
    for dot, keeps in zip(dots, kept, strict=True):
        beaten = any(
            (np.array(other) * signs >= np.array(dot) * signs).all() and tuple(other) != tuple(dot) for other in dots
        )
        assert keeps == (not beaten)


@pytest.mark.parametrize("meaning", METRICS, ids=lambda meaning: meaning.name)
def test_every_metric_has_a_label_with_its_unit(meaning: Meaning) -> None:
    assert scale_of(meaning.name, meaning.unit, 2.0).label.endswith(f", {meaning.unit}")


def test_less_is_better_for_times_power_memory_and_faults() -> None:
    units = {name: meaning.unit for name, meaning in meanings().items()}
    worse = {name for name, unit in units.items() if not more_is_better(name, unit)}
    assert {"tpot_p99_s", "wait_s", "power_w", "energy_j_per_token", "request_bytes", "given_up"} <= worse
    assert not {"throughput", "rounds_per_s", "acceptance_rate", "load"} & worse
