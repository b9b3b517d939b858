"""The page of a demo: how far predictions were off, throughput of both worlds against N, every quantity compared."""

from collections.abc import Sequence

from experiments.compare import Comparison, Error, Row
from experiments.report.axes import axis_of
from experiments.report.marks import Chart, Dot, Series, colour_of
from experiments.report.page import Cell, Grid, Page, grid
from experiments.report.settled import facts_grid, fleet_grid, profile_grid
from experiments.summary import summary_of
from experiments.terminal.printing import case_text
from fleet.records.run import RunHeader
from fleet.times.profile import HardwareProfile

JUDGED = ("throughput", "rounds_per_s")


def demo_page(comparison: Comparison, profile: HardwareProfile, header: RunHeader | None) -> Page:
    """Return the page of a demo; `header`: that of one of its runs, whose scenario is shown."""
    answer = [("blind", "mean error of the prediction: " + ", ".join(
        f"{name} {comparison.mape[name]:.1%}" for name in JUDGED if name in comparison.mape))]  # fmt: skip
    for quantity in JUDGED:
        summary = summary_of([row for row in comparison.rows if row.quantity == quantity])
        answer += [(quantity, line) for line in summary.lines()] if summary is not None else []
    grids = [_rows(comparison)]
    if header is not None:
        grids.append(fleet_grid(header.fleet, "Of one of its runs; others differ by their targets and N."))
    grids += [profile_grid(profile), facts_grid({"profile": f"{profile.name}, digest {profile.digest()}",
                                                 "profile that predicted": comparison.profile_digest,
                                                 **profile.provenance})]  # fmt: skip
    known = (
        "Engine: measured, runs on this host. Simulation: from a profile that was calibrated on the same host before "
        "the runs, on other prompts; its step times are fitted."
    )
    charts = [chart for quantity in JUDGED if (chart := _against_N(comparison.rows, quantity)) is not None]
    return Page("Simulation against engine", "a demo", tuple(answer), known, tuple(charts), tuple(grids))


def _against_N(rows: Sequence[Row], quantity: str) -> Chart | None:
    """Draw a quantity against N in both worlds, a colour a kind of target: the engine's dots, the simulator's lines."""
    told = [row for row in rows if row.quantity == quantity and isinstance(row.case.get("N"), int)]
    kinds = list(dict.fromkeys(str(row.case.get("targets", "")) for row in told))
    series = []
    for number, kind in enumerate(kinds):
        own = sorted((row for row in told if str(row.case.get("targets", "")) == kind), key=lambda row: row.case["N"])
        colour = colour_of(number)
        lines = tuple(Dot(row.case["N"], row.sim, _tip(row, "simulated", row.sim)) for row in own)
        dots = tuple(
            Dot(row.case["N"], row.engine, _tip(row, "measured", row.engine),
                min(row.runs, default=row.engine), max(row.runs, default=row.engine))
            for row in own
        )  # fmt: skip
        series += [Series("", colour, lines, True, True), Series(kind, colour, dots, False)]
    if not series:
        return None
    values = [dot.y for one in series for dot in one.dots]
    unit = "tokens/s" if quantity == "throughput" else "rounds/s"
    caption = (
        "Dots: the engine, measured, from the least to the largest of its runs. Dashed: simulated, before the runs."
    )
    x, y = axis_of("targets N", [row.case["N"] for row in told]), axis_of(unit, values, (), True)
    return Chart(f"{quantity} against N", x, y, caption, tuple(series))


def _tip(row: Row, label: str, value: float) -> str:
    return f"{case_text(row.case)}\n{label}: {value:.4g}\nerror of the simulation {row.error:+.1%}"


def _rows(comparison: Comparison) -> Grid:
    rows: list[tuple[Cell, ...]] = [
        (
            row.quantity, case_text(row.case), row.sim, "simulated", row.engine, "measured", 100 * row.error,
            _percent(row.mechanism), None if row.host is None else 100 * row.host.absolute,
        )
        for row in comparison.rows
    ]  # fmt: skip
    headings = (
        "quantity", "case", "simulation", "label", "engine", "label", "error, %", "mechanism, %", "host, %",
    )  # fmt: skip
    note = "Mechanism: what is left with the run's steps and acceptance played back. Host: runs against each other."
    return grid("Every quantity", headings, rows, note)


def _percent(error: Error | None) -> float | None:
    return None if error is None else 100 * error.value
