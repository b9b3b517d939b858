"""The list of commands, and how they end: bad input is one line on standard error and exit status 2."""

import sys
from typing import NoReturn

import typer

from fleet.errors import InputError
from specfleet.cli.calibrate import calibrate, demo
from specfleet.cli.meaning import explain, init, profiles, scenarios
from specfleet.cli.nodes import drafter, verifier
from specfleet.cli.run import analytic, run, show, simulate
from specfleet.cli.study import compare, figure, reproduce, sweep

# No rich markup: importing rich takes longer than all the rest of `specfleet --help`.
app = typer.Typer(
    name="specfleet",
    help="Plan, simulate and measure distributed speculative decoding of large language models.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 120},
)
COMMANDS = (
    simulate, run, analytic, show, sweep, compare, calibrate, reproduce, demo, figure, drafter, verifier,
    explain, profiles, scenarios, init,
)  # fmt: skip
for command in COMMANDS:
    app.command()(command)

ENGINE_PARTS = {"torch", "transformers", "zmq", "tokenizers", "safetensors"}


def main() -> NoReturn:
    """Entry point: bad input and missing optional parts become one line on standard error and exit status 2."""
    try:
        # A command returns nothing; a typer.Exit in one becomes its status.
        sys.exit(app(sys.argv[1:] or ["--help"], prog_name="specfleet", standalone_mode=False))
    except InputError as error:
        _fail(str(error))
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted", status=130)
    except ModuleNotFoundError as error:
        if error.name not in ENGINE_PARTS:
            raise
        _fail(f"{error.name} is not installed; the engine needs it: pip install 'specfleet[engine]'")
    except Exception as error:
        show = getattr(error, "format_message", None)  # a usage error of the command line parser
        if show is None:
            raise
        _fail(show())


def _fail(message: str, status: int = 2) -> NoReturn:
    print(f"specfleet: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(status)
