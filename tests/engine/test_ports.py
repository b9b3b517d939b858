"""One law for every port of every fleet: no stranger and no peer there ends a node, or changes an honest text."""

import contextlib
import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

pytest.importorskip("zmq")

from specfleet.engine.net import access
from specfleet.engine.net.actions import NO_PEER, Send
from specfleet.engine.net.clock import now_s
from specfleet.engine.net.frames import pack
from specfleet.engine.net.handshake import Alive
from specfleet.engine.net.keys import ANY, Keys
from specfleet.engine.net.limits import max_bytes
from specfleet.engine.net.sockets import Sockets
from specfleet.engine.node.node import LOOPBACK, Site, drafting_node
from specfleet.engine.node.router import router_node
from specfleet.fleet.records.run import read_run
from specfleet.fleet.scenario.reading import read_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from tests.engine.test_nodes import toy_target
from tests.engine.test_strangers import Ring
from tests.fuzz.attackers import Attacker
from tests.helpers.processes import alive, ended, eventually, specfleet
from tests.helpers.threads import Threads
from tests.helpers.toys import ToyDrafter, toy_fleet, truth
from tests.helpers.zmtp import GREETING, MORE, connected, framed

HONEST, FRAMES, PATIENCE_S = 2, 300, 30.0  # targets, frames of each attacker
SEATS = (0, 2, 3)  # of dishonest peers; the first is taken
OPENINGS = {  # of a connection, instead of a greeting
    "text": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "ZMTP 1": b"\x01\x00\x06\x00hello\x06\x00again",
    "ZMTP 1, in parts": b"\x01\x00\x06\x01hello\x06\x00again",
    "ZMTP 2": b"\xff" + bytes(8) + b"\x7f\x01\x05\x00\x00\x00\x05hello\x00\x05again",
    "no bytes": b"",
    "half a greeting": GREETING[:30],
    "a greeting alone": GREETING,
    "another mechanism": GREETING[:12] + b"PLAIN" + bytes(15) + b"\0" + bytes(31),
    "metadata without an end": GREETING + b"\x04\x1a\x05READY\x0bSocket-Type\xff\xff\xff\xff",
    "another kind of socket": GREETING + b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PUB",
    "a command without an end": GREETING + b"\x06" + b"\xff" * 8 + bytes(99),
    "frames before its metadata": GREETING + framed(b"hello"),
}
CLAIMS = (b"\0", b"\0\0\0\0\1", b"x" * 200, b"twice", b"twice")  # routing ids
MESSAGES = {  # of a connection, after the greeting
    "junk": framed(b"no frame at all"),
    "several parts": framed(pack(Alive()), MORE) + framed(b"more"),
    "too large": bytes([2]) + (1 << 40).to_bytes(8, "big"),
    "a frame without an end": bytes([2]) + (1 << 63).to_bytes(8, "big") + bytes(999),
    "a negative size": bytes([2]) + b"\xff" * 8,
    "a flood": framed(pack(Alive())) * 200,
}


def knock(port: int, kept: contextlib.ExitStack) -> None:
    """Open connections in all wrong ways; they stay open."""
    for sent in OPENINGS.values():
        stream = kept.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
        with contextlib.suppress(OSError):
            stream.sendall(sent)
    for claims, sent in [
        *((claim, framed(pack(Alive()))) for claim in CLAIMS),
        *((b"", each) for each in MESSAGES.values()),
    ]:
        with contextlib.suppress(OSError, AssertionError):
            stream = kept.enter_context(connected(port, claims=claims))
            stream.sendall(sent)


def strike(fleet: Fleet, port: int, attacker: Attacker, keys: Keys | None) -> None:
    """Send FRAMES frames of an attacker, over a new connection after each cut."""
    sockets = Sockets(connect={0: f"{LOOPBACK}:{port}"}, max_bytes=max_bytes(fleet), keys=keys)
    for _ in range(FRAMES):
        sockets.send(Send(0, NO_PEER, attacker.next_frame()))
        for came in sockets.poll(0.001):
            attacker.receive(came.frame)
    sockets.close()


def attack(
    fleet: Fleet, port: int, seats: Iterable[int] = (), stranger: Keys | None = None, known: Keys | None = None
) -> None:
    """Let everybody attack a port at once.

    - `seats`: of dishonest peers. `stranger`, `known`: keys, if the port has keys.
    """
    attackers = [(None, stranger), *((seat, known if seat >= HONEST else stranger) for seat in seats)]
    with Threads() as threads, contextlib.ExitStack() as kept:
        works: list[Callable[[], object]] = [lambda: knock(port, kept)]
        for place, (number, keys) in enumerate(attackers):
            attacker = Attacker(fleet, f"attacker {place}", np.random.default_rng(place), number, bad=0.4)
            works.append(lambda attacker=attacker, keys=keys: strike(fleet, port, attacker, keys))  # type: ignore[misc]
        for thread in [threads.start(work) for work in works]:
            thread.result()


