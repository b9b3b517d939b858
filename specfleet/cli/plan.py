"""plan: which fleet to build, answered in five lines, a table, a figure, and scenarios that can be run."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.console.printing import print_json, print_table, progress, remark
from fleet.errors import InputError
from fleet.shown import number
from specfleet.cli.methods import plan_budget, plan_methods, write_chosen
from specfleet.cli.options import AsJson, Changes, folder_option, settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.plan.answer import Plan, PlannedFleet

FORM = "MODEL@DEVICE[:PRECISION][:kv-fp8], or MODEL@4xDEVICE for tensor parallel 4."
TABLED = 12  # rows of the table that is printed; all are in plan.json


def plan(
    scenario: Annotated[
        Path,
        typer.Argument(metavar="SCENARIO", help="Load, link, acceptance, policies: a file (TOML), or a shipped name."),
    ] = Path("star"),
    target: Annotated[
        list[str] | None, typer.Option(metavar="PLACE", help=f"The target: {FORM} Several: one is chosen.")
    ] = None,
    draft: Annotated[
        list[str] | None, typer.Option(metavar="PLACE", help=f"The drafter: {FORM} Several: one is chosen.")
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(
            metavar="BUDGET",
            help="The best fleet of these devices, for each method of speculation: 8xh100,4xl40s. --target is then a "
            "MODEL or MODEL:PRECISION, and --draft also takes heads, models without @DEVICE, and lookup.",
        ),
    ] = None,
    in_flight: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS",
            help="Compare methods for one target with so many requests in flight: 1,8,32,64; --draft as above. With "
            "--devices one number, over all targets.",
        ),
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(metavar="LINK", help="One way between them: 10ms; for methods also 25Gbit+50us."),
    ] = None,
    acceptance: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SHARES",
            help="Probability that a draft token passes: 0.8. For methods also by position, of a file (TOML), and by "
            "drafter: MODEL=.82,.68,.57.",
        ),
    ] = None,
    arrivals: Annotated[
        str | None, typer.Option(metavar="RATE", help="Requests that come by themselves: 3/s. Else targets never idle.")
    ] = None,
    slo: Annotated[
        list[str] | None, typer.Option(metavar="GOALS", help="The most that times may be: tpot_p99=40ms,ttft_p90=1s.")
    ] = None,
    least: Annotated[
        list[str] | None,
        typer.Option(metavar="GOALS", help="The least: tokens_per_s_per_user_p99=40,tokens_per_s=500."),
    ] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option(metavar="COSTS", help="Of an hour of a device: h100=3,l4=0.5 (h100=700W for energy)."),
    ] = None,
    vary: Annotated[
        list[str] | None, typer.Option(help="Values to try: verifiers.count=1:16, drafters.depth=2,4,8, any other key.")
    ] = None,
    apart: Annotated[
        bool, typer.Option("--apart", help="Choose among fleets with drafters apart; the others are shown beside them.")
    ] = False,
    changes: Changes = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Simulations at once.", show_default="the host's processors")
    ] = os.cpu_count() or 1,
    step_error: Annotated[
        str | None, typer.Option(metavar="SHARE", help="By how much step times may be off: 20%. Else by their kind.")
    ] = None,
    out: Annotated[
        Path | None, folder_option("-o", "--out", help="Write the answer (JSON), its figure and the chosen scenario.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say how many drafters and targets to build, at which depth, at what cost."""
    from specfleet import plan

    if devices is not None or in_flight is not None:
        goals = {"--arrivals": arrivals, "--slo": slo, "--least": least} if devices is None else {}
        others = goals | {"--vary": vary, "--apart": apart, "--step-error": step_error}
        for option in [option for option, given in others.items() if given]:
            raise InputError(f"{option}: has no effect with {'--devices' if devices else '--in-flight'}; leave it out")
        shared: dict[str, Any] = {
            "cost": cost or (), "drafts": draft or (), "acceptance": acceptance or (), "link": link or "",
            "jobs": jobs, "as_json": as_json, "out": out,
        }  # fmt: skip
        load = (scenario, settings(changes), target or (), in_flight or "")
        if devices is None:
            plan_methods(*load, **shared)
        else:
            rate = quantity_of(arrivals, "--arrivals", "per_s") or 0.0
            shared |= {"devices": devices, "arrivals_per_s": rate, "slo": slo or (), "least": least or ()}
            plan_budget(*load, **shared)
        return
    if acceptance and len(acceptance) > 1:
        raise InputError("--acceptance: one number for all drafters; several need --devices or --in-flight")
    share = acceptance[0] if acceptance else None
    with progress("plan", 0) as advance:
        found = plan(
            scenario, settings(changes), target=target or None, draft=draft or None,
            link_s=quantity_of(link, "--link", "latency_s"), acceptance=quantity_of(share, "--acceptance", "share"),
            arrivals_per_s=quantity_of(arrivals, "--arrivals", "per_s"),
            slo=slo or (), least=least or (), cost=cost or (), vary=vary, apart=apart, jobs=jobs,
            step_error=quantity_of(step_error, "--step-error", "share"), done=advance,
        )  # fmt: skip
    if as_json:
        print_json(found)
    else:
        print_plan(found)
    if out is not None:
        kept = write_plan(found, out)
        remark(f"kept in {out}: {', '.join(path.name for path in kept)}")


def write_plan(found: "Plan", folder: Path) -> list[Path]:
    """Write plan.json, pareto.png and, where a fleet was chosen, its scenario: chosen.toml beside profile.json.

    Returns the files.
    """
    import msgspec

    from experiments.draw import draw
    from fleet.files import write_file

    kept = [folder / "plan.json", folder / "pareto.png"]
    write_file(kept[0], msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    draw("plan", found, kept[1])
    files = [] if found.scenario is None else write_chosen(found.scenario, found.lines, folder)
    return kept + [folder / name for name in files]


def quantity_of(text: str | None, option: str, key: str) -> float | None:
    """Read what an option says with a unit, `10ms` or `3/s`, in the unit of `key`; InputError for anything else."""
    from experiments.plan.goals import number_of

    return None if text is None else number_of(f"{option} {text}", text, key, share=key == "share")


def print_plan(found: "Plan") -> None:
    """Print the answer, then the table of the fleets that were simulated."""
    print(found.question)
    for line in found.lines:
        print(line)
    simulated = [row for row in found.rows if row.method == "simulated"]
    shown = tabled(simulated)
    heading = ("fleet", "", "tokens/s", "a user", "TPOT P99, ms", f"{found.unit} / 10^6 tokens", "seeds")
    print_table(f"simulated; step times {found.basis}", heading, [_cells(row) for row in shown], texts=2)
    print(f"95 % ranges hold the simulation's chance and step times of each role off by {found.step_error:.0%}")
    by_equations, off = len(found.rows) - len(simulated), ""
    if found.approximation is not None:
        what = {"tokens_per_s": "tokens/s", "tpot_s": "time for a token"}[found.approximation.metric]
        missed = f"{found.approximation.mean:.1%} on average, {found.approximation.worst:.1%} at worst"
        off = f", approximate: their {what} is off by {missed} for fleets that were simulated"
    print(f"{len(simulated) - len(shown)} more fleets were simulated, {by_equations} judged by equations alone{off}")


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
