"""Strangers at a port with keys: none sends a frame, ends a node, or keeps those out that have a key."""

import contextlib
import os
import re
import resource
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

pytest.importorskip("zmq")

from specfleet.engine.net import access
from specfleet.engine.net.actions import Action
from specfleet.engine.net.client import ClientEnd
from specfleet.engine.net.clock import now_s
from specfleet.engine.net.connections import ConnectionTable
from specfleet.engine.net.frames import pack
from specfleet.engine.net.handshake import Alive, Hello
from specfleet.engine.net.keys import ANY, Keys, new_pair, read_keys
from specfleet.engine.net.limits import max_bytes
from specfleet.engine.net.server import ServerEnd
from specfleet.engine.net.socket_thread import SocketThread
from specfleet.engine.net.sockets import Sockets
from specfleet.engine.node.node import Site, drafting_node
from specfleet.engine.node.router import router_node
from specfleet.fleet.errors import InputError
from tests.engine.test_nodes import toy_target
from tests.helpers.processes import alive, ended, eventually, specfleet
from tests.helpers.threads import Threads
from tests.helpers.toys import ToyDrafter, check_texts, toy_fleet

FLEET = toy_fleet()
MAX_BYTES = max_bytes(FLEET)
PATIENCE_S = 30.0
# ZeroMQ's wire protocol (ZMTP 3, without keys) by hand.
GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01" + b"NULL" + bytes(16) + b"\0" + bytes(31)
READY = b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06DEALER"


def framed(part: bytes) -> bytes:
    """A message of one part as bytes on the wire."""
    return bytes([2]) + len(part).to_bytes(8, "big") + part


HELLOS = framed(pack(Hello("verifier", 0, 1, 0, {"seed": "1"}))) * 500
OPENINGS = {  # bytes of a connection
    "text": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "ZMTP 1": b"\x01\x00\x06\x00hello\x06\x00again",
    "ZMTP 2": b"\xff" + bytes(8) + b"\x7f\x01\x05\x00\x00\x00\x05hello\x00\x05again",
    "no bytes": b"",
    "half a greeting": GREETING[:30],
    "a greeting alone": GREETING,
    "another mechanism": GREETING[:12] + b"PLAIN" + bytes(15) + b"\0" + bytes(31),
    "a greeting with keys alone": GREETING[:12] + b"CURVE" + bytes(15) + b"\0" + bytes(31),
    "junk after a greeting with keys": GREETING[:12] + b"CURVE" + bytes(15) + b"\0" + bytes(31) + b"\xff" * 999,
    "metadata without an end": GREETING + b"\x04\x1a\x05READY\x0bSocket-Type\xff\xff\xff\xff",
    "a command without an end": GREETING + b"\x06" + b"\xff" * 8 + bytes(99),
    "frames before its metadata": GREETING + framed(b"hello"),
    "a frame without keys": GREETING + READY + framed(pack(Alive())),
    "a frame without an end": GREETING + READY + bytes([2]) + (1 << 63).to_bytes(8, "big") + bytes(999),
    "a flood": GREETING + READY + HELLOS,
}


def is_closed(stream: socket.socket) -> bool:
    """Whether the other end closes the connection, after any last frames."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        stream.settimeout(max(until_s - time.monotonic(), 0.01))
        try:
            if not stream.recv(1 << 16):
                return True
        except TimeoutError:
            return False
        except OSError:
            return True
    return False


class RunningServer:
    """A server in a thread. `frames`: number of received ones; `lines`: log lines."""

    def __init__(self, keys: Keys, port: int = 0) -> None:
        self.sockets = Sockets(f"tcp://127.0.0.1:{port}", max_bytes=MAX_BYTES, keys=keys)
        self.port = port_of(self.sockets.bound)
        self.server = ServerEnd(FLEET)
        self.lines: list[str] = []
        self.frames = 0
        connections = ConnectionTable(self.server)
        original = connections.receive

        def receive(port: int, peer: bytes, frame: bytes, now_s: float) -> list[Action]:
            self.frames += 1
            return original(port, peer, frame, now_s)

        connections.receive = receive  # type: ignore[method-assign]
        self.thread = SocketThread(connections, self.sockets, lambda _: None, lambda: None, self.lines.append)

    def __enter__(self) -> "RunningServer":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.thread.end()


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


@contextmanager
def calling(port: int, keys: Keys, number: int = 0) -> Iterator[tuple[SocketThread, list[str]]]:
    """A target's client, with its log lines."""
    lines: list[str] = []
    client = ClientEnd(FLEET, number, time.time_ns(), name=f"127.0.0.1:{port}")
    sockets = Sockets(connect={0: f"tcp://127.0.0.1:{port}"}, max_bytes=MAX_BYTES, keys=keys)
    thread = SocketThread(ConnectionTable(clients={0: client}), sockets, lambda _: None, lambda: None, lines.append)
    thread.start()
    try:
        yield thread, lines
    finally:
        thread.end()


