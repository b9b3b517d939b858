"""How programs end: real signals to real processes, closed and full outputs, and the statuses that are documented."""

import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pandas as pd
import pytest

from experiments.terminal.exits import STATUSES
from fleet.records.run import read_run
from specfleet.reference.command_line import all_commands
from tests.helpers.clusters import local_cluster
from tests.helpers.marks import slow
from tests.helpers.processes import ROOT, alive, ended, eventually, is_asleep, specfleet, start, state_of

SIGNALS = {"Ctrl-C": (signal.SIGINT, "interrupted"), "SIGTERM": (signal.SIGTERM, "ended by SIGTERM")}
COMMANDS = all_commands()
BUSY_S = 30.0  # that a crowded machine may take for what takes no time
SMALL = ["--set", "workload.requests=12", "--set", "workload.new_tokens=24"]


def tell(process: subprocess.Popen[str], how: str) -> None:
    """Send the signal: Ctrl-C goes to all processes of a terminal, `kill` to the one that it names."""
    if how == "Ctrl-C":
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(SIGNALS[how][0])


def is_caught(process: subprocess.Popen[str]) -> bool:
    """Whether a process has a handler for SIGTERM by now."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:")).split()[1]
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def assert_ended_by(process: subprocess.Popen[str], how: str, *kept: str) -> str:
    """The status, the one line, nothing on standard output, nobody left; return what else was on standard error."""
    status, out, err = ended(process)
    number, line = SIGNALS[how]
    assert (status, out) == (128 + number, ""), err
    *others, last = err.strip().splitlines()
    assert last.partition(": ")[2] in [f"{line}; {one}" for one in kept]
    assert "Traceback" not in err
    assert eventually(lambda: not alive(process.pid)), f"left behind: {alive(process.pid)}"
    return "\n".join(others)


# Every command, whatever it does.


def needed(name: str) -> list[str]:
    """Arguments that a command cannot do without, taken from its definition."""
    words = []
    for param in COMMANDS[name].params:
        if param.required:
            words += ["x=1"] if param.param_type_name == "argument" else [param.opts[0], "x=1"]
    return words


IDLE = """
import functools, signal, sys
from specfleet.cli import entry, main
from specfleet.reference.command_line import registered

def idle(command):
    return functools.wraps(command)(lambda **_: (print("ready", file=sys.stderr, flush=True), signal.pause()))

for command in registered(entry.app).values():
    command.callback = idle(command.callback)
