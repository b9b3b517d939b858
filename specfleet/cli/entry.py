"""The list of commands, and how the parser's own errors end: as bad input, in one line."""

import logging
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from specfleet.cli.calibrate import calibrate, demo, estimate
from specfleet.cli.imports import export, import_
from specfleet.cli.meaning import explain, init, profiles, scenarios
from specfleet.cli.nodes import join, keys, node
from specfleet.cli.plan import plan
from specfleet.cli.run import analytic, run, show, simulate
from specfleet.cli.study import compare, explore, figure, report, reproduce, sweep
from specfleet.experiments.console.printing import remark
from specfleet.fleet.errors import InputError, OtherFormatError

PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Plan and simulate": (plan, scenarios, init, show, analytic, explore, simulate, sweep),
    "Measure": (calibrate, run, import_, export, keys, node, join),
    "Results": (compare, figure, report),
    "Other": (explain, profiles, demo, reproduce),
}
"""Commands by the part of a user's way that they belong to, in its order."""


class Panels(TyperGroup):
    """The list of commands in panels, as plain text: importing rich takes longer than all the rest of the help."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of each panel, with a line of what each does."""
        width = formatter.width - 6 - max(map(len, self.commands))
        for panel in PANELS:
            listed = [command for command in self.commands.values() if getattr(command, "rich_help_panel", "") == panel]
            with formatter.section(panel):
                formatter.write_dl([(command.name, command.get_short_help_str(width)) for command in listed])


class Grouped(TyperCommand):
    """The options of a command in panels, where it has such, as plain text; an option of one value stands once."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse an option that stands twice, of which the parser would take the last."""
        order = self.make_parser(ctx).parse_args(args=list(args))[2]
        if twice := [param for param in order if not getattr(param, "multiple", True) and order.count(param) > 1]:
            raise InputError(f"{twice[0].opts[-1]}: stands twice; give it once")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options of each panel."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            usual = "Arguments" if param.param_type_name == "argument" else "Options"
            if record := param.get_help_record(ctx):
                panels.setdefault(getattr(param, "rich_help_panel", None) or usual, []).append(record)
        for panel, records in panels.items():
            with formatter.section(panel):
                formatter.write_dl(records)


app = typer.Typer(
    name="specfleet",
    cls=Panels,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 120, "help_option_names": ["-h", "--help"]},
)
for panel, commands in PANELS.items():
    for command in commands:
        name = command.__name__.rstrip("_")  # `import` is a word of Python
        app.command(name, cls=Grouped, rich_help_panel=panel)(command)
profile = typer.Typer(help="Estimated step times, for hardware without measurements.", rich_markup_mode=None)
profile.command(cls=Grouped)(estimate)
app.add_typer(profile, name="profile", rich_help_panel="Other")


class Remarks(logging.Handler):
    """What the library logs, as lines on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record's line."""
        remark(self.format(record))


def print_version(wanted: bool) -> None:
    """Print the version and end, with --version."""
    if wanted:
        from importlib.metadata import version

        print(f"specfleet {version('specfleet')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("-V", "--version", help="Print the version and end.", callback=print_version, is_eager=True)
    ] = False,
) -> None:
    """Plan, simulate and measure distributed speculative decoding of large language models."""


def main() -> int:
    """Run the command that the command line names, and return its exit status; without one, print the help."""
    logging.getLogger("specfleet").handlers = [Remarks()]
    try:
        # A command returns nothing; a typer.Exit in one becomes its status.
        return app(sys.argv[1:] or ["--help"], prog_name="specfleet", standalone_mode=False) or 0
    except OtherFormatError as error:
        from specfleet.calibration.readers.signatures import name_foreign

        name_foreign("", [error.path])
        raise
    except Exception as error:
        show = getattr(error, "format_message", None)  # a usage error of the command line parser
        if show is None:
            raise
        raise InputError(show()) from error
