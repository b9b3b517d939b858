"""The command line in this process."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from specfleet import cli


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
