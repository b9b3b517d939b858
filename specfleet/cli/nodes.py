"""drafter, verifier: one node of a fleet over several hosts."""

from typing import Annotated

import typer

from specfleet.cli.options import Changes, RunFile, ScenarioFile, settings

EVERYWHERE = "0.0.0.0"  # noqa: S104  (a drafter serves other hosts)


def drafter(
    scenario: ScenarioFile,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Public port; 0 for any free one.")] = 5555,
    host: Annotated[str, typer.Option(help="Address to bind.")] = EVERYWHERE,
    changes: Changes = None,
    out: RunFile = None,
) -> None:
    """Start the drafter of a fleet over several hosts.

    It ends with Ctrl-C, and then writes its records.
    """
    from engine.runtime.hosts import serve_drafter
    from specfleet.scenario import scenario_of

    serve_drafter(scenario_of(scenario, settings(changes)), host, port, out)


def verifier(
    scenario: ScenarioFile,
    connect: Annotated[str, typer.Option(help="HOST:PORT of the drafter's public port.")] = "127.0.0.1:5555",
    target: Annotated[int, typer.Option(min=1, help="This target's number in the fleet, from 1.")] = 1,
    changes: Changes = None,
    out: RunFile = None,
) -> None:
    """Start one target of a fleet over several hosts.

    It decodes its share of the requests.
    """
    from engine.runtime.hosts import serve_verifier
    from specfleet.scenario import scenario_of

    serve_verifier(scenario_of(scenario, settings(changes)), connect, target - 1, out)
