"""The list of commands, and how the parser's own errors end: as bad input, in one line."""

import sys
from typing import Annotated

import typer

from specfleet.cli.calibrate import calibrate, demo
from specfleet.cli.imports import export, import_
from specfleet.cli.meaning import explain, init, profiles, scenarios
from specfleet.cli.nodes import drafter, join, keys, router, verifier
from specfleet.cli.plan import plan
from specfleet.cli.profile import estimate
from specfleet.cli.run import analytic, run, show, simulate
from specfleet.cli.study import compare, figure, report, reproduce, sweep
from specfleet.fleet.errors import InputError

# No rich markup: importing rich takes longer than all the rest of `specfleet --help`.
app = typer.Typer(
    name="specfleet",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 120},
)
COMMANDS = (
    simulate, run, analytic, show, sweep, plan, compare, calibrate, import_, export, reproduce, demo, figure, report,
    drafter, verifier, router, join, keys, explain, profiles, scenarios, init,
)  # fmt: skip
for command in COMMANDS:
    app.command(command.__name__.rstrip("_"))(command)  # `import` is a word of Python
profile = typer.Typer(help="Estimated step times, for hardware without measurements.", rich_markup_mode=None)
profile.command()(estimate)
app.add_typer(profile, name="profile")


def print_version(wanted: bool) -> None:
    """Print the version and end, with --version."""
    if wanted:
        from importlib.metadata import version

        print(f"specfleet {version('specfleet')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=print_version, is_eager=True)
    ] = False,
) -> None:
    """Plan, simulate and measure distributed speculative decoding of large language models."""


def main() -> int:
    """Run the command that the command line names, and return its exit status; without one, print the help."""
    try:
        # A command returns nothing; a typer.Exit in one becomes its status.
        return app(sys.argv[1:] or ["--help"], prog_name="specfleet", standalone_mode=False) or 0
    except Exception as error:
        show = getattr(error, "format_message", None)  # a usage error of the command line parser
        if show is None:
            raise
        raise InputError(show()) from error