class Ring:
    """The keys of a drafter and of two targets; the drafter allows the first."""

    def __init__(self, folder: Path) -> None:
        drafter, self.public = new_pair("drafter", folder)
        (folder / "allowed").mkdir()
        self.secrets = {name: new_pair(name, folder)[0] for name in ("alice", "mallory")}
        self.folder = folder
        self.allow("alice")
        self.own = read_keys(drafter, allowed=folder / "allowed")

    def allow(self, name: str) -> None:
        (self.folder / "allowed" / f"{name}.public").write_bytes((self.folder / f"{name}.public").read_bytes())

    def of(self, name: str, public: Path | None = None) -> Keys:
        return read_keys(self.secrets[name], public or self.public)


def knock(port: int, kept: contextlib.ExitStack) -> None:
    """Open connections in all wrong ways; they stay open."""
    for sent in OPENINGS.values():
        stream = kept.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
        with contextlib.suppress(OSError):
            stream.sendall(sent)


@pytest.fixture
def ring(tmp_path: Path) -> Ring:
    return Ring(tmp_path)


def test_an_allowed_key_is_served_under_its_name(ring: Ring) -> None:
    with RunningServer(ring.own) as running, calling(running.port, ring.of("alice")) as (client, _):
        client.wait_for_welcomes(PATIENCE_S)
        assert eventually(lambda: running.lines)
    assert running.lines[0] == "target 1 (127.0.0.1, key alice) joins"
    assert not any("refused" in line for line in running.lines)  # there was no other client


def test_an_unknown_key_is_refused_before_any_frame(ring: Ring) -> None:
    with RunningServer(ring.own) as running, calling(running.port, ring.of("mallory")) as (client, said):
        assert eventually(lambda: said and running.lines)
        with pytest.raises(InputError, match="no drafter answered"):
            client.wait_for_welcomes(0.1)
        assert said == [f"127.0.0.1:{running.port} refuses the key mallory: it is not in its folder of allowed keys"]
        public = re.escape(ring.of("mallory").public.decode())
        assert re.fullmatch(rf"refused the key {public}: it is not in .*/allowed", running.lines[0])
        assert running.frames == 0
    assert "connections of unknown keys" in running.lines[-1]


def test_a_key_can_be_allowed_while_a_node_runs(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "REREAD_S", 0.1)
    with RunningServer(ring.own) as running, calling(running.port, ring.of("mallory")) as (client, said):
        assert eventually(lambda: said)
        ring.allow("mallory")
        client.wait_for_welcomes(PATIENCE_S)
        assert "key mallory) joins" in running.lines[-1]


def test_a_server_with_another_key_is_reported(ring: Ring) -> None:
    keys = ring.of("alice", ring.folder / "mallory.public")
    with RunningServer(ring.own) as running, calling(running.port, keys) as (_, said):
        assert eventually(lambda: said)
        assert "does not have the key that --server-key names" in said[0]
        assert running.frames == 0


def test_silent_strangers_cost_a_bounded_number_of_sockets(ring: Ring) -> None:
    count = 3 * access.MAX_STRANGERS
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 2 * count
    with RunningServer(ring.own) as running, calling(running.port, ring.of("alice")) as (client, _):
        client.wait_for_welcomes(PATIENCE_S)
        streams = [socket.create_connection(("127.0.0.1", running.port), PATIENCE_S) for _ in range(count)]
        assert running.sockets.monitor is not None
        assert eventually(lambda: running.sockets.counts["connections too many"] >= count - access.MAX_STRANGERS)
        assert len(running.sockets.monitor.strangers) <= access.MAX_STRANGERS
        assert is_closed(streams[0])
        with calling(running.port, ring.of("alice"), number=1) as (another, _):  # it can still connect
            another.wait_for_welcomes(PATIENCE_S)
        assert len(running.server.peers) >= 1
        for stream in streams:
            stream.close()


def test_a_client_connects_after_another_protocol_had_the_port(ring: Ring) -> None:
    """ZeroMQ gives up if the other end does not speak its protocol."""
    other = socket.create_server(("127.0.0.1", 0))
    port = other.getsockname()[1]
    with calling(port, ring.of("alice")) as (client, _):
        met, _ = other.accept()
        met.sendall(OPENINGS["another mechanism"])
        assert is_closed(met)
        met.close()
        other.close()
        with RunningServer(ring.own, port):
            client.wait_for_welcomes(PATIENCE_S)


