"""Fleets of real processes that end early, by a signal or by a killed node, leave no process and no file."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from specfleet.fleet.records.run import read_run
from tests.helpers.marks import slow
from tests.helpers.processes import (
    ROOT,
    SIGNALS,
    alive,
    assert_ended_by,
    ended,
    eventually,
    is_asleep,
    specfleet,
    state_of,
    tell,
)

BUSY_S = 30.0  # that a crowded machine may take for what takes no time


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
    kept = [f"kept: {number} files in {out}" for number in range(100) if command == "demo"]  # by how far it came
    said = assert_ended_by(process, how, f"nothing was written to {out}", *kept)
    assert command == "run" or all(line.startswith("demo, ") for line in said.splitlines())


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
def test_a_killed_node_ends_the_run_in_one_line(kind: str, victim: int, tmp_path: Path) -> None:
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
    lines = []
    for line in process.stderr:  # behind notes on cores
        lines.append(line.strip())
        if line.startswith("specfleet: "):
            break
    said_s = time.monotonic() - killed_s
    line = lines[-1]
    status, printed, err = ended(process)
    assert (status, printed, err) == (1, "", ""), lines
    how = "was killed by SIGKILL|died while it started"
    assert re.fullmatch(rf"specfleet: .* ({how}); the run is ended, and nothing was written", line), lines
    assert said_s < 1.0 + BUSY_S  # a second, on a host that does nothing else
    assert eventually(lambda: not alive(process.pid)), f"left behind: {alive(process.pid)}"
    assert left_in(temporary) == []
    assert not out.exists()


@pytest.mark.parametrize("how", [slow("Ctrl-C"), "SIGTERM"])
@pytest.mark.parametrize("what", ["stall", slow("kill")])
def test_an_ended_run_removes_stopped_and_dead_nodes(what: str, how: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    temporary, out, scenario = tmp_path / "tmp", tmp_path / "out", tmp_path / "scenario.toml"
    temporary.mkdir()
    scenario.write_text(
        (ROOT / "fleet" / "data" / "scenarios" / "star.toml").read_text()
        + f'\n[[faults]]\nwhat = "{what}"\nnode = "drafter"\nat_s = 0.5\nfor_s = 1000.0\n'
    )
    more = [*REPLAYED, *PATIENT, "--set", "workload.requests=5000", "-o", out]
    process = specfleet("run", scenario, *more, env={"TMPDIR": str(temporary)})
    nodes: list[int] = []

    def is_hit() -> bool:
        nodes[:] = nodes if len(nodes) == 2 else nodes_of(process)
        if len(nodes) < 2:
            return False
        if what == "kill":
            return nodes[0] not in alive(process.pid)
        return state_of(Path(f"/proc/{nodes[0]}/stat"))[0] == "T"

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
    at = f"{tmp_path}/own/drafter"
    drafter = specfleet("node", "drafter", "star", "--at", at, *endless, "-o", tmp_path / "drafter")
    assert drafter.stderr.readline() == f"drafter: serves this user alone, without keys, at {at}\n"
    target = specfleet("node", "target", "star", "--connect", at, *endless, "-o", tmp_path / "target")
    assert target.stderr.readline() == f"target 1: drafts come from {at}\n"
    tell(target, how)
    assert_ended_by(target, how, f"kept: the records until then in {tmp_path / 'target'}")
    tell(drafter, how)
    assert_ended_by(drafter, how, f"kept: the records until then in {tmp_path / 'drafter'}")
    for name in ("drafter", "target"):
        assert read_run(tmp_path / name).header.scenario.workload.requests == 100000
