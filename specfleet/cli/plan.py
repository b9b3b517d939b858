"""plan: which fleet to build, answered in a few lines, a table, a figure, and scenarios that can be run."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specfleet.cli.options import AsJson, Changes, folder_option, settings
from specfleet.cli.plans import print_answer, write_answer
from specfleet.experiments.console.printing import print_json, progress, remark
from specfleet.fleet.errors import InputError

if TYPE_CHECKING:
    from specfleet.experiments.plan.advice import FleetPlan
    from specfleet.experiments.plan.answer import Plan
    from specfleet.experiments.plan.methods import Methods

FORM = "MODEL@DEVICE[:PRECISION][:kv-fp8], or MODEL@4xDEVICE for tensor parallel 4."
STAR = Path("star")
OF_LOAD = {"drafters.depth", "workload.prompt_tokens", "workload.new_tokens", "workload.lengths"}  # keys that count
IDLE = ("profile", "drafters", "verifiers", "acceptance", "cost", "devices", "faults", "measure")  # do not count


def plan(
    scenario: Annotated[
        Path,
        typer.Argument(
            metavar="SCENARIO",
            help="Load, link, acceptance, policies: a file (TOML), or a shipped name. "
            "With --in-flight its lengths alone, with --devices its lengths, [slo] and [link].",
        ),
    ] = STAR,
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
    elif acceptance and len(acceptance) > 1:
        raise InputError("--acceptance: one number for all drafters; several need --devices or --in-flight")
    found: Plan | Methods | FleetPlan  # their modules are imported with the first answer
    per_s = quantity_of(arrivals, "--arrivals", "per_s")
    with progress("plan", 0) as advance:
        shared: dict[str, Any] = {"cost": cost or (), "jobs": jobs, "done": advance}
        limits: dict[str, Any] = {"slo": slo or (), "least": least or ()}
        if devices is not None or in_flight is not None:
            shared |= {"drafts": draft or (), "acceptance": acceptance or (), "link": link or ""}
            if devices is not None:
                shared |= limits | {"devices": devices, "arrivals_per_s": per_s or 0.0}
            found = by_method(scenario, settings(changes), target or (), in_flight, **shared)
        else:
            share = acceptance[0] if acceptance else None
            found = plan(
                scenario, settings(changes), target=target or None, draft=draft or None,
                link_s=quantity_of(link, "--link", "latency_s"), acceptance=quantity_of(share, "--acceptance", "share"),
                arrivals_per_s=per_s, vary=vary, apart=apart,
                step_error=quantity_of(step_error, "--step-error", "share"), **limits, **shared,
            )  # fmt: skip
    if as_json:
        print_json(found)
    else:
        print_answer(found)
    if out is not None:
        remark(f"kept in {out}: {', '.join(write_answer(found, out))}")


def by_method(
    scenario: Path, changes: dict[str, Any], target: Sequence[str], in_flight: str | None, **options: Any
) -> "Methods | FleetPlan":
    """Compare methods for one target, or plan a budget of devices, for the scenario's requests; name its unused keys.

    `options`: of `compare_methods`, or of `plan_devices` if `devices` is among them.
    """
    from msgspec.structs import replace

    from specfleet import compare_methods, plan_devices
    from specfleet.experiments.plan.advice import ROWS
    from specfleet.fleet.scenario.reading import scenario_of
    from specfleet.fleet.scenario.scenario import Scenario
    from specfleet.fleet.scenario.workload import mean_lengths

    of_budget = "devices" in options
    if len(target) != 1:
        what = "--devices plans for one target; give one --target MODEL"
        raise InputError(what if of_budget else "--in-flight compares methods for one target; give one --target")
    for key in changes.keys() - OF_LOAD:
        raise InputError(f"--set {key}: has no effect here; allowed: {', '.join(sorted(OF_LOAD))}")
    try:
        flights = [int(number) for number in (in_flight or "0").split(",")]
    except ValueError as error:
        raise InputError(f"--in-flight {in_flight}: write whole numbers, 1,8,32,64") from error
    if of_budget and len(flights) > 1:
        raise InputError(f"--in-flight {in_flight}: --devices plans for one load; give one number")
    load = scenario_of(scenario, changes)
    idle = IDLE if of_budget else (*IDLE, "link", "slo")
    if scenario != STAR and (found := [key for key in idle if getattr(load, key) != getattr(Scenario(), key)]):
        remark(f"{scenario}: without effect here: {', '.join(found)}; options say them (specfleet plan --help)")
    options |= {"target": target[0], "depth": load.drafters.depth if "drafters.depth" in changes else 0}
    if of_budget:
        return plan_devices(scenario=load, in_flight=flights[0], **options)
    prompt, new = map(round, mean_lengths(replace(load.workload, requests=ROWS)))
    return compare_methods(in_flight=flights, prompt_tokens=prompt, new_tokens=new, **options)


def quantity_of(text: str | None, option: str, key: str) -> float | None:
    """Read what an option says with a unit, `10ms` or `3/s`, in the unit of `key`; InputError for anything else."""
    from specfleet.experiments.plan.goals import number_of

    return None if text is None else number_of(f"{option} {text}", text, key, share=key == "share")
