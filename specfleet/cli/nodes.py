"""drafter, verifier, router, join, keys: nodes of a fleet over several hosts, their records and their keys."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specfleet.cli.options import (
    Changes,
    MetricsHost,
    MetricsPort,
    Power,
    RunFile,
    ScenarioFile,
    file_option,
    folder_option,
    settings,
)
from specfleet.experiments.console.exits import keeping
from specfleet.experiments.console.printing import print_values
from specfleet.fleet.errors import InputError

if TYPE_CHECKING:
    from specfleet.engine.net.keys import Keys

EVERYWHERE, HERE = "0.0.0.0", "127.0.0.1"  # noqa: S104  (a drafter serves other hosts only with keys)
MEANT = {
    "--key": "this node's secret key",
    "--allowed": "the folder of allowed public keys",
    "--server-key": "the public key of the node at the other end",
}
Key = Annotated[
    Path | None, typer.Option(metavar="FILE", help="This node's secret key: NAME.secret, as specfleet keys writes it.")
]
Host = Annotated[
    str | None,
    typer.Option(
        help="Address to bind; without keys only one of this host alone.",
        show_default=f"{EVERYWHERE} with keys, else {HERE}",
    ),
]
Allowed = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder with the public keys (NAME.public) of those who may connect."),
]
ServerKey = Annotated[
    str | None,
    typer.Option(
        metavar="FILE,...",
        help="Public key (NAME.public) of the other end: one for all addresses, or one for each in their order.",
    ),
]


def keys(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the node; logs of others show it.")],
    out: Annotated[Path, folder_option("-o", "--out", help="Write the two files here.")] = Path("keys"),
) -> None:
    """Make a pair of keys for a node of a fleet over several hosts.

    NAME.secret stays on its host, for --key. NAME.public goes to the others: that of a target into the folder that the
    drafter is given as --allowed, that of the drafter to every target, for --server-key.
    """
    from specfleet.engine.net.keys import new_pair

    secret, public = new_pair(name, out)
    print(f"{secret}: keep it on this host, for --key")
    print(f"{public}: give it to the others; a target's for the drafter's --allowed, the drafter's for --server-key")


def drafter(
    scenario: ScenarioFile,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Public port; 0 for any free one.")] = 5555,
    host: Host = None,
    number: Annotated[int, typer.Option(min=1, help="This drafter's number in the fleet, from 1.")] = 1,
    key: Key = None,
    allowed: Allowed = None,
    changes: Changes = None,
    out: RunFile = None,
    power: Power = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = HERE,
) -> None:
    """Start a drafter of a fleet over several hosts.

    It ends with Ctrl-C, and then writes its records. Other hosts reach it only with --key and --allowed; then every
    message is encrypted, and a client without an allowed key is refused.
    """
    from specfleet import scenario_of
    from specfleet.cli.watching import watched
    from specfleet.engine.launch.by_hand import serve_drafter

    own = _keys_of({"--key": key, "--allowed": allowed})
    where = host or (HERE if own is None else EVERYWHERE)
    chosen = scenario_of(scenario, settings(changes))
    name = f"drafter {number}" if chosen.drafters.count > 1 else "drafter"
    with watched(name, chosen, (), metrics_port, metrics_host) as watch:
        serve_drafter(chosen, where, port, out, own, number - 1, watch, power)


def router(
    scenario: ScenarioFile,
    drafters: Annotated[
        str, typer.Option(metavar="HOST:PORT,...", help="Public ports of all drafters, in the order of their numbers.")
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Public port; 0 for any free one.")] = 5554,
    host: Host = None,
    key: Key = None,
    allowed: Allowed = None,
    server_key: ServerKey = None,
    changes: Changes = None,
    out: RunFile = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = HERE,
) -> None:
    """Start the router between several drafters and their targets, in a fleet over several hosts.

    Targets connect to it instead of the drafters. It ends with Ctrl-C, and then writes its records. Between hosts it
    needs --key, --allowed (keys of the targets it serves) and --server-key (the drafters').
    """
    from specfleet import scenario_of
    from specfleet.cli.watching import watched
    from specfleet.engine.launch.by_hand import serve_router
    from specfleet.engine.net.addresses import addresses_of

    addresses = addresses_of("--drafters", drafters)
    own = _keys_of({"--key": key, "--allowed": allowed, "--server-key": server_key}, addresses)
    where = host or (HERE if own is None else EVERYWHERE)
    chosen = scenario_of(scenario, settings(changes))
    with watched("router", chosen, (), metrics_port, metrics_host) as watch:
        serve_router(chosen, addresses, where, port, out, own, watch)


def verifier(
    scenario: ScenarioFile,
    connect: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT,...",
            help="Public port of the drafter; of all drafters, in the order of their numbers; or of the router.",
        ),
    ] = f"{HERE}:5555",
    target: Annotated[
        str, typer.Option(metavar="N", help="This target's number in the fleet, from 1; several replayed ones as 1-4.")
    ] = "1",
    key: Key = None,
    server_key: ServerKey = None,
    changes: Changes = None,
    out: RunFile = None,
    power: Power = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = HERE,
) -> None:
    """Start one target of a fleet over several hosts.

    It decodes its share of the requests. A drafter on another host needs --key and --server-key.
    """
    from specfleet import scenario_of
    from specfleet.cli.watching import watched
    from specfleet.engine.launch.by_hand import serve_verifier
    from specfleet.engine.net.addresses import addresses_of, targets_of

    addresses = addresses_of("--connect", connect)
    own = _keys_of({"--key": key, "--server-key": server_key}, addresses)
    chosen = scenario_of(scenario, settings(changes))
    targets = targets_of("--target", target, chosen.verifiers.count)
    with watched(f"target {target}", chosen, targets, metrics_port, metrics_host) as watch:
        serve_verifier(chosen, addresses, targets, out, own, watch, power)


def join(
    records: Annotated[list[Path], typer.Argument(metavar="RUN", help="Records of every node (Parquet).")],
    out: Annotated[Path, file_option("-o", "--out", metavar="RUN", help="Write the joined records here (Parquet).")],
) -> None:
    """Make one run of the records of a fleet's nodes on several hosts, on the clock of the first.

    Prints how far the clocks were apart, and how long messages took between hosts: a simulation's `link.latency_s`.
    """
    from specfleet.cli.run import show_run
    from specfleet.fleet.records.join import join_runs
    from specfleet.fleet.records.run import read_run
    from specfleet.results import Result

    with keeping(out):
        joined = join_runs([(str(path), read_run(path)) for path in records])
        clocks = [
            (clock.name, ", ".join(clock.stations), 1e3 * clock.ahead_s, 1e6 * clock.drift, 1e3 * clock.error_s)
            for clock in joined.clocks
        ]
        print_values("clocks", ("file", "stations", "ahead, ms", "drift, ppm", "error at most, ms"), clocks, texts=2)
        links = [
            (link.sender, link.receiver, link.messages, 1e3 * link.median_s, 1e3 * link.least_s)
            for link in joined.links.itertuples()
        ]
        print_values("messages", ("from", "to", "count", "median, ms", "least, ms"), links, texts=2)
        show_run(Result(joined.run), False, out)


def _keys_of(options: Mapping[str, Path | str | None], addresses: Sequence[str] = ()) -> "Keys | None":
    """Return the keys that a node's options name, those of servers by address; None without any of the options.

    InputError unless all are given, and --server-key names one key for all addresses, or one for each.
    """
    from specfleet.engine.net.keys import read_keys

    if None in options.values():
        if any(value is not None for value in options.values()):
            *names, last = options
            meant = ", ".join(MEANT[name] for name in options)
            raise InputError(f"{', '.join(names)} and {last} belong together: {meant}")
        return None
    key, allowed, named = (options.get(name) for name in ("--key", "--allowed", "--server-key"))
    files = [Path(part.strip()) for part in str(named).split(",")] if named else []
    if len(files) == 1:
        files *= len(addresses)
    if len(files) != len(addresses):
        raise InputError(
            f"--server-key {named}: {len(files)} keys for {len(addresses)} addresses; one for all, or each"
        )
    return read_keys(Path(str(key)), dict(zip(addresses, files, strict=True)), None if not allowed else Path(allowed))