main()
"""


@pytest.mark.parametrize("how", SIGNALS)
@pytest.mark.parametrize("name", [name if name == "explain" else slow(name) for name in COMMANDS])
def test_every_command_ends_by_a_signal_with_its_status_and_one_line(name: str, how: str) -> None:
    """The command proper waits for ever; what is around it is what a user runs."""
    process = start("-c", IDLE, *name.split(), *needed(name))
    assert process.stderr is not None
    assert process.stderr.readline() == "ready\n"
    tell(process, how)
    assert assert_ended_by(process, how, "nothing was written") == ""


PROGRAMS: dict[str, tuple[list[str], list[str]]] = {  # arguments to go on for long; those that name a place
    "bench": ([], ["--only", "scale", "--figure", "OUT.png"]),
    "modes": (["-o", "OUT"], ["-o", "OUT"]),
    "scale": (["-o", "OUT"], ["-o", "OUT"]),
    "replayed": (["-o", "OUT"], ["-o", "OUT"]),
    "coverage": (["-o", "OUT.csv"], ["-o", "OUT.csv"]),
    "grids": (["-o", "OUT.csv"], ["-o", "OUT.csv"]),
    "screening": (["-o", "OUT.csv"], ["-o", "OUT.csv"]),
    "zoo": (["-o", "OUT.csv"], ["-o", "OUT.csv"]),
    "gpu_check": (
        ["--device", "cpu", "--tiny", "--part", "laws", "--out", "OUT"], ["--device", "cpu", "--tiny", "--out", "OUT"]
    ),
}  # fmt: skip


def program(name: str, arguments: list[str], out: Path) -> subprocess.Popen[str]:
    return start("-m", f"experiments.{name}", *(argument.replace("OUT", str(out)) for argument in arguments))


def test_these_are_all_programs_of_experiments() -> None:
    folder = ROOT / "experiments"
    programs = {file for file in folder.rglob("*.py") if "__main__" in file.read_text().replace("__main__.py", "")}
    assert programs == {folder / name / "__main__.py" for name in PROGRAMS}


@pytest.mark.parametrize("how", SIGNALS)
@pytest.mark.parametrize("name", [name if name == "bench" else slow(name) for name in PROGRAMS])
def test_programs_of_experiments_end_in_the_same_way(name: str, how: str, tmp_path: Path) -> None:
    """From their first import on: libraries take seconds. Past the imports, they name the place that stayed empty."""
    process = program(name, PROGRAMS[name][0], tmp_path / "out")
    assert eventually(lambda: is_caught(process), process)
    tell(process, how)
    empty = [f"nothing was written to {tmp_path / place}" for place in ("out", "out.csv")]
    others = assert_ended_by(process, how, "nothing was written", *empty)
    assert name == "gpu_check" or others == "", "only that one tells what it begins"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, (_, place) in PROGRAMS.items() if place])
def test_programs_of_experiments_try_their_place_before_they_run(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    status, out, err = ended(program(name, PROGRAMS[name][1], tmp_path / "file" / "out"))
    assert (status, out, len(err.splitlines())) == (2, "", 1), err
    assert str(tmp_path / "file") in err


# What was kept.

READERS = {  # commands that read a scenario: what they are given, and what they say that they kept
    "show": ([], "nothing was written"),
    "simulate": (["-o", "OUT"], "nothing was written to OUT"),
    "sweep": (["-o", "OUT", "--vary", "seed=1:3"], "kept: 0 of 3 cells in OUT; the same command goes on from there"),
    "analytic": ([], "nothing was written"),
    "run": (["-o", "OUT"], "nothing was written to OUT"),
    "drafter": (["-o", "OUT"], "nothing was written"),
    "verifier": (["-o", "OUT"], "nothing was written"),
}


@pytest.mark.parametrize("how", SIGNALS)
@pytest.mark.parametrize("name", [name if name == "simulate" else slow(name) for name in READERS])
def test_a_signal_while_input_is_read_says_that_nothing_was_written(name: str, how: str, tmp_path: Path) -> None:
    pipe, out = tmp_path / "scenario.toml", tmp_path / "out"
    os.mkfifo(pipe)
    arguments, kept = READERS[name]
    process = specfleet(name, pipe, *(str(out) if argument == "OUT" else argument for argument in arguments))
    writers: list[int] = []

    def is_open() -> bool:
        try:
            writers.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:  # nobody has opened it to read
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


@pytest.mark.parametrize(("how", "jobs"), [("SIGTERM", 1), slow("SIGTERM", 2), slow("Ctrl-C", 2)])
def test_an_interrupted_sweep_keeps_its_cells_and_its_table_and_goes_on_from_there(
    how: str, jobs: int, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    endless = ["--vary", "workload.requests=12,16,200000", "--seeds", "1", "--jobs", str(jobs)]
    process = specfleet("sweep", "star", *endless, "-o", out)
    assert eventually((out / "cells" / "workload.requests=16.json").exists, process)
    assert eventually(lambda: set(pd.read_csv(out / "sweep.csv")["workload.requests"]) == {12, 16}, process)
    tell(process, how)
    said = f"kept: 2 of 3 cells in {out}; the same command goes on from there"
    assert assert_ended_by(process, how, said) == ""
    assert set(pd.read_csv(out / "sweep.csv")["workload.requests"]) == {12, 16}
    assert not list(out.rglob("*.part"))
    kept = {path: path.stat().st_mtime_ns for path in (out / "cells").iterdir()}
    status, _, err = ended(specfleet("sweep", "star", "--vary", "workload.requests=12,16", "--seeds", "1", "-o", out))
    assert status == 0, err
    assert {path: path.stat().st_mtime_ns for path in (out / "cells").iterdir()} == kept


@pytest.mark.parametrize("how", ["SIGTERM", slow("Ctrl-C")])
def test_an_interrupted_sweep_on_a_cluster_keeps_its_cells_and_leaves_the_cluster_alone(
    how: str, tmp_path: Path
) -> None:
    pytest.importorskip("distributed")
    out = tmp_path / "out"
    some = ["--vary", "workload.requests=12,16,100000", "--set", "workload.new_tokens=24", "--seeds", "1", "-o", out]
    with local_cluster(tmp_path / "cluster") as two:
        process = specfleet("sweep", "star", *some, "--path", "simpy", "--cluster", two.address)
        assert eventually((out / "sweep.csv").exists, process)
        assert eventually(lambda: set(pd.read_csv(out / "sweep.csv")["workload.requests"]) == {12, 16}, process)
        tell(process, how)
        said = f"kept: 2 of 3 cells in {out}; the same command goes on from there"
        assert assert_ended_by(process, how, said) == ""
        assert [one.poll() for one in (two.scheduler, *two.workers)] == [None, None, None]


def test_a_cluster_that_is_lost_ends_a_sweep_in_one_line_and_says_what_was_kept(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    out = tmp_path / "out"
    some = ["--vary", "workload.requests=12,100000", "--set", "workload.new_tokens=24", "--seeds", "1", "-o", out]
    with local_cluster(tmp_path / "cluster") as two:
        process = specfleet("sweep", "star", *some, "--path", "simpy", "--cluster", two.address)
        assert eventually((out / "sweep.csv").exists, process)
        two.scheduler.kill()
        status, printed, err = ended(process)
    kept = f"kept: 1 of 2 cells in {out}; the same command goes on from there"
    assert (status, printed, err) == (1, "", f"specfleet: cluster {two.address}: the scheduler is gone; {kept}\n")


@pytest.mark.slow
@pytest.mark.parametrize("how", SIGNALS)
@pytest.mark.parametrize("command", ["run", "demo"])
def test_no_process_of_a_fleet_is_left_behind(command: str, how: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "out"
    arguments = {"run": ["star", "--set", "workload.requests=5000", "-o", out], "demo": ["--short", "--out", out]}
    process = specfleet(command, *arguments[command])
    nodes = 6 if command == "run" else 4  # itself, two that serve it, and of its nodes so many that it runs
    assert eventually(lambda: len(alive(process.pid)) >= nodes, process)
    tell(process, how)
    if command == "run":
        assert_ended_by(process, how, f"nothing was written to {out}")
    else:
        assert_demo_ended(process, how)


def assert_demo_ended(process: subprocess.Popen[str], how: str) -> None:
    """A demo keeps continuations before anything else; how many files there are depends on the moment."""
    status, out, err = ended(process)
    assert (status, out) == (128 + SIGNALS[how][0], "")
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1
    assert eventually(lambda: not alive(process.pid)), f"left behind: {alive(process.pid)}"


def left_in(temporary: Path) -> list[Path]:
    """Files and folders in a temporary one, but for the cache that torch makes when it is imported."""
    return [place for place in temporary.iterdir() if not place.name.startswith("torchinductor")]


REPLAYED = ["--set", "drafters.kind=replayed", "--set", "verifiers.kind=replayed"]
PATIENT = ["--set", "verifiers.patience_s=0.2", "--set", "drafters.lease_s=1.0"]


def in_order(pids: list[int]) -> list[int]:
    """Processes by when they were started."""
    return sorted(pids, key=lambda pid: int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]))


def nodes_of(launcher: subprocess.Popen[str]) -> list[int]:
    """The processes of a fleet's nodes, in the order of their start: those that talk with the launcher by a pipe."""
    found = []
    for pid in alive(launcher.pid):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_text()
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            above = Path(f"/proc/{parent}/cmdline").read_text()
        except OSError:
            continue
        if "spawn_main" in command or ("forkserver" in command and "forkserver" in above):
            found.append(pid)
    return in_order(found)


