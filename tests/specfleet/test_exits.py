"""How programs end: by signals while they do anything, with outputs that are closed or full, by documented statuses.

`test_kept.py` has what they keep by then, `test_ended_fleets.py` fleets of several processes.
"""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from specfleet.fleet.records.run import read_run
from tests.helpers.cli import all_commands
from tests.helpers.marks import slow
from tests.helpers.processes import SIGNALS, assert_ended_by, ended, eventually, specfleet, start, tell
from tools.reference.__main__ import STATUSES

COMMANDS = all_commands()
SMALL = ["--set", "workload.requests=12", "--set", "workload.new_tokens=24"]


def is_caught(process: subprocess.Popen[str]) -> bool:
    """Whether a process has a handler for SIGTERM by now."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:")).split()[1]
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


# Every command, whatever it does.


def needed(name: str) -> list[str]:
    """Arguments that a command cannot do without, taken from its definition."""
    words = []
    for param in COMMANDS[name].params:
        if param.required:
            word = "drafter" if param.name == "role" else "x=1"
            words += [word] if param.param_type_name == "argument" else [param.opts[0], word]
    return words


IDLE = """
import functools, signal, sys
from specfleet.cli import entry, main
from tests.helpers.cli import registered

def idle(command):
    return functools.wraps(command)(lambda **_: (print("ready", file=sys.stderr, flush=True), signal.pause()))

for command in registered(entry.app).values():
    command.callback = idle(command.callback)
main()
"""


@pytest.mark.parametrize("how", SIGNALS)
@pytest.mark.parametrize("name", [name if name == "explain" else slow(name) for name in COMMANDS])
def test_a_signal_ends_every_command_in_one_line(name: str, how: str) -> None:
    """The command proper waits for ever; what is around it is what a user runs."""
    process = start("-c", IDLE, *name.split(), *needed(name))
    assert process.stderr.readline() == "ready\n"
    tell(process, how)
    assert assert_ended_by(process, how, "nothing was written") == ""


@pytest.mark.parametrize("how", SIGNALS)
def test_a_study_ends_by_a_signal_in_the_same_way(how: str, tmp_path: Path) -> None:
    """From its first import on: libraries take seconds. Past the imports, it names the place that stayed empty."""
    process = start("-m", "bench", "coverage", "-o", str(tmp_path / "out"))
    assert eventually(lambda: is_caught(process), process)
    tell(process, how)
    assert_ended_by(process, how, "nothing was written", f"nothing was written to {tmp_path / 'out'}")
    assert not list(tmp_path.iterdir())


def test_a_study_tries_its_place_before_it_runs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    status, out, err = ended(start("-m", "bench", "coverage", "-o", str(tmp_path / "file" / "out")))
    assert (status, out, len(err.splitlines())) == (2, "", 1), err
    assert str(tmp_path / "file") in err


# Where the reader is gone, or nothing can be printed.


@pytest.mark.parametrize("command", ["scenarios", slow("--help"), slow("simulate")])
def test_output_that_nobody_reads_ends_it_quietly(command: str, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    out = tmp_path / "run.parquet"
    more = ["star", *SMALL, "-o", out] if command == "simulate" else []
    process = specfleet(command, *more, stdout=writing)
    os.close(writing)
    status, _, err = ended(process)
    assert (status, err.replace(f"records: {out}\n", "")) == (141, "")
    assert out.exists() == (command == "simulate"), "the result is written"


@pytest.mark.parametrize("command", [["scenarios"], slow(["simulate", "star", *SMALL])])
def test_a_full_standard_output_is_one_line(command: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        status, _, err = ended(specfleet(*command, stdout=full))
    assert (status, err) == (1, "specfleet: standard output: cannot be written (No space left on device)\n")


@pytest.mark.slow
def test_closed_streams_are_no_reason_to_fail(tmp_path: Path) -> None:
    out = tmp_path / "run.parquet"
    program = f'"$0" -m specfleet simulate star {" ".join(SMALL)} -o {out} >&- 2>&-'
    process = start("-c", f"import os, sys; os.execv('/bin/sh', ['sh', '-c', {program!r}, sys.executable])")
    assert ended(process) == (0, "", "")
    assert read_run(out).header.world == "sim"


# Statuses as the reference lists them.

ENDINGS = {
    0: ["analytic", "star"],
    1: ["simulate", "star", *SMALL, "--json", "-o", "/dev/full"],
    2: ["analytic", "nowhere"],
}


def test_documented_statuses_are_tested() -> None:
    signalled = {128 + number for number, _ in SIGNALS.values()}
    assert set(STATUSES) == set(ENDINGS) | signalled | {128 + signal.SIGPIPE}


@pytest.mark.parametrize("status", ENDINGS)
def test_a_command_ends_with_the_documented_status(status: int) -> None:
    ending, out, err = ended(specfleet(*ENDINGS[status]))
    assert ending == status
    assert len(err.splitlines()) == (status > 0)
    if status == 1:  # what was computed is printed
        assert json.loads(out)["metrics"]["throughput"]["value"] > 0
    else:
        assert bool(out) == (status == 0)