@pytest.mark.parametrize("closed", [False, True], ids=["open", "with keys"])
@pytest.mark.parametrize("at", ["drafter", "router", "drafter behind a router"])
def test_no_attack_on_a_port_changes_a_text_or_ends_a_node(
    at: str, closed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "STRANGER_S", 1.0)
    routed: dict[str, object] = {} if at == "drafter" else {"count": 2, "route": "round-robin"}
    workload = {"requests": 200, "prompt_tokens": 8, "new_tokens": 24}
    fleet = toy_fleet(verifiers={"count": HONEST + 2}, drafters=routed, workload=workload)
    keys: dict[str, Keys] = {}
    if closed:
        ring = Ring(tmp_path)
        ring.allow("drafter")
        node_keys = replace(ring.own, servers={ANY: ring.own.public})
        keys = {"node": node_keys, "known": ring.of("alice"), "stranger": ring.of("mallory")}
    here, there = Site(keys=keys.get("node")), Site(keys=keys.get("known"))
    nodes = [
        drafting_node(fleet, number, ToyDrafter(trusts=True), "replayed", here)
        for number in range(fleet.drafters.count)
    ]
    if routed:
        nodes.append(router_node(fleet, {n: f"{LOOPBACK}:{node.port}" for n, node in enumerate(nodes)}, 0, here))
    targets = [toy_target(fleet, number, nodes[-1].port, site=there) for number in range(HONEST)]
    attacked = nodes[-1 if at == "router" else 0]
    assert attacked.socket_thread is not None
    monitor, server = attacked.socket_thread.sockets.monitor, attacked.socket_thread.connections.server
    assert monitor is not None
    assert server is not None
    with Threads() as threads:
        for node in nodes:
            node.open()
        serving = [threads.start(lambda node=node: node.serve(now_s())) for node in nodes]  # type: ignore[misc]
        for target in targets:
            target.open()
            target.wait_for_welcomes(PATIENCE_S)
        attacking = threads.start(lambda: attack(fleet, attacked.port, SEATS, keys.get("stranger"), keys.get("known")))
        decoding = [threads.start(lambda node=node: node.serve(now_s())) for node in targets]  # type: ignore[misc]
        for thread in [attacking, *decoding]:
            thread.result()
        assert eventually(lambda: len(monitor.open) <= 1)  # at most that of a router
        for node, thread in zip(nodes, serving, strict=True):
            node.stop()
            thread.result()
    for target in targets:
        outputs = target.worker.executor.outputs  # type: ignore[attr-defined]
        assert len(outputs) == 50
        assert all(text == truth(request, 8, 32) for request, text in outputs.items())
        assert "refusal" not in target.worker.recorded.log
    assert server.counts["malformed"] > 0


ROUTED = """name = "attacked"
profile = {name = "stated", draft = {base_s = 0.01}, verify = {base_s = 0.02}, draft_prefill = {base_s = 0.01}}
drafters = {kind = "replayed", count = 2, route = "round-robin"}
verifiers = {kind = "replayed", count = 2}
acceptance = {model = "geometric", beta = 0.7}
workload = {requests = 24, prompt_tokens = 8, new_tokens = 32}
"""


def ports_of(session: int) -> set[int]:
    """Return the ports at which processes of a session listen."""
    sockets = set()
    for pid in alive(session):
        for file in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(file).removeprefix("socket:[").removesuffix("]"))
    listed = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(fields[1].partition(":")[2], 16) for fields in listed if fields[3] == "0A" and fields[9] in sockets}


def test_no_attack_on_the_ports_of_a_run_changes_it(tmp_path: Path) -> None:
    """Nodes of a run have no keys; the first peer with a number has it, and all are taken."""
    file, out = tmp_path / "fleet.toml", tmp_path / "run.parquet"
    file.write_text(ROUTED)
    process, fleet = specfleet("run", file, "-o", out), resolve(read_scenario(file))
    assert eventually(lambda: len(ports_of(process.pid)) == 3, process)
    with Threads() as threads:
        for thread in [threads.start(lambda port=port: attack(fleet, port)) for port in ports_of(process.pid)]:  # type: ignore[misc]
            thread.result()
    assert process.poll() is None, "the run ended before the attack"
    status, _, err = ended(process)
    assert status == 0, err
    rows = read_run(out).frame()
    assert not (rows.event == "refusal").any()
    verified = rows.query("event == 'done' and kind == 'verify'")
    assert ((verified.base + verified.accepted + 1).groupby(verified.request).max() >= 40).tolist() == [True] * 24
