"""top: a drafter and its targets, while they work."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from fleet.errors import InputError
from specfleet.cli.options import AsJson


def top(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The port where the drafter's targets connect.")],
    once: Annotated[bool, typer.Option("--once", help="Print it once, as plain text.")] = False,
    every_s: Annotated[float, typer.Option("--every", min=0.2, max=3600.0, help="Seconds between two looks.")] = 1.0,
    as_json: AsJson = False,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="A secret key whose public one is allowed.")] = None,
    server_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The drafter's public key: NAME.public.")
    ] = None,
) -> None:
    """Show a drafter that was started by hand, and its targets, until Ctrl-C; once where there is no terminal.

    Tokens, acceptance, load and S are those of the last ten seconds, waits those of the last 200 requests of a target.
    """
    from rich.console import Console
    from rich.live import Live

    from engine.runtime.asking import Asker
    from engine.runtime.keys import line_keys
    from experiments.terminal.printing import print_json
    from experiments.watching.top import drawn, json_of, plain

    if (key is None) != (server_key is None):
        raise InputError("--key and --server-key belong together: an allowed secret key, and the drafter's public one")
    own = None if key is None or server_key is None else line_keys(key, server_key)
    asker = Asker(address, own)
    try:
        status = asker.status()
        if as_json:
            print_json(json_of(status))
        elif once or not sys.stdout.isatty():
            print(plain(status))
        else:
            with Live(drawn(status), console=Console(), auto_refresh=False, screen=True) as live:
                while True:
                    time.sleep(every_s)
                    live.update(drawn(asker.status()), refresh=True)
    finally:
        asker.close()