@pytest.mark.parametrize(
    ("kind", "victim"), [("replayed", 0), slow("replayed", 1), *(slow("models", number) for number in (0, 1, 4))]
)
def test_a_node_that_is_killed_from_outside_ends_the_run_within_a_second_and_in_one_line(
    kind: str, victim: int, tmp_path: Path
) -> None:
    """Drafter or target; nothing is left: no process, no file."""
    pytest.importorskip("torch")
    temporary, out = tmp_path / "a-folder-whose-name-leaves-no-room-for-a-socket-in-it", tmp_path / "out"
    temporary.mkdir()
    more = REPLAYED if kind == "replayed" else []
    arguments = ["run", "star", *more, "--set", "workload.requests=5000", "-o", out]
    process = specfleet(*arguments, env={"TMPDIR": str(temporary)})
    count = 2 if kind == "replayed" else 5
    assert eventually(lambda: len(nodes_of(process)) == count and is_asleep(process), process)
    os.kill(nodes_of(process)[victim], signal.SIGKILL)
    killed_s = time.monotonic()
    assert process.stderr is not None
    told = []
    for line in process.stderr:  # behind notes on cores
        told.append(line.strip())
        if line.startswith("specfleet: "):
            break
    said_s = time.monotonic() - killed_s
    line = told[-1]
    status, printed, err = ended(process)
    assert (status, printed, err) == (1, "", ""), told
    how = "was killed by SIGKILL|died while it started"
    assert re.fullmatch(rf"specfleet: .* ({how}); the run is ended, and nothing was written", line), told
    assert said_s < 1.0 + BUSY_S
    assert eventually(lambda: not alive(process.pid)), f"left behind: {alive(process.pid)}"
    assert left_in(temporary) == []
    assert not out.exists()


