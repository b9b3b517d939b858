"""The answers of plan, on the terminal and in files: fleets for goals, methods by load, fleets of a budget."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specfleet.experiments.console.printing import print_notes, print_table, say
from specfleet.fleet.shown import number

if TYPE_CHECKING:
    from specfleet.experiments.plan.advice import FleetPlan, FleetRow
    from specfleet.experiments.plan.answer import Plan, PlannedFleet
    from specfleet.experiments.plan.methods import Cell, Methods

TABLED = 12  # rows of the table of fleets that is printed; all are in plan.json
SOURCE = "simulated; step times estimated from data sheets"


def write_answer(found: "Plan | Methods | FleetPlan", folder: Path) -> list[str]:
    """Write an answer (JSON), its figure, and where a fleet was chosen, chosen.toml beside profile.json.

    Returns the names of the files.
    """
    import msgspec

    from specfleet.experiments.draw import draw
    from specfleet.experiments.plan.answer import Plan
    from specfleet.experiments.plan.methods import Methods
    from specfleet.fleet.files import write_file
    from specfleet.fleet.scenario.named_files import absolute
    from specfleet.fleet.scenario.writing import scenario_lines
    from specfleet.fleet.times.profile import HardwareProfile, write_profile

    kind = "methods" if isinstance(found, Methods) else "plan"
    files = [f"{kind}.json"]
    write_file(folder / files[0], msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    if isinstance(found, Plan | Methods):
        files.append("methods.png" if isinstance(found, Methods) else "pareto.png")
        draw(kind, found, folder / files[-1])
    scenario = None if isinstance(found, Methods) else found.scenario
    if scenario is not None:
        assert isinstance(scenario.profile, HardwareProfile)
        write_profile(scenario.profile, folder / "profile.json")
        comments = ["Written by `specfleet plan`.", *found.lines]
        lines = scenario_lines(absolute(scenario), "profile.json", comments)
        write_file(folder / "chosen.toml", "\n".join(lines) + "\n")
        files += ["profile.json", "chosen.toml"]
    return files


def print_answer(found: "Plan | Methods | FleetPlan") -> None:
    """Print the lines of an answer, its tables, and its notes."""
    from specfleet.experiments.plan.answer import Plan
    from specfleet.experiments.plan.methods import Methods

    say("\n".join((found.question if isinstance(found, Plan) else found.title, *found.lines)))
    if isinstance(found, Plan):
        _print_fleets(found)
    elif isinstance(found, Methods):
        _print_methods(found)
    else:
        _print_budget(found)
    if not isinstance(found, Methods):
        print_notes(found.notes)


def _print_fleets(found: "Plan") -> None:
    simulated = [row for row in found.rows if row.method == "simulated"]
    shown = tabled(simulated)
    heading = ("fleet", "", "tokens/s", "a user", "TPOT P99, ms", f"{found.unit} / 10^6 tokens", "seeds")
    print_table(f"simulated; step times {found.basis}", heading, [_cells(row) for row in shown], texts=2)
    say(f"95 % ranges hold the simulation's chance and step times of each role off by {found.step_error:.0%}")
    by_equations, off = len(found.rows) - len(simulated), ""
    if found.approximation is not None:
        what = {"tokens_per_s": "tokens/s", "tpot_s": "time for a token"}[found.approximation.metric]
        missed = f"{found.approximation.mean:.1%} on average, {found.approximation.worst:.1%} at worst"
        off = f", approximate: their {what} is off by {missed} for fleets that were simulated"
    say(f"{len(simulated) - len(shown)} more fleets were simulated, {by_equations} judged by equations alone{off}")


def tabled(rows: "Sequence[PlannedFleet]") -> "list[PlannedFleet]":
    """Return the rows that are printed: the first ones, among them the first of each pair of places."""
    first = {(row.target_place, row.draft_place): place for place, row in reversed(list(enumerate(rows)))}
    places = sorted(set(first.values()))
    others = [place for place in range(len(rows)) if place not in places]
    return [rows[place] for place in sorted(places + others[: max(0, TABLED - len(places))])]


def _cells(row: "PlannedFleet") -> tuple[str, ...]:
    return (
        row.fleet, row.standing, number(row.tokens_per_s), f"{row.tokens_per_s_per_user:.3g}",
        "-" if row.tpot_p99_s is None else number(1e3 * row.tpot_p99_s), number(row.cost_per_million), str(row.seeds),
    )  # fmt: skip


def _print_methods(found: "Methods") -> None:
    columns = [f"{C} in flight" for C in found.in_flight]
    names = list(dict.fromkeys(cell.method for cell in found.cells))
    for title, heading, text in (
        (SOURCE, "tokens/s of a target (TPOT, TTFT in ms; depth)", _text),
        ("", f"{found.unit} for 10^6 tokens", _cost),
        ("", "KV cache that they need", _share),
    ):
        print_table(title, (heading, *columns), [(name, *map(text, found.of(name))) for name in names])


def _text(cell: "Cell") -> str:
    depth = f"; {cell.depth}" if cell.depth else ""
    several = f", {cell.targets} targets a drafter" if cell.targets > 1 else ""
    return f"{cell.tokens_per_s:.0f} ({1e3 * cell.tpot_s:.1f}, {1e3 * cell.ttft_s:.0f}{depth}{several})"


def _cost(cell: "Cell") -> str:
    return f"{cell.per_million:.3g} {cell.standing}"


def _share(cell: "Cell") -> str:
    return "no limit" if math.isnan(cell.kv_share) else f"{cell.kv_share:.0%}"


def _print_budget(found: "FleetPlan") -> None:
    heading = (
        "best fleet of each method", "targets", "depth", "", "tokens/s a user", "TPOT P99, ms", "TTFT P90, ms",
        "at once", "an hour", "10^6 tokens",
    )  # fmt: skip
    print_table(f"{SOURCE}; costs in {found.unit}", heading, [_fleet(row) for row in found.rows], texts=4)
    for command in found.commands:
        say(command)


def _fleet(row: "FleetRow") -> tuple[str, ...]:
    times = [number(1e3 * row.metrics[name].value) for name in ("tpot_p99_s", "ttft_p90_s")]
    return (
        row.method, row.targets, str(row.depth or "-"), row.standing, f"{1 / row.metrics['tpot_s'].value:.3g}", *times,
        f"{row.in_flight:.3g}", number(row.cost_per_hour), f"{row.per_million:.3g}",
    )  # fmt: skip
