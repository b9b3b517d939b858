"""What commands say that they kept, when a signal ends them while they read or sweep."""

import fcntl
import os
import struct
import termios
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from specfleet.fleet.interrupts import Interrupted
from tests.helpers.cli import Say
from tests.helpers.marks import slow
from tests.helpers.processes import SIGNALS, assert_ended_by, ended, eventually, is_asleep, specfleet, tell

READERS = {  # commands that read a scenario: what they are given, and what they say that they kept
    "simulate": (["-o", "OUT"], "nothing was written to OUT"),
    "sweep": (["-o", "OUT", "--vary", "seed=1:3"], "kept: 0 of 3 cells in OUT; the same command goes on from there"),
    "run": (["-o", "OUT"], "nothing was written to OUT"),
    "plan": (["-o", "OUT"], "nothing was written to OUT"),
    "node drafter": (["-o", "OUT"], "nothing was written"),
}


@pytest.mark.parametrize("how", SIGNALS)
@pytest.mark.parametrize("name", [name if name == "simulate" else slow(name) for name in READERS])
def test_a_signal_during_input_reports_that_nothing_was_written(name: str, how: str, tmp_path: Path) -> None:
    pipe, out = tmp_path / "scenario.toml", tmp_path / "out"
    os.mkfifo(pipe)
    arguments, kept = READERS[name]
    process = specfleet(*name.split(), pipe, *(str(out) if argument == "OUT" else argument for argument in arguments))
    writers: list[int] = []

    def is_open() -> bool:
        try:
            writers.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:  # no reader has opened it yet
            return False
        return True

    def is_read() -> bool:
        """Whether what was written is taken, and more is waited for: Python sees no signal just before it waits."""
        unread = struct.unpack("i", fcntl.ioctl(writers[0], termios.FIONREAD, bytes(4)))[0]
        return unread == 0 and is_asleep(process)

    assert eventually(is_open, process)
    os.write(writers[0], b"# ")
    assert eventually(is_read, process)
    tell(process, how)
    assert assert_ended_by(process, how, kept.replace("OUT", str(out))) == ""
    assert not out.exists()
    os.close(writers[0])


@pytest.mark.parametrize("how", SIGNALS)
def test_an_interrupted_plan_says_the_best_so_far(how: str, monkeypatch: pytest.MonkeyPatch, say: Say) -> None:
    def begun(*_: object, done: Callable[[str], None], **_more: object) -> None:
        done("method 1 of 2; best so far: 3 x target")
        raise Interrupted(SIGNALS[how][0])

    monkeypatch.setattr("specfleet.plan", begun)
    assert say("plan", "star").err.splitlines()[-1].endswith("; method 1 of 2; best so far: 3 x target")


@pytest.mark.parametrize(("how", "jobs"), [("SIGTERM", 1), slow("SIGTERM", 2), slow("Ctrl-C", 2)])
def test_an_interrupted_sweep_keeps_its_cells_and_resumes(how: str, jobs: int, tmp_path: Path) -> None:
    out = tmp_path / "out"
    endless = ["--vary", "workload.requests=12,16,200000", "--seeds", "1", "--jobs", str(jobs)]
    process = specfleet("sweep", "star", *endless, "-o", out)
    assert eventually((out / "cells" / "workload.requests=16.json").exists, process)
    tell(process, how)
    said = f"kept: 2 of 3 cells in {out}; the same command goes on from there"
    assert all(line.startswith("sweep, ") for line in assert_ended_by(process, how, said).splitlines())
    assert set(pd.read_csv(out / "sweep.csv")["workload.requests"]) == {12, 16}
    assert not list(out.rglob("*.part"))
    kept = {path: path.stat().st_mtime_ns for path in (out / "cells").iterdir()}
    status, _, err = ended(specfleet("sweep", "star", "--vary", "workload.requests=12,16", "--seeds", "1", "-o", out))
    assert status == 0, err
    assert {path: path.stat().st_mtime_ns for path in (out / "cells").iterdir()} == kept
