"""The pages of a plan by devices, and of the methods of a target."""

from collections.abc import Iterable, Iterator

from specfleet.experiments.draw import methods_of
from specfleet.experiments.plan.advice import GIVEN, FleetPlan
from specfleet.experiments.plan.methods import Methods
from specfleet.experiments.report.page import Grid, ReportPage

ESTIMATED = "Simulated; step times are estimated from data sheets, acceptance as given."
SHOWN = {"tokens/s": ("throughput", 1.0)} | {f"{name}, ms": (metric, 1e3) for name, metric in GIVEN.items()}
"""Metrics of a fleet by their headings, and what they are multiplied by."""


def answers(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the head and the text of each line of an answer."""
    for line in lines:
        head, _, text = line.partition(": ")
        yield head, text


def fleet_page(plan: FleetPlan) -> ReportPage:
    """Return the page of a plan by devices."""
    rows = [
        (
            row.method, row.fleet, row.standing, float(row.depth), row.in_flight, row.cost_per_hour, row.per_million,
            *(scale * row.metrics[name].value if name in row.metrics else None for name, scale in SHOWN.values()),
            "simulated",
        )
        for row in plan.rows
    ]  # fmt: skip
    headings = (
        "method", "fleet", "standing", "depth", "in flight at a target", f"{plan.unit} an hour",
        f"{plan.unit} / 10^6 tokens", *SHOWN, "label",
    )  # fmt: skip
    commands = Grid("Commands that start and measure the chosen fleet", ("command",), [(one,) for one in plan.commands])
    grids = (Grid("The best fleet of each method", headings, rows), commands)
    return ReportPage(plan.title, "a plan", tuple(answers(plan.lines)), ESTIMATED, (), grids)


def methods_page(found: Methods) -> ReportPage:
    """Return the page of the methods of a target."""
    rows = [
        (
            cell.method, float(cell.in_flight), cell.standing, float(cell.depth), cell.tokens_per_s, 1e3 * cell.tpot_s,
            1e3 * cell.ttft_s, cell.per_million, cell.devices, "simulated",
        )
        for cell in found.cells
    ]  # fmt: skip
    headings = (
        "method", "in flight", "standing", "depth", "tokens/s of a target", "TPOT, ms", "TTFT, ms",
        f"{found.unit} / 10^6 tokens", "devices", "label",
    )  # fmt: skip
    grids = (Grid("Methods by requests in flight", headings, rows),)
    return ReportPage(
        found.title, "methods of a target", tuple(answers(found.lines)), ESTIMATED, (methods_of(found),), grids
    )
