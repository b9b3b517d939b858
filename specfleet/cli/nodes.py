"""node, join, keys: nodes of a fleet that are started by hand, their records and their keys."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from specfleet.cli.options import Changes, Power, RunFile, ScenarioFile, file_option, folder_option, settings
from specfleet.experiments.console.exits import keeping
from specfleet.experiments.console.printing import print_values
from specfleet.fleet.errors import InputError

if TYPE_CHECKING:
    from specfleet.engine.net.keys import Keys

Role = Literal["drafter", "router", "target"]
WITHOUT_EFFECT = {"drafter": ("--connect", "--server-key"), "router": ("--number",), "target": ("--at", "--allowed")}
MEANT = {
    "--key": "this node's secret key",
    "--allowed": "the folder of allowed public keys",
    "--server-key": "the public key of the node at the other end",
}


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


def node(
    role: Annotated[Role, typer.Argument(metavar="ROLE", help="drafter, router, or target.")],
    scenario: ScenarioFile,
    number: Annotated[
        str | None,
        typer.Option(metavar="N", help="Number of the drafter or target, from 1; several replayed targets as 1-4."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Listen here: HOST:PORT with keys, port 0 for any free one; without keys the path of a socket file.",
        ),
    ] = None,
    connect: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS,...", help="Call these: all drafters, in the order of their numbers, or the router."
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="This node's secret key: NAME.secret, as specfleet keys writes it."),
    ] = None,
    allowed: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder with the public keys (NAME.public) that may connect."),
    ] = None,
    server_key: Annotated[
        str | None,
        typer.Option(
            metavar="FILE,...",
            help="Public key (NAME.public) of the other end: one for all addresses, or one for each in their order.",
        ),
    ] = None,
    changes: Changes = None,
    out: RunFile = None,
    power: Power = None,
) -> None:
    """Start one node of a fleet: a drafter, the router, or a target.

    A target decodes its share of the requests and ends; a drafter and a router end with Ctrl-C. Then they write their
    records. Nodes on one host need no keys: they talk through socket files, which only their user can reach. Between
    hosts every message is encrypted, and a node without an allowed key is refused: a drafter needs --key and
    --allowed, a target --key and --server-key, a router all three.
    """
    from specfleet import scenario_of
    from specfleet.engine.launch.by_hand import node_name, serve_node
    from specfleet.engine.net.addresses import address_of, addresses_of, numbers_of
    from specfleet.experiments.watching import living_line, tokens_of
    from specfleet.fleet.scenario.resolve import resolve

    options = {"--at": at, "--connect": connect, "--number": number, "--allowed": allowed, "--server-key": server_key}
    for name in WITHOUT_EFFECT[role]:
        if options[name] is not None:
            raise InputError(f"{name} {options[name]}: has no effect on a {role}; leave it out")
    addresses = None if connect is None else addresses_of("--connect", connect)
    where = None if at is None else address_of(f"--at {at}", at, 0)
    named = {"--key": key, "--allowed": allowed, "--server-key": server_key}
    keys = _keys_of({name: value for name, value in named.items() if name not in WITHOUT_EFFECT[role]}, addresses)
    chosen = scenario_of(scenario, settings(changes))
    side = "drafters" if role == "drafter" else "verifiers"
    numbers = numbers_of("--number", number or "1", f"{side}.count", getattr(chosen, side).count)
    fleet = resolve(chosen)
    tokens = tokens_of(fleet, numbers if role == "target" else ())
    with living_line(node_name(fleet, role, numbers), tokens) as watch:
        serve_node(chosen, role, numbers, where, addresses, keys, out, watch, power)


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


def _keys_of(options: Mapping[str, Path | str | None], addresses: Sequence[str] | None) -> "Keys | None":
    """Return the keys that options name, a target's by address; None without any. InputError unless all are given, with
    a key for all or each address."""
    from specfleet.engine.net.keys import read_keys

    if None in options.values():
        if any(value is not None for value in options.values()):
            *names, last = options
            meant = ", ".join(MEANT[name] for name in options)
            raise InputError(f"{', '.join(names)} and {last} belong together: {meant}")
        return None
    key, allowed, named = (options.get(name) for name in ("--key", "--allowed", "--server-key"))
    if named and not addresses:
        raise InputError(f"--server-key {named}: needs --connect, the addresses of the nodes with that key")
    addresses = addresses or ()
    files = [Path(part.strip()) for part in str(named).split(",")] if named else []
    if len(files) == 1:
        files *= len(addresses)
    if len(files) != len(addresses):
        raise InputError(f"--server-key {named}: {len(files)} keys for {len(addresses)} addresses; one, or each")
    return read_keys(Path(str(key)), dict(zip(addresses, files, strict=True)), None if not allowed else Path(allowed))