@pytest.mark.parametrize("how", [slow("Ctrl-C"), "SIGTERM"])
@pytest.mark.parametrize("what", ["stall", slow("kill")])
def test_a_run_that_is_ended_leaves_nothing_of_nodes_that_stand_still_or_are_dead(
    what: str, how: str, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    temporary, out, scenario = tmp_path / "tmp", tmp_path / "out", tmp_path / "scenario.toml"
    temporary.mkdir()
    scenario.write_text(
        (ROOT / "experiments" / "scenarios" / "star.toml").read_text()
        + f'\n[[faults]]\nwhat = "{what}"\nnode = "drafter"\nat_s = 0.5\nfor_s = 1000.0\n'
    )
    more = [*REPLAYED, *PATIENT, "--set", "workload.requests=5000", "-o", out]
    process = specfleet("run", scenario, *more, env={"TMPDIR": str(temporary)})
    known: list[int] = []

    def is_hit() -> bool:
        known[:] = known if len(known) == 2 else nodes_of(process)
        if len(known) < 2:
            return False
        if what == "kill":
            return known[0] not in alive(process.pid)
        return state_of(Path(f"/proc/{known[0]}/stat"))[0] == "T"

    assert eventually(is_hit, process)
    tell(process, how)
    assert_ended_by(process, how, f"nothing was written to {out}")
    assert left_in(temporary) == []


@pytest.mark.slow
def test_nodes_end_even_when_their_launcher_is_killed() -> None:
    pytest.importorskip("torch")
    process = specfleet("run", "star", "--set", "workload.requests=5000")
    assert eventually(lambda: len(alive(process.pid)) >= 6, process)
    process.kill()
    assert ended(process)[0] == -signal.SIGKILL
    assert eventually(lambda: not alive(process.pid)), f"left behind: {alive(process.pid)}"


@pytest.mark.slow
@pytest.mark.parametrize("how", SIGNALS)
def test_nodes_of_several_hosts_keep_their_records(how: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    endless = ["--set", "workload.requests=100000", "--set", "verifiers.count=1"]
    drafter = specfleet("drafter", "star", "--host", "127.0.0.1", "--port", "0", *endless, "-o", tmp_path / "drafter")
    assert drafter.stderr is not None
    port = drafter.stderr.readline().split()[-1]
    target = specfleet("verifier", "star", "--connect", f"127.0.0.1:{port}", *endless, "-o", tmp_path / "target")
    assert target.stderr is not None
    assert target.stderr.readline() == f"target 1: drafts come from 127.0.0.1:{port}\n"
    tell(target, how)
    assert_ended_by(target, how, f"kept: the records until then in {tmp_path / 'target'}")
    tell(drafter, how)
    assert_ended_by(drafter, how, f"kept: the records until then in {tmp_path / 'drafter'}")
    for name in ("drafter", "target"):
        assert read_run(tmp_path / name).header.scenario.workload.requests == 100000


# Where nobody reads, or nothing can be printed.


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
    assert out.exists() == (command == "simulate"), "what was asked for is written"


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


def test_the_statuses_that_are_documented_are_those_that_these_tests_hold() -> None:
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
