"""drafter, verifier, keys: one node of a fleet over several hosts, and who may be one."""

from pathlib import Path
from typing import Annotated

import typer

from fleet.errors import InputError
from specfleet.cli.options import (
    Changes,
    MetricsHost,
    MetricsPort,
    Power,
    RunFile,
    ScenarioFile,
    folder_option,
    settings,
)

EVERYWHERE, HERE = "0.0.0.0", "127.0.0.1"  # noqa: S104  (a drafter serves other hosts, if it can tell who they are)
Key = Annotated[
    Path | None, typer.Option(metavar="FILE", help="This node's secret key: NAME.secret, as specfleet keys writes it.")
]


def keys(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose pair it is; logs name whoever connects by it.")],
    out: Annotated[Path, folder_option("-o", "--out", help="Write the two files here.")] = Path("keys"),
) -> None:
    """Make a pair of keys for a node of a fleet over several hosts.

    NAME.secret stays on its host, for --key. NAME.public goes to the others: that of a target into the folder that the
    drafter is given as --allowed, that of the drafter to every target, for --server-key.
    """
    from engine.runtime.keys import new_pair

    secret, public = new_pair(name, out)
    print(f"{secret}: keep it on this host, for --key")
    print(f"{public}: give it to the others; a target's for the drafter's --allowed, the drafter's for --server-key")


def drafter(
    scenario: ScenarioFile,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Public port; 0 for any free one.")] = 5555,
    host: Annotated[
        str | None,
        typer.Option(
            help="Address to bind; without keys only one of this host alone.",
            show_default=f"{EVERYWHERE} with keys, else {HERE}",
        ),
    ] = None,
    key: Key = None,
    allowed: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder with the public keys (NAME.public) of those who may connect."),
    ] = None,
    changes: Changes = None,
    out: RunFile = None,
    power: Power = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = HERE,
) -> None:
    """Start the drafter of a fleet over several hosts.

    It ends with Ctrl-C, and then writes its records. Other hosts reach it only with --key and --allowed; then every
    message is encrypted, and whoever has none of the allowed keys is refused.
    """
    from engine.runtime.hosts import serve_drafter
    from engine.runtime.keys import door_keys
    from engine.runtime.shown import Asked
    from fleet.scenario.settle import settle
    from specfleet.cli.watching import watched
    from specfleet.scenario import scenario_of

    if (key is None) != (allowed is None):
        raise InputError("--key and --allowed belong together: this node's secret key, and whose keys it lets in")
    own = None if key is None or allowed is None else door_keys(key, allowed)
    where = host or (HERE if own is None else EVERYWHERE)
    chosen = scenario_of(scenario, settings(changes))
    with watched("drafter", settle(chosen), 0, metrics_port, metrics_host) as watch:
        serve_drafter(chosen, where, port, out, own, Asked(watch, power))


def verifier(
    scenario: ScenarioFile,
    connect: Annotated[str, typer.Option(help="HOST:PORT of the drafter's public port.")] = f"{HERE}:5555",
    target: Annotated[int, typer.Option(min=1, help="This target's number in the fleet, from 1.")] = 1,
    key: Key = None,
    server_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The drafter's public key: NAME.public.")
    ] = None,
    changes: Changes = None,
    out: RunFile = None,
    power: Power = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = HERE,
) -> None:
    """Start one target of a fleet over several hosts.

    It decodes its share of the requests. A drafter on another host needs --key and --server-key.
    """
    from engine.runtime.hosts import serve_verifier
    from engine.runtime.keys import line_keys
    from engine.runtime.shown import Asked
    from experiments.watching.line import tokens_of
    from fleet.scenario.settle import settle
    from specfleet.cli.watching import watched
    from specfleet.scenario import scenario_of

    if (key is None) != (server_key is None):
        raise InputError("--key and --server-key belong together: this node's secret key, and the drafter's public one")
    own = None if key is None or server_key is None else line_keys(key, server_key)
    chosen = scenario_of(scenario, settings(changes))
    fleet = settle(chosen)
    with watched(f"target {target}", fleet, tokens_of(fleet, target - 1), metrics_port, metrics_host) as watch:
        serve_verifier(chosen, connect, target - 1, out, own, Asked(watch, power))
