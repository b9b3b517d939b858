"""The page of a run, simulated or measured: five lines, tokens over time, a stretch of its timeline, all metrics."""

from collections.abc import Iterator

import numpy as np

from experiments.report.axes import axis_of
from experiments.report.marks import Box, Chart, Dot, Series, colour_of
from experiments.report.page import Cell, Grid, Page, grid
from experiments.report.settled import fleet_grid, known_as, metrics_grid, profile_grid, run_grid
from experiments.terminal.headline import headline
from figures.style import STEP_COLOURS
from figures.timeline import lanes, middle, steps_of
from fleet.records.metrics import assess, measure_targets
from fleet.records.run import Run
from fleet.records.tables import commits_of
from fleet.times.profile import HardwareProfile

SLICES = 40  # of the run's time
ITERATIONS = 3.0
MOST_LANES = 24
MOST_TARGETS = 500


def run_page(run: Run) -> Page:
    """Return the page of a run."""
    header = run.header
    metrics, overload = assess(run)
    label = "measured" if header.world == "engine" else "simulated"
    lines = [(line.name, line.text) for line in headline(metrics)]
    if overload is not None:
        lines.insert(0, ("overload", f"{overload.line()}: no steady state, no intervals"))
    charts = [over_time(run, label)]
    stretch = timeline(run, label)
    charts += [stretch] if stretch is not None else []
    grids = [metrics_grid(metrics, label), targets_grid(run, label), fleet_grid(header.fleet)]
    if isinstance(header.scenario.profile, HardwareProfile):
        grids.append(profile_grid(header.scenario.profile))
    title = f"{header.scenario.name}: {header.fleet.verifiers.count} targets, {header.fleet.drafters.count} drafters"
    known = known_as(header.world, header.fleet.basis)
    kind = "a measured run" if header.world == "engine" else "a simulated run"
    return Page(title, kind, tuple(lines), known, tuple(charts), (*grids, run_grid(header, run.digest())))


def over_time(run: Run, label: str) -> Chart:
    """Draw how many tokens a second all targets committed, over the run's time."""
    commits = commits_of(run.columns())
    edges = np.linspace(0.0, float(commits.time_s.max()), SLICES + 1)
    sums, _ = np.histogram(commits.time_s, edges, weights=commits.committed)
    rates, middles = sums / np.diff(edges), (edges[1:] + edges[:-1]) / 2
    dots = tuple(
        Dot(float(time_s), float(rate), f"at {time_s:.4g} s: {rate:.4g} tokens/s")
        for time_s, rate in zip(middles, rates, strict=True)
    )
    caption = (
        f"Tokens that all targets committed in each of {SLICES} slices of {edges[1]:.3g} s ({label}). Metrics count "
        f"from {run.header.fleet.measure.warm_up_share:.0%} of the time on, until the first stream has nothing left."
    )
    x, y = axis_of("time, s", [0.0, float(edges[-1])], from_zero=True), axis_of("tokens/s", rates.tolist(), (), True)
    return Chart("Throughput over time", x, y, caption, (Series("", colour_of(0), dots),))


def timeline(run: Run, label: str) -> Chart | None:
    """Draw what the stations did in a stretch from the middle of the run; None where they did nothing in turn."""
    frame = run.frame()
    steps, stations = steps_of(frame), lanes(frame)[:MOST_LANES]
    if steps.empty or not (steps.kind == "draft").any():
        return None
    begin_s, end_s = middle(frame, ITERATIONS)
    steps = steps[(steps.end_s > begin_s) & (steps.begin_s < end_s) & steps.station.isin(stations)]
    names = [name.replace(".", " ").replace("verifier", "target") for name in stations]
    boxes = tuple(
        Box(
            len(names) - 1 - stations.index(step.station),
            1e3 * max(step.begin_s - begin_s, 0.0), 1e3 * (min(step.end_s, end_s) - begin_s),
            STEP_COLOURS[step.kind],
            f"{names[stations.index(step.station)]}: {step.kind} for target {step.tag + 1}\n"
            f"{1e3 * (step.end_s - step.begin_s):.4g} ms, from {step.begin_s:.6g} s on",
        )
        for step in steps.itertuples()
    )  # fmt: skip
    kinds = tuple((kind, colour) for kind, colour in STEP_COLOURS.items() if (steps.kind == kind).any())
    caption = f"Steps of the stations, about {ITERATIONS:g} iterations from the middle of the run ({label})."
    x = axis_of(f"time since {begin_s:.4g} s, ms", [0.0, 1e3 * (end_s - begin_s)], from_zero=True)
    y = axis_of("", [], list(reversed(names)))
    return Chart("Timeline", x, y, caption, boxes=boxes, keys=kinds)


def targets_grid(run: Run, label: str) -> Grid:
    """Return what each target got."""
    rows = measure_targets(run).frame()
    headings = [UNITS.get(name, name) for name in rows.columns]
    return grid("Each target", [*headings, "label"], list(_cells(rows.to_numpy().tolist(), label)))


UNITS = {
    "tag": "target", "throughput": "throughput, tokens/s", "rounds_per_s": "rounds/s", "wait_s": "wait, s",
    "return_s": "return, s", "acceptance_length": "accepted, tokens/round",
}  # fmt: skip


def _cells(rows: list[list[float]], label: str) -> Iterator[tuple[Cell, ...]]:
    for tag, *values in rows[:MOST_TARGETS]:
        yield (float(tag + 1), *(float(value) for value in values), label)
