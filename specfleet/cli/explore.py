"""explore: one star under sliders, on a page of this host."""

from pathlib import Path
from typing import Annotated

import typer

from specfleet.cli.options import Changes


def explore(
    scenario: Annotated[
        Path, typer.Argument(metavar="[SCENARIO]", help="File (TOML), or name of a shipped scenario; a star.")
    ] = Path("star"),
    changes: Changes = None,
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="Port on loopback; 0 is a free one.")] = 0,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Serve a page on this host: the equations under sliders, and a simulation on demand, until Ctrl-C.

    The first line is its address. Nothing leaves this host.
    """
    import webbrowser
    from threading import Event

    from experiments.explore.serve import explore_page
    from specfleet import scenario_of
    from specfleet.cli.options import settings

    with explore_page(scenario_of(scenario, settings(changes)), port) as address:
        print(address, flush=True)
        if open_browser:
            webbrowser.open(address)
        Event().wait()
