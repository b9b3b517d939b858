"""top: a drafter and its targets, while they work; what is shown while nodes work that were started here."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.errors import InputError
from specfleet.cli.options import AsJson

if TYPE_CHECKING:
    from fleet.records.metrics.counters import Counters
    from fleet.scenario.resolved import Fleet


@contextmanager
def watched(
    title: str, fleet: "Fleet", tokens: int, metrics_port: int | None, metrics_host: str
) -> Iterator["Callable[[Counters], None]"]:
    """Show what nodes are doing as one line, and to Prometheus with a port; the yielded function takes their counters.

    `tokens`: that they are to make; 0 for no end.
    """
    from experiments.watching.line import living_line

    with ExitStack() as stack:
        takers = []
        if metrics_port is not None:
            takers.append(stack.enter_context(_page(fleet, metrics_port, metrics_host)))
        takers.append(stack.enter_context(living_line(title, tokens)))

        def take(counters: "Counters") -> None:
            for taker in takers:
                taker(counters)

        yield take


def _page(fleet: "Fleet", port: int, host: str) -> AbstractContextManager["Callable[[Counters], None]"]:
    try:
        from experiments.watching.page import metrics_page
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        raise InputError(
            f"--metrics-port {port}: needs prometheus_client, which is not installed; pip install 'specfleet[metrics]'"
        ) from None
    return metrics_page(fleet, port, host)


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

    Rates and waits are those of the last minute.
    """
    from rich.console import Console
    from rich.live import Live

    from engine.net.asking import Asker
    from engine.net.keys import read_keys
    from experiments.console.printing import print_json
    from experiments.watching.top import drawn, json_of, plain

    if (key is None) != (server_key is None):
        raise InputError("--key and --server-key belong together: an allowed secret key, and the drafter's public one")
    own = None if key is None or server_key is None else read_keys(key, server_key)
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
