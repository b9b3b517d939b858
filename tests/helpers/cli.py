"""The command line in this process."""

import sys

import pytest

from specfleet import cli


def run_cli(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run `specfleet` with arguments; return its exit status."""
    monkeypatch.setattr(sys, "argv", ["specfleet", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return int(end.value.code or 0)
