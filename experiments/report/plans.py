"""The page of a plan: its lines, a figure, the best fleets, the goals, the commands."""

from collections.abc import Iterable, Iterator

from specfleet.experiments.draw import plan_of
from specfleet.experiments.plan.answer import Plan, Row
from specfleet.experiments.plan.lines import GIVEN
from specfleet.experiments.report.page import Grid, ReportPage
from specfleet.experiments.report.tables import facts_grid, scenario_grids, warned
from specfleet.fleet.scenario.resolve import resolve

SHOWN = {f"{name}, ms": (metric, 1e3) for name, metric in GIVEN.items()}
"""Times of a fleet by their headings, and what they are multiplied by."""


def answers(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the head and the text of each line of an answer."""
    for line in lines:
        head, _, text = line.partition(": ")
        yield head, text


def plan_page(plan: Plan) -> ReportPage:
    """Return the page of a plan."""
    grids = [_fleets(plan)]
    if plan.goals:
        headings = ("goal", "value", "low", "high", "limit", "unit", "state", "label")
        goals = [(goal.text, goal.value, goal.low, goal.high, goal.limit, goal.unit, goal.state, "simulated")
                 for goal in plan.goals]  # fmt: skip
        grids.append(Grid("Goals of the chosen fleet", headings, goals))
    if plan.rule is not None:
        units = {"S_s": "s", "Z_s": "s", "planned": "targets a drafter"}
        rule = [(name, float(getattr(plan.rule, name)), units.get(name, "targets"), "equations")
                for name in plan.rule.__struct_fields__ if name != "drafter"]  # fmt: skip
        grids.append(Grid("StarSD's rule of thumb", ("quantity", "value", "unit", "label"), rule))
    if plan.commands:
        commands = [(command,) for command in plan.commands]
        grids.append(Grid("Commands that start and measure the chosen fleet", ("command",), commands))
    if plan.scenario is not None:
        grids += scenario_grids(resolve(plan.scenario), plan.scenario, "The chosen fleet.")
    grids.append(facts_grid({"fleets simulated": str(len(plan.rows)), "step times": plan.basis, "costs in": plan.unit}))
    sources = f"Simulated; step times are {plan.basis}, acceptance as given.{warned(plan.basis)}"
    return ReportPage(plan.title, "a plan", tuple(answers(plan.lines)), sources, (plan_of(plan),), tuple(grids))


def _fleets(plan: Plan) -> Grid:
    headings = (
        "load", "method", "fleet", "standing", "depth", "in flight at a target", f"{plan.unit} an hour",
        f"{plan.unit} / 10^6 tokens", "tokens/s", "tokens/s a user", *SHOWN, "seeds", "label",
    )  # fmt: skip
    return Grid("Fleets", headings, [_cells(row) for row in plan.rows])


def _cells(row: Row) -> tuple[str | float | None, ...]:
    return (
        row.load, row.method, row.fleet, row.standing, float(row.depth), row.in_flight, row.cost_per_hour,
        row.per_million, row.tokens_per_s, 1 / row.metrics["tpot_s"].value,
        *(scale * row.metrics[name].value if name in row.metrics else None for name, scale in SHOWN.values()),
        float(row.seeds), "simulated",
    )  # fmt: skip
