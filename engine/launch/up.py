"""A fleet of nodes on this host, each a command of its own with its log and its records, as on several hosts."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from engine.launch.runnable import check_by_hand
from fleet.errors import NodeDiedError
from fleet.interrupts import unseen
from fleet.scenario.names import DRAFTER, ROUTER, drafter_name, verifier_name
from fleet.scenario.resolve import resolve
from fleet.scenario.resolved import Fleet
from fleet.scenario.scenario import Scenario

HOST = "127.0.0.1"
TARGETS = "verifier"  # begins the names of targets
PAUSE_S = 0.1
END_S = 20.0  # from asking a node to end until it is killed; it writes its records in between

Say = Callable[[str], None]
Commands = dict[str, list[str]]


def up(scenario: Scenario, file: str, changes: Sequence[str], folder: Path, say: Say) -> None:
    """Start every node of a scenario, wait until the targets are done, then end the others.

    - `file`, `changes`: the scenario as the nodes get it: its file or shipped name, and texts KEY=VALUE.
    - `folder`: where each node has its log and its records, under its station's name.
    - `say`: is called with a line for each node that starts or ends.

    Raises InputError for a scenario that nodes by hand cannot run, and NodeDiedError if a node fails. A signal ends all
    nodes; each writes its records.
    """
    fleet = resolve(scenario)
    check_by_hand(fleet)
    own = [part for change in changes for part in ("--set", change)]
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        nodes = {}
        for name, words in commands_of(fleet, file).items():
            log = stack.enter_context((folder / f"{name}.log").open("w"))
            command = [sys.executable, "-m", "specfleet", *words, *own, "-o", str(folder / f"{name}.parquet")]
            with unseen(signal.SIGINT):  # Ctrl-C of the terminal ends them through this process
                nodes[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)  # noqa: S603 (our own)
            stack.callback(end, [nodes[name]])
            say(f"{name}: {' '.join(words)}; log {folder / f'{name}.log'}")
        try:
            wait_for(nodes, folder, say)
        finally:
            end(list(nodes.values()))


def commands_of(fleet: Fleet, file: str) -> Commands:
    """Return the command of each node by its station's name, drafters first; `file`: the scenario's."""
    M = fleet.drafters.stations
    drafters = [f"{HOST}:{port}" for port in free_ports(M)]
    commands = {
        drafter_name(number, M): [DRAFTER, file, "--number", str(number + 1), "--port", address.rpartition(":")[2]]
        for number, address in enumerate(drafters)
    }
    connect = drafters
    if fleet.routed:
        (port,) = free_ports(1)
        commands[ROUTER] = [ROUTER, file, "--drafters", ",".join(drafters), "--port", str(port)]
        connect = [f"{HOST}:{port}"]
    to = ["--connect", ",".join(connect)] if connect else []
    N = fleet.verifiers.count
    if fleet.verifiers.kind == "replayed":  # they share a process
        return commands | {TARGETS: ["verifier", file, *to, "--target", f"1-{N}" if N > 1 else "1"]}
    return commands | {
        verifier_name(target): ["verifier", file, *to, "--target", str(target + 1)] for target in range(N)
    }


def free_ports(count: int) -> list[int]:
    """Return so many ports that are free now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]


def wait_for(nodes: Mapping[str, subprocess.Popen[bytes]], folder: Path, say: Say) -> None:
    """Wait until all targets are done; NodeDiedError, with the last line of its log, if a node ends otherwise."""
    targets = {name for name in nodes if name.startswith(TARGETS)}
    done: set[str] = set()
    while done < targets:
        for name, node in nodes.items():
            if name in done or node.poll() is None:
                continue
            if name not in targets or node.returncode:
                raise NodeDiedError(f"{name} ended early: {last_line(folder / f'{name}.log')}")
            done.add(name)
            say(f"{name}: done")
        time.sleep(PAUSE_S)


def last_line(log: Path) -> str:
    """Return the last line of a node's log."""
    lines = log.read_text().strip().splitlines()
    return lines[-1] if lines else f"{log} is empty"


def end(nodes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Let nodes end after their step and write their records; kill those that do not."""
    for node in nodes:
        if node.poll() is None:
            node.send_signal(signal.SIGTERM)
    limit_s = time.monotonic() + END_S
    for node in nodes:
        try:
            node.wait(max(limit_s - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            node.kill()
            node.wait()