@pytest.mark.parametrize("at", ["drafter", "router", "drafter behind a router"])
def test_no_stranger_at_a_port_changes_a_text_or_ends_a_node(at: str, ring: Ring) -> None:
    routed: dict[str, object] = {} if at == "drafter" else {"count": 2, "route": "round-robin"}
    fleet = toy_fleet(drafters=routed, workload={"requests": 100, "prompt_tokens": 8, "new_tokens": 24})
    ring.allow("drafter")
    here = Site("tcp://127.0.0.1:0", replace(ring.own, servers={ANY: ring.own.public}))
    there = Site(keys=ring.of("alice"))
    nodes = [
        drafting_node(fleet, number, ToyDrafter(trusts=True), "replayed", here)
        for number in range(fleet.drafters.count)
    ]
    if routed:
        nodes.append(router_node(fleet, {number: node.address for number, node in enumerate(nodes)}, 0, here))
    targets = [toy_target(fleet, number, nodes[-1].address, site=there) for number in range(2)]
    attacked = nodes[-1 if at == "router" else 0]
    port = port_of(attacked.address)
    assert attacked.socket_thread is not None
    monitor = attacked.socket_thread.sockets.monitor
    assert monitor is not None
    with Threads() as threads, contextlib.ExitStack() as kept:
        for node in nodes:
            node.open()
        serving = [threads.start(lambda node=node: node.serve(now_s())) for node in nodes]  # type: ignore[misc]
        for target in targets:
            target.open()
            target.wait_for_welcomes(PATIENCE_S)
        kept.enter_context(calling(port, ring.of("mallory")))
        knocking = threads.start(lambda: knock(port, kept))
        decoding = [threads.start(lambda node=node: node.serve(now_s())) for node in targets]  # type: ignore[misc]
        for thread in [knocking, *decoding]:
            thread.result()
        assert eventually(lambda: not monitor.strangers)  # their handshakes have taken too long
        for node, thread in zip(nodes, serving, strict=True):
            node.stop()
            thread.result()
    check_texts(fleet, [target.worker.executor.outputs for target in targets])  # type: ignore[attr-defined]
    assert not any("refusal" in target.worker.recorded.log for target in targets)
    assert monitor.counts["connections of unknown keys"] > 0
    assert monitor.counts["greetings of another kind"] > 0


@pytest.mark.slow
def test_a_flood_does_not_end_a_node_with_keys(ring: Ring, tmp_path: Path) -> None:
    """40 connections that say Hello 500 times each and go, ten times: it ended a node without keys on TCP."""
    pytest.importorskip("torch")
    scenario = ["star", *(word for side in ("drafters", "verifiers") for word in ("--set", f"{side}.kind=replayed"))]
    scenario += ["--set", "workload.requests=4", "--set", "workload.new_tokens=8"]
    own = ("--key", tmp_path / "drafter.secret", "--allowed", tmp_path / "allowed")
    drafter = specfleet("node", "drafter", *scenario, "--at", "127.0.0.1:0", *own)
    assert drafter.stderr is not None
    address = drafter.stderr.readline().split()[-1]
    until_s = now_s() + PATIENCE_S
    for _ in range(10):
        streams = [socket.create_connection(("127.0.0.1", port_of(address)), PATIENCE_S) for _ in range(40)]
        for stream in streams:
            with contextlib.suppress(OSError), stream:
                stream.sendall(OPENINGS["a flood"])
    assert now_s() < until_s
    keys = ("--key", tmp_path / "alice.secret", "--server-key", ring.public)
    status, _, err = ended(specfleet("node", "target", *scenario, "--connect", address, *keys))
    assert status == 0, err
    drafter.send_signal(signal.SIGINT)
    status, _, err = ended(drafter)
    assert status == 128 + signal.SIGINT, err


def ports_of(session: int) -> set[str]:
    """Return the TCP addresses at which processes of a session listen."""
    sockets = set()
    for pid in alive(session):
        for file in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(file).removeprefix("socket:[").removesuffix("]"))
    tables = "".join(Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6")).splitlines()
    return {fields[1] for fields in map(str.split, tables) if fields[3] == "0A" and fields[9] in sockets}


@pytest.mark.slow
def test_a_run_listens_on_no_port() -> None:
    pytest.importorskip("torch")
    kinds = [word for side in ("drafters", "verifiers") for word in ("--set", f"{side}.kind=replayed")]
    few = ("--set", "workload.requests=8", "--set", "workload.new_tokens=64")
    process = specfleet("run", "star", *kinds, *few)
    assert eventually(lambda: len(alive(process.pid)) >= 3, process)
    listened = set[str]()
    while process.poll() is None:
        listened |= ports_of(process.pid)
        time.sleep(0.1)
    assert ended(process)[0] == 0
    assert listened == set()
