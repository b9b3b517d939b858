"""Figures say what they show: axes with units, every source drawn, marks where they belong; traces open in a viewer."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from PIL import Image

import specfleet
from specfleet.experiments.draw import draw
from specfleet.experiments.report.page import NARROW_INCHES
from specfleet.figures import pareto, timeline
from specfleet.figures.style import Canvas, resized, save
from specfleet.fleet.errors import InputError
from specfleet.results import Result
from specfleet.sim.run import simulate
from tests.helpers.stars import star

DOCS = Path(__file__).parents[2] / "docs"
RUN = simulate(star())


def test_a_timeline_has_units_a_caption_and_its_legend_within(tmp_path: Path) -> None:
    figure = timeline.draw({"a star": RUN.frame()})
    assert figure.axes[-1].get_xlabel() == "time, ms"
    save(figure, tmp_path / "figure.png", "What was measured, and where.")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert any("What was measured" in text.get_text() for text in figure.texts)
    for legend in figure.legends:
        assert figure.bbox.containsx(legend.get_window_extent().x0)
        assert figure.bbox.containsx(legend.get_window_extent().x1)


def test_a_narrow_timeline_keeps_the_height_of_its_lanes() -> None:
    figure = timeline.draw({"a star": simulate(star(verifiers={"count": 1})).frame()})
    heights = []
    for width in (9.0, NARROW_INCHES):
        with resized(figure, width):
            figure.draw_without_rendering()
            heights.append(figure.axes[0].get_window_extent().height)
    assert heights[1] > 0.7 * heights[0]


def test_the_ring_of_the_chosen_fleet_is_whole() -> None:
    fleets = {
        "method": ["a", "b"],
        "standing": ["best", "5 % dearer"],
        pareto.USER: [2.0, 1.0],
        pareto.VALUE: [2.0, 1.0],
    }
    (axes,) = pareto.draw(pd.DataFrame(fleets), "$").axes
    assert [dots.get_clip_on() for dots in axes.collections if dots.get_label() == "chosen"] == [False]


def test_no_fleet_on_the_line_is_beaten() -> None:
    """Neither by a fleet as good for a user that is cheaper, nor by one as cheap that is better for a user."""
    table = pd.DataFrame({pareto.USER: [1.0, 2.0, 3.0, 4.0, 4.0], pareto.VALUE: [5.0, 5.0, 4.0, 2.0, 3.0]})
    assert pareto.frontier(table)[pareto.USER].tolist() == [2.0, 3.0, 4.0]
    assert pareto.frontier(table)[pareto.VALUE].tolist() == [5.0, 4.0, 3.0]


def test_text_of_a_figure_is_no_formula(tmp_path: Path) -> None:
    """A dollar sign in a name, or in a caption, is itself; so is one in a title or a tick that is set later."""
    figure = timeline.draw({"cost $x^$": RUN.frame()}, canvas=Canvas(3.3))
    figure.axes[0].set_xticks([0.0], ["$x^$"])
    for text in figure.legends[0].get_texts():
        text.set_text("cost $x^$")
    save(figure, tmp_path / "figure.png", "Of cost $x^$.")


def test_a_run_without_drafts_has_a_timeline() -> None:
    scenario = star(drafters={"count": 0}, profile={"decode": {"base_s": 4.0}}, workload={"requests": 4})
    plain = simulate(scenario).frame()
    figure = timeline.draw({"plain": plain})
    assert len(figure.axes) == 1
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["decode"]
    begin_s, end_s = timeline.middle(plain, 3.0)
    assert end_s - begin_s <= 4 * 4.0


def test_prompts_in_parts_have_a_timeline() -> None:
    target = {"max_num_seqs": 8, "max_num_batched_tokens": 48}
    parts = star(verifiers=target, drafters={"place": "target"}, workload={"prompt_tokens": 100})
    run = simulate(parts)
    assert (run.frame().kind == "chunk").any()
    assert len(timeline.draw({"parts": run.frame()}).axes) == 1


def test_a_draft_for_several_streams_has_no_number() -> None:
    shared = {"count": 1, "max_num_seqs": 8}
    run = simulate(star(verifiers=shared, drafters={"place": "target"}, workload={"streams": 3}))
    (axes,) = timeline.draw({"shared": run.frame()}).axes
    assert not axes.texts


def test_open_loads_show_the_iterations_of_the_streams_at_once() -> None:
    run = simulate(star(workload={"requests": 60, "arrivals": {"process": "poisson", "per_s": 0.02}}))
    steps = timeline.steps_of(run.frame())
    drafts = steps[steps.kind == "draft"]
    begin_s, end_s = timeline.middle(run.frame(), 3.0)
    assert drafts.begin_s.between(begin_s, end_s).sum() < 0.2 * len(drafts)


def test_the_timeline_draws_as_many_boxes_as_steps_it_shows() -> None:
    frame = RUN.frame()
    begin_s, end_s = timeline.middle(frame, 3.0)
    steps = timeline.steps_of(frame)
    shown = steps[(steps.end_s > begin_s) & (steps.begin_s < end_s)]
    assert set(shown.kind) == {"draft", "verify"}
    assert len(shown[shown.kind == "draft"]) >= 3 * 3


def test_the_stretch_of_a_timeline_is_the_same_for_a_few_of_its_lanes() -> None:
    frame = simulate(star(verifiers={"count": 12}, workload={"requests": 48})).frame()
    (whole,), (cut,) = (timeline.draw({"": frame}, most=most).axes for most in (None, 4))
    assert (len(whole.get_yticks()), len(cut.get_yticks())) == (13, 4)
    assert cut.get_xlim() == whole.get_xlim()


def test_of_a_repeated_message_the_first_is_drawn() -> None:
    frame = RUN.frame()
    again = frame[frame.event == "draft-request"].assign(time_s=lambda rows: rows.time_s + 0.1)
    repeated = pd.concat([frame, again]).sort_values("time_s", kind="stable")
    (once,), (twice,) = (timeline.draw({"": rows}).axes for rows in (frame, repeated))
    assert boxes_of(twice) == boxes_of(once)


def boxes_of(axes: Axes) -> list[list[float]]:
    """Return the corners of all boxes."""
    return [path.get_extents().extents.tolist() for bars in axes.collections for path in bars.get_paths()]


def test_a_folder_without_a_sweep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no sweep\.json; give a folder of `specfleet sweep"):
        draw("sweep", tmp_path, tmp_path / "x.png")


def test_the_readme_figure_is_that_of_its_table(tmp_path: Path) -> None:
    """The same pixels, but for rounding, with the matplotlib that drew it; the same data with any."""
    drawn = draw("sweep", DOCS / "throughput-vs-n.csv", tmp_path / "again.png", panels=True)
    with Image.open(DOCS / "throughput-vs-n.png") as committed, Image.open(tmp_path / "again.png") as again:
        if committed.info["Software"] == again.info["Software"]:
            assert committed.size == again.size
            assert np.mean(np.abs(np.subtract(committed, again, dtype=float))) < 0.5  # of 255
    table = pd.read_csv(DOCS / "throughput-vs-n.csv")
    table = table[table.quantity == "throughput"]
    heights = [value for axes in drawn.figure.axes for line in axes.lines for value in line.get_ydata()]
    assert len(table) > 20
    assert set(table.value) <= set(heights)
    assert set(table[table.world == "engine"].value) == set(drawn.rows[drawn.rows.world == "engine"].value)


def test_a_users_own_panel_takes_a_figure() -> None:
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(7, 2.8))
    assert specfleet.figure("timeline", Result(simulate(star(verifiers={"count": 9}))), ax=right) is figure
    assert right.legend().get_window_extent().width < right.get_window_extent().width
    assert (right.get_xlabel(), left.get_xlabel()) == ("time, ms", "")
    assert "verify" in [text.get_text() for text in right.legend().get_texts()]
    assert not figure.texts
    with pytest.raises(InputError, match="ax: its figure has a size"):
        draw("timeline", RUN, "x.png", ax=left)
    pyplot.close(figure)


def test_a_legend_names_only_what_is_drawn() -> None:
    alone = simulate(star(verifiers={"count": 1}))
    names = [text.get_text() for text in timeline.draw({"": alone.frame()}).legends[0].get_texts()]
    assert names == ["draft", "verify", timeline.IDLE_LABEL]  # nobody waits for an idle drafter


def test_short_waits_are_wide_enough_to_see() -> None:
    frame = RUN.frame().copy()
    begun = frame[(frame.station == "drafter") & (frame.event == "start")].drop_duplicates(timeline.ROUND)
    asked = begun.assign(event="draft-request", time_s=begun.time_s - 1e-6)
    frame = pd.concat([frame[frame.event != "draft-request"], asked]).sort_values("time_s", kind="stable")
    (axes,) = timeline.draw({"": frame}).axes
    low, high = axes.get_xlim()
    waits = [bars for bars in axes.collections if bars.get_facecolor()[0] == pytest.approx(to_rgba(timeline.WAITING))]
    assert waits
    widths = [path.get_extents().width for bars in waits for path in bars.get_paths()]
    assert min(widths) == pytest.approx(timeline.LEAST * (high - low))


def test_fonts_are_embedded_as_truetype(tmp_path: Path) -> None:
    draw("timeline", RUN, tmp_path / "figure.pdf")
    content = (tmp_path / "figure.pdf").read_bytes()
    assert b"/FontFile2" in content
    assert b"/Type3" not in content
