"""Figures from results: what `specfleet figure` draws, from files or from what Python holds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
from matplotlib.axes import Axes

from specfleet.experiments.plan.answer import Plan
from specfleet.experiments.plan.goals import PER_USER
from specfleet.experiments.sweep.figure import devices_figure, sweep_figure
from specfleet.experiments.sweep.sweep import read_table, with_missing
from specfleet.figures import pareto, timeline
from specfleet.figures.style import NEW_FIGURE, Canvas, Drawn, add_caption, format_of, write
from specfleet.fleet.errors import InputError, OtherFormatError
from specfleet.fleet.inputs.text import read_json, shortened
from specfleet.fleet.records.run import Run, read_run

MIN_WIDTH, MAX_WIDTH = 2, 30
WORLDS = {"sim": "simulation", "engine": "engine"}


def draw(
    name: str,
    results: Any,
    out: str | Path | None = None,
    metric: str = "",
    *,
    panels: bool = False,
    width_inches: float | None = None,
    caption: bool = True,
    ax: Axes | None = None,
) -> Drawn:
    """Draw the figure of that name from results, or from the path of their file, as `specfleet.figure` describes it.

    Raises InputError for an unknown name, and for results that belong to another figure.
    """
    if name not in FIGURES:
        raise InputError(f"figure {shortened(name, quoted=False)}: unknown; allowed: {', '.join(FIGURES)}")
    if ax is not None and (out is not None or width_inches is not None):
        raise InputError("ax: its figure has a size and is written by savefig; give neither out nor width_inches")
    if out is not None:
        format_of(Path(out))
    source, kind, read, draw_of = FIGURES[name]
    content = read(Path(results)) if isinstance(results, (str, Path)) else results
    if not isinstance(content, kind):
        raise InputError(f"figure {name}: drawn from {source}, not from a {type(results).__name__}")
    if name != "sweep" and (metric or panels):
        raise InputError(f"figure {name}: shows one thing; --{'y' if metric else 'panels'} is for figure sweep")
    if width_inches is not None and not MIN_WIDTH <= width_inches <= MAX_WIDTH:
        raise InputError(f"--width {width_inches:g}: needs {MIN_WIDTH} to {MAX_WIDTH} inches")
    canvas = Canvas(width_inches, ax)
    more = {"metric": metric or "throughput", "panels": panels} if name == "sweep" else {}
    drawn = draw_of(content, canvas=canvas, **more)
    if caption and ax is None:
        add_caption(drawn.figure, drawn.caption)
    if out is not None:
        write(drawn.figure, Path(out))
    return drawn


def timeline_of(*runs: Run, most: int | None = None, canvas: Canvas = NEW_FIGURE) -> Drawn:
    """Draw the timelines of runs below each other, of the first `most` stations; InputError for a run without steps."""
    for run in runs:
        if not run.header.steps:
            raise InputError(f"a timeline needs steps, and of {run.header.engine} only answers are known")
    frames = {f"{run.header.scenario.name}, N = {run.header.scenario.verifiers.count}, {WORLDS[run.header.world]}":
              run.frame() for run in runs}  # fmt: skip
    figure = timeline.draw(frames, most=most, canvas=canvas)
    warnings = dict.fromkeys(_sentence(run.warning) for run in runs if run.warning)
    records = f"from the records of {', '.join(run.digest() for run in runs)}"
    steps = f"Steps of drafter and targets, about three iterations each, {records}."
    shown = [timeline.shown(frame, *timeline.middle(frame, 3.0)).assign(run=title) for title, frame in frames.items()]
    rows = pd.concat(shown)[["run", "station", "kind", "tag", "begin_s", "end_s"]]
    return Drawn(figure, " ".join([steps, *warnings]), rows, {"begin_s": "begin, s", "end_s": "end, s"})


def _sentence(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}."


def plan_of(plan: Plan, canvas: Canvas = NEW_FIGURE) -> Drawn:
    """Draw the fleets of a plan: what a user gets against what a unit of cost gives; of several loads, by method."""
    rows = pd.DataFrame([
        {"method": row.method, "load": row.load.partition(" ")[0], "standing": row.standing,
         pareto.USER: 1 / row.metrics["tpot_s"].value, pareto.VALUE: 1 / row.per_million}
        for row in (plan.rows if len(plan.loads) == 1 else plan.best())
    ])  # fmt: skip
    says = f"{plan.question}. {_sentence(plan.lines[0])} Simulated; step times: {plan.basis}."
    if len(plan.loads) > 1:
        figure, dots = pareto.draw_by_load(rows, plan.unit, canvas), "Numbers at the dots: the load."
    else:
        user = [goal.limit for goal in plan.goals if goal.unit == PER_USER]
        figure, dots = pareto.draw(rows, plan.unit, max(user, default=None), canvas), "Each dot is a fleet."
    return Drawn(figure, f"{says} {dots}", rows, pareto.labels(plan.unit))


def read_plan(path: Path) -> Plan:
    """Read a plan, where numbers that do not exist are null; InputError for anything else."""
    content = read_json(path)
    try:
        if isinstance(content, dict):
            content |= {part: with_missing(content[part]) for part in ("rows", "goals") if part in content}
        return msgspec.convert(content, Plan)
    except (msgspec.ValidationError, RecursionError) as error:
        raise OtherFormatError(f"{path}: not a plan ({error}); write one with plan -o FOLDER", path) from error


FIGURES: dict[str, tuple[str, type, Callable[[Path], Any], Callable[..., Drawn]]] = {
    "sweep": ("a sweep's folder or table", pd.DataFrame, read_table, sweep_figure),
    "devices": ("a sweep's folder or table", pd.DataFrame, read_table, devices_figure),
    "timeline": ("a run", Run, read_run, timeline_of),
    "plan": ("a plan", Plan, read_plan, plan_of),
}
"""What each figure is drawn from, in words and as a type, how that is read from a path, and how it is drawn."""
