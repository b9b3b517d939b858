"""The page of a plan: the answer, what users get against cost, the goals, all fleets."""

from experiments.plan.answer import Plan
from experiments.report.axes import axis_of
from experiments.report.marks import Chart, Dot, Series
from experiments.report.page import Cell, Grid, Page, grid
from experiments.report.settled import facts_grid, fleet_grid, profile_grid
from fleet.scenario.settle import settle
from fleet.times.labels import warning_of
from fleet.times.profile import HardwareProfile

KINDS = {"drafters apart": "#0072B2", "co-located": "#E69F00", "no speculation": "#444444"}


def plan_page(plan: Plan) -> Page:
    """Return the page of a plan."""
    answer = tuple((head, text) for head, _, text in (line.partition(": ") for line in plan.lines))
    grids = [_goals(plan)] if plan.goals else []
    grids += [_fleets(plan), _metrics(plan)]
    if plan.rule is not None:
        units = {"S_s": "s", "Z_s": "s", "planned": "targets a drafter"}
        rule = [(name, float(getattr(plan.rule, name)), units.get(name, "targets"), "equations")
                for name in plan.rule.__struct_fields__]  # fmt: skip
        grids.append(grid("The paper's rule of thumb", ("quantity", "value", "unit", "label"), rule))
    if plan.scenario is not None:
        grids.append(fleet_grid(settle(plan.scenario), "The chosen fleet."))
        if isinstance(plan.scenario.profile, HardwareProfile):
            grids.append(profile_grid(plan.scenario.profile))
    facts = {
        "fleets looked at by equations": str(plan.screened),
        "simulations": str(plan.simulations),
        "step times": plan.basis,
        "step times of each role may be off by": f"{plan.step_error:.0%}, at 95 %",
        "costs in": plan.unit,
    }
    warning = warning_of(plan.basis)
    known = (
        f"Simulated; step times are {plan.basis}. Ranges are 95 % and hold the simulation's chance and step times of "
        f"each role off by {plan.step_error:.0%}." + (f" Mind: {warning}." if warning else "")
    )
    return Page(plan.question, "a plan", answer, known, (_pareto(plan),), (*grids, facts_grid(facts)))


def _pareto(plan: Plan) -> Chart:
    series = []
    for known in ("equations", "simulated"):
        for kind, colour in KINDS.items():
            rows = [row for row in plan.rows if (row.kind, row.known) == (kind, known) and row.cost_per_million > 0]
            dots = tuple(
                Dot(
                    row.tokens_per_s_per_user, 1e6 / row.cost_per_million,
                    f"{row.fleet}\n{row.tokens_per_s_per_user:.4g} tokens/s a user\n"
                    f"{row.cost_per_million:.4g} {plan.unit} a million tokens\n{row.standing}, {known}",
                )
                for row in rows
            )  # fmt: skip
            if dots:
                series.append(Series(f"{kind}, {known}", colour, dots, False, faint=known == "equations"))
    chosen = [row for row in plan.rows if row.standing == "chosen"]
    rings = tuple(Dot(row.tokens_per_s_per_user, 1e6 / row.cost_per_million, "") for row in chosen)
    series.append(Series("chosen", "#D55E00", rings, False, ring=True))
    dots = [dot for one in series for dot in one.dots]
    least = max((1 / goal.limit for goal in plan.goals if goal.metric.startswith("tpot_")), default=None)
    wanted = f" A user is to get {least:.4g} tokens/s or more." if least is not None else ""
    return Chart(
        "What a user gets, and what a unit of cost gives",
        axis_of("tokens/s a user", [dot.x for dot in dots], from_zero=True),
        axis_of(f"tokens for a {plan.unit.removesuffix('s')}", [dot.y for dot in dots], (), True),
        f"A dot a fleet; right and up is better. Fleets by equations (pale) are approximate.{wanted}",
        tuple(series),
    )


def _goals(plan: Plan) -> Grid:
    rows: list[tuple[Cell, ...]] = [
        (goal.text, goal.range.value, goal.range.low, goal.range.high, goal.limit, goal.state, "simulated")
        for goal in plan.goals
    ]
    return grid("Goals of the chosen fleet", ("goal", "value", "low", "high", "limit", "state", "label"), rows)


def _metrics(plan: Plan) -> Grid:
    rows = [(name, one.value, one.low, one.high, "simulated") for name, one in plan.metrics.items()]
    return grid("Metrics of the chosen fleet", ("metric", "value", "low", "high", "label"), rows)


def _fleets(plan: Plan) -> Grid:
    rows = [
        (
            row.fleet, row.standing, row.tokens_per_s, row.tokens_per_s_per_user,
            None if row.tpot_p99_s is None else 1e3 * row.tpot_p99_s, row.cost_per_hour, row.cost_per_million,
            float(row.seeds), row.known,
        )
        for row in plan.rows
    ]  # fmt: skip
    headings = (
        "fleet", "standing", "tokens/s", "tokens/s a user", "TPOT P99, ms", f"{plan.unit} an hour",
        f"{plan.unit} / 10^6 tokens", "seeds", "label",
    )  # fmt: skip
    return grid("Fleets", headings, rows)
