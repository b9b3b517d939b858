"""Sweeps that are killed at any call that changes a file, and killed again: their results are those of others."""

import os
import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from specfleet.experiments.sweep.sweep import cells_of, sweep
from specfleet.fleet.scenario.reading import change_scenario
from tests.helpers.stars import star

CALLS = ("write", "replace")


def swept(folder: Path) -> None:
    small = star(workload={"requests": 6, "prompt_tokens": 8, "new_tokens": 8})
    cells = cells_of({"verifiers.count": [1, 2]})
    sweep([(cell, change_scenario(small, cell)) for cell in cells], folder, seeds=1)


def ends(folder: Path, killed_at: int) -> bool:
    """Sweep in a process that dies at a call, half of its bytes written; False if it died."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    numbers = count()

    def deadly(call: Callable[..., Any]) -> Callable[..., Any]:
        def may_die(*arguments: Any, **options: Any) -> Any:
            if next(numbers) == killed_at:
                if call is write:
                    write(arguments[0], arguments[1][: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return may_die

    write, os.fsync = os.write, lambda _file: None  # a killed process needs no disk
    for name in CALLS:
        setattr(os, name, deadly(getattr(os, name)))
    try:
        swept(folder)
        os._exit(0)
    finally:
        os._exit(1)


def results(folder: Path) -> dict[str, bytes]:
    files = [file for file in folder.rglob("*") if file.is_file() and file.suffix != ".part"]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def test_no_kill_changes_the_results_of_a_sweep(tmp_path: Path) -> None:
    swept(tmp_path / "whole")
    whole, deaths = results(tmp_path / "whole"), 0
    for number in count():
        folder = tmp_path / str(number)
        if ends(folder, number):
            break
        deaths += 1 + (not ends(folder, number))
        assert ends(folder, -1)
        assert results(folder) == whole, f"killed at call {number}"
    assert deaths > 1.5 * number >= 6
