"""plan: which fleet to build, answered in a few lines, a table, a figure, and a scenario that can be run."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from specfleet.cli.options import PROCESSORS, AsJson, Changes, Cluster, Jobs, Seed, Shard, folder_option, settings
from specfleet.cli.plans import print_answer, print_shipped, write_answer
from specfleet.experiments.console.exits import keeping
from specfleet.experiments.console.printing import print_json, progress, remark

FORM = "MODEL@DEVICE[:PRECISION][:kv-fp8], or MODEL@4xDEVICE for tensor parallel 4."
Texts = list[str] | None
of_models, of_load, of_goals, of_search = (
    partial(typer.Option, rich_help_panel=panel)
    for panel in ("Models and devices", "Load", "Goals and costs", "Search and output")
)


def plan(
    scenario: Annotated[
        Path | None,
        typer.Argument(
            metavar="SCENARIO",
            help="Lengths, policies, [slo], [cost], [link]: a file (TOML), or a shipped name. Without --target its own "
            "stations, or the server that `import` read, are planned.",
            show_default="star",
        ),
    ] = None,
    target: Annotated[
        Texts,
        of_models(
            metavar="PLACE",
            help=f"The target: {FORM} Several: one is chosen. With --devices also MODEL or MODEL:PRECISION.",
        ),
    ] = None,
    draft: Annotated[
        Texts,
        of_models(
            metavar="MODEL",
            help="A way to draft: a head or small model for the target's device, lookup (ngram), suffix, mtp; "
            "MODEL@DEVICE tries a small model elsewhere, too (--set drafters.place=own: only). Several: one is chosen.",
        ),
    ] = None,
    devices: Annotated[Texts, of_models(metavar="BUDGET", help="The best fleet of these: 8xh100,4xl40s.")] = None,
    link: Annotated[
        Texts,
        of_models(
            metavar="LINKS",
            help="One way to drafters elsewhere: 10ms, 25Gbit+50us, 0ms. Several are compared: 0.1ms,1ms,5ms. "
            "Else the scenario's, or none, assumed.",
        ),
    ] = None,
    acceptance: Annotated[
        Texts,
        of_models(
            metavar="SHARES",
            help="Probability that a draft token passes: 0.8; by position .82,.68,.57; mean accepted length at a depth "
            "2.5@5; of a file (TOML); published:DATASET; by drafter MODEL=.82,.68,.57.",
        ),
    ] = None,
    cached: Annotated[
        float,
        of_load(metavar="SHARE", help="Share of the prompts' tokens that begin alike, for prefix caches: 0.7."),
    ] = 0.0,
    arrivals: Annotated[
        Texts, of_load(metavar="RATES", help="Requests that come by themselves: 3/s. Several: 1/s,2/s,4/s.")
    ] = None,
    in_flight: Annotated[
        Texts,
        of_load(
            metavar="NUMBERS",
            help="Requests that are always in flight at each target, with --devices in all: 8. Several: 1,8,32,64. "
            "Without a load each target has one request after the other.",
        ),
    ] = None,
    slo: Annotated[Texts, of_goals(metavar="GOALS", help="Times, at most: tpot_p99=40ms,ttft_p90=1s.")] = None,
    least: Annotated[Texts, of_goals(metavar="GOALS", help="At least: tokens_per_s_per_user_p99=40.")] = None,
    cost: Annotated[
        Texts,
        of_goals(metavar="COSTS", help="Of an hour of a device: h100=3,l4=0.5 (h100=700W for energy). Else assumed."),
    ] = None,
    vary: Annotated[
        Texts, of_search(help="Values to try: verifiers.count=1:16, drafters.depth=2,4,8, any other key.")
    ] = None,
    changes: Changes = None,
    seed: Seed = None,
    jobs: Jobs = PROCESSORS,
    out: Annotated[
        Path | None, folder_option("-o", "--out", help="Write the answer (JSON), its figure, its rows as scenarios.")
    ] = None,
    cluster: Cluster = "",
    shard: Shard = "",
    as_json: AsJson = False,
    listed: Annotated[
        str | None, of_models("--list", metavar="WHAT", help="What ships: models, devices, engines, acceptance.")
    ] = None,
) -> None:
    """Say which fleet to build for a load, and what it gives: method, targets, drafters, depth, cost."""
    from specfleet import plan

    if listed is not None:
        print_shipped(listed, as_json)
        return
    with keeping(out), progress("plan", 0) as advance:
        answer = plan(
            scenario, settings(changes, seed), target=target or (), draft=draft or (), acceptance=acceptance or (),
            devices=",".join(devices or ()), link=",".join(link or ()), arrivals=",".join(arrivals or ()) or (),
            in_flight=",".join(in_flight or ()) or (), cached=cached, slo=slo or (), least=least or (),
            cost=cost or (), vary=vary, jobs=jobs, done=advance, out=out, cluster=cluster, shard=shard,
        )  # fmt: skip
    if as_json:
        print_json(answer)
    else:
        print_answer(answer)
    if out is not None:
        remark(f"kept in {out}: {', '.join(write_answer(answer, out))}")
