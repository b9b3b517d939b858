"""The command line in this process, and the commands of `specfleet` by name; a group's name precedes its commands."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import typer.main
from typer.models import CommandInfo

from specfleet import cli
from specfleet.cli.entry import app


class Said(NamedTuple):
    """The exit status of a command, and what it printed."""

    status: int
    out: str
    err: str


Say = Callable[..., Said]
"""Runs `specfleet` with words, as the fixture `say` does."""


def run_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object) -> Said:
    """Run `specfleet` with words."""
    monkeypatch.setattr(sys, "argv", ["specfleet", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return Said(int(end.value.code or 0), *capsys.readouterr())


def all_commands() -> dict[str, Any]:
    return _commands(typer.main.get_command(app))


def all_functions() -> dict[str, Callable[..., Any]]:
    return {name: info.callback for name, info in registered(app).items() if info.callback}


def registered(typed: typer.Typer, before: str = "") -> dict[str, CommandInfo]:
    infos = {
        f"{before}{info.name or getattr(info.callback, '__name__', '')}": info for info in typed.registered_commands
    }
    for group in typed.registered_groups:
        if group.typer_instance is not None:
            infos |= registered(group.typer_instance, f"{before}{group.name} ")
    return infos


def _commands(group: Any, before: str = "") -> dict[str, Any]:
    listed: dict[str, Any] = {}
    for name, command in group.commands.items():
        within = hasattr(command, "commands")
        listed |= _commands(command, f"{before}{name} ") if within else {f"{before}{name}": command}
    return listed
