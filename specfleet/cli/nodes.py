"""drafter, verifier: one node of a fleet over several hosts."""

from typing import Annotated

import typer

from specfleet.cli.options import Changes, RunFile, ScenarioFile

EVERYWHERE = "0.0.0.0"  # noqa: S104  (a drafter serves other hosts)


def drafter(
    scenario: ScenarioFile,
    port: Annotated[int, typer.Option(help="Public port.")] = 5555,
    host: Annotated[str, typer.Option(help="Address to bind.")] = EVERYWHERE,
    changes: Changes = None,
    out: RunFile = None,
) -> None:
    """Start the drafter of a real fleet on this host; ends with Ctrl-C, then writes its records."""
    from engine.runtime.hosts import serve_drafter
    from fleet.scenario.reading import read_scenario

    serve_drafter(read_scenario(scenario, changes or ()), host, port, out)


def verifier(
    scenario: ScenarioFile,
    connect: Annotated[str, typer.Option(help="HOST:PORT of the drafter's public port.")] = "127.0.0.1:5555",
    target: Annotated[int, typer.Option(min=1, help="This target's number in the fleet, from 1.")] = 1,
    changes: Changes = None,
    out: RunFile = None,
) -> None:
    """Start one target of a real fleet on this host; it decodes its share of the requests."""
    from engine.runtime.hosts import serve_verifier
    from fleet.scenario.reading import read_scenario

    serve_verifier(read_scenario(scenario, changes or ()), connect, target - 1, out)
