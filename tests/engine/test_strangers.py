"""Access over real sockets: costs of strangers, and of peers that break the protocol."""

import re
import resource
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from specfleet.engine.net import access
from specfleet.engine.net.actions import Send
from specfleet.engine.net.client import ClientEnd
from specfleet.engine.net.connections import ConnectionTable
from specfleet.engine.net.frames import pack
from specfleet.engine.net.handshake import Alive
from specfleet.engine.net.keys import Keys, new_pair, read_keys
from specfleet.engine.net.limits import max_bytes
from specfleet.engine.net.server import MAX_BAD, ServerEnd
from specfleet.engine.net.socket_thread import SocketThread
from specfleet.engine.net.sockets import Sockets
from specfleet.fleet.errors import InputError
from tests.helpers.processes import eventually
from tests.helpers.toys import toy_fleet
from tests.helpers.zmtp import MORE, connected, framed, is_closed

FLEET = toy_fleet()
MAX_BYTES = max_bytes(FLEET)
PATIENCE_S = 30.0
STALLED_S = 5.0  # a stream that takes no byte for so long


class RunningServer:
    """A server in a thread. `frames`: received frames by user; `lines`: log lines."""

    def __init__(self, keys: Keys | None = None, port: int = 0) -> None:
        self.sockets = Sockets(f"tcp://127.0.0.1:{port}", max_bytes=MAX_BYTES, keys=keys)
        self.port = self.sockets.bound_port
        self.server = ServerEnd(FLEET, time.time_ns())
        self.lines: list[str] = []
        self.frames: Counter[str] = Counter()
        connections = ConnectionTable(self.server)
        original = connections.receive

        def receive(port: int, peer: bytes, frame: bytes, now_s: float, user: str = "") -> list[object]:
            self.frames[user] += 1
            return original(port, peer, frame, now_s, user)  # type: ignore[return-value]

        connections.receive = receive  # type: ignore[method-assign,assignment]
        self.thread = SocketThread(connections, self.sockets, lambda _: None, lambda: None, self.lines.append)

    def __enter__(self) -> "RunningServer":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.thread.end()

    @property
    def open(self) -> int:
        """Number of its connections."""
        assert self.sockets.monitor is not None
        return len(self.sockets.monitor.open)


@contextmanager
def calling(port: int, keys: Keys | None = None, number: int = 0) -> Iterator[tuple[SocketThread, list[str]]]:
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


def is_sent(stream: socket.socket, part: bytes) -> bool:
    """Send bytes; False if the connection has ended.

    A timeout counts as its end: a kernel may go on answering with an empty window for a connection that its process has
    closed. The server's own counts decide whether it has.
    """
    stream.settimeout(STALLED_S)
    try:
        stream.sendall(part)
    except OSError:
        return False
    return True


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


@pytest.fixture
def ring(tmp_path: Path) -> Ring:
    return Ring(tmp_path)


def test_an_allowed_key_is_served_under_its_name(ring: Ring) -> None:
    with RunningServer(ring.own) as running, calling(running.port, ring.of("alice")) as (client, _):
        client.wait_for_welcomes(PATIENCE_S)
        assert [peer.user for peer in running.server.peers.values()] == ["alice"]
        assert eventually(lambda: running.lines)
    assert re.fullmatch(r"target 1 \(127\.0\.0\.1:\d+, key alice\) joins", running.lines[0])
    assert not any("refused" in line for line in running.lines)  # there was no other client


def test_an_unknown_key_is_refused_before_any_frame(ring: Ring) -> None:
    with RunningServer(ring.own) as running, calling(running.port, ring.of("mallory")) as (client, said):
        assert eventually(lambda: said and running.lines)
        with pytest.raises(InputError, match="no drafter answered"):
            client.wait_for_welcomes(0.1)
        assert said == [f"127.0.0.1:{running.port} refuses the key mallory: it is not in its folder of allowed keys"]
        assert running.lines[0].startswith("refused 127.0.0.1: its key ")
        assert running.lines[0].endswith(f" is not in {ring.folder / 'allowed'}")
        assert running.frames == {}
    assert "connections of unknown keys" in running.lines[-1]


def test_a_key_can_be_allowed_while_a_node_runs(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "REREAD_S", 0.1)
    with RunningServer(ring.own) as running, calling(running.port, ring.of("mallory")) as (client, said):
        assert eventually(lambda: said)
        ring.allow("mallory")
        client.wait_for_welcomes(PATIENCE_S)
        assert set(running.frames) == {"mallory"}


def test_a_server_with_another_key_is_reported(ring: Ring) -> None:
    keys = ring.of("alice", ring.folder / "mallory.public")
    with RunningServer(ring.own) as running, calling(running.port, keys) as (_, said):
        assert eventually(lambda: said)
        assert "does not have the key that --server-key names" in said[0]
        assert running.frames == {}


def test_a_cut_peer_is_disconnected_and_its_key_banned(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "BAN_S", 3.0)
    with RunningServer(ring.own) as running, calling(running.port, ring.of("alice")) as (client, _):
        client.wait_for_welcomes(PATIENCE_S)
        for _ in range(MAX_BAD):
            assert client.sockets.send(Send(0, b"", b"no frame at all"))
            time.sleep(0.01)
        assert eventually(lambda: any("alice is kept out" in each for each in running.lines))
        assert not running.server.peers
        assert eventually(lambda: running.server.peers)  # later it may connect again, and does so by itself
    gone = ", key alice) is gone: it is cut, for 8 bad frames, the last malformed"
    assert any(client.endswith(gone) for client in running.lines)


def test_silent_strangers_cost_a_bounded_number_of_sockets() -> None:
    count = 3 * access.MAX_STRANGERS
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 2 * count
    with RunningServer() as running, calling(running.port) as (client, _):
        client.wait_for_welcomes(PATIENCE_S)
        streams = [connected(running.port, greets=False) for _ in range(count)]
        assert eventually(lambda: running.sockets.counts["connections too many"] >= count - access.MAX_STRANGERS)
        assert running.open <= access.MAX_STRANGERS + 1
        assert is_closed(streams[0])
        with calling(running.port, number=1) as (another, _):  # an honest peer still connects
            another.wait_for_welcomes(PATIENCE_S)
        assert len(running.server.peers) >= 1
        for stream in streams:
            stream.close()


def test_a_message_of_endless_parts_is_ended() -> None:
    """ZeroMQ would keep all its parts: neither its frame limit nor its queue limit bounds them."""
    sent = 0
    with RunningServer() as running, connected(running.port) as stream:
        part = framed(b"x" * 1000, MORE)
        while sent < 400 * MAX_BYTES and is_sent(stream, part):
            sent += len(part)
        assert eventually(lambda: running.open == 0)
        assert running.sockets.counts["endless messages"] == 1


def test_a_peer_that_never_reads_is_disconnected() -> None:
    with RunningServer() as running, calling(running.port) as (client, _), connected(running.port) as stream:
        client.wait_for_welcomes(PATIENCE_S)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        while is_sent(stream, framed(pack(Alive()))):
            pass
        assert running.server.counts["too many"] == 1
        assert len(running.server.peers) == 1


def test_a_client_connects_after_another_protocol_had_the_port() -> None:
    """ZeroMQ gives up if the other end does not speak its protocol."""
    other = socket.create_server(("127.0.0.1", 0))
    port = other.getsockname()[1]
    with calling(port) as (client, _):
        met, _ = other.accept()
        met.sendall(b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01" + b"PLAIN" + bytes(15) + b"\0" + bytes(31))
        assert is_closed(met)
        met.close()
        other.close()
        with RunningServer(port=port):
            client.wait_for_welcomes(PATIENCE_S)


UNSEEDED = 0x6B8B4567  # first id with an unseeded C library: the first value of rand()
CLAIMING = f"""
from specfleet.engine.net.frames import pack
from specfleet.engine.net.handshake import Alive
from tests.engine.test_strangers import RunningServer
from tests.helpers.processes import eventually
from tests.helpers.zmtp import connected, framed
with RunningServer() as running:
    numbers = range({UNSEEDED}, {UNSEEDED} + 40)
    kept = [connected(running.port, claims=bytes(1) + number.to_bytes(4, "big")) for number in numbers]
    assert eventually(lambda: running.open == 40)
    kept += [connected(running.port) for _ in range(20)]
    kept[-1].sendall(framed(pack(Alive())))
    assert eventually(lambda: running.frames)
    for stream in kept:
        stream.close()
"""


def test_claimed_routing_ids_do_not_end_the_node() -> None:
    """libzmq ends its process if a peer has claimed the next id, so ids must be unpredictable."""
    ended = subprocess.run([sys.executable, "-c", CLAIMING], capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stderr


def test_routing_ids_begin_at_a_random_number() -> None:
    firsts: set[bytes] = set()
    for _ in range(4):
        with RunningServer() as running, connected(running.port) as stream:
            stream.sendall(framed(pack(Alive())))
            assert eventually(lambda running=running: running.frames)  # type: ignore[misc]
            assert running.sockets.monitor is not None
            firsts |= {each.peer for each in running.sockets.monitor.open.values()}
    assert len(firsts) == 4
    assert min(abs(int.from_bytes(first) - UNSEEDED) for first in firsts) > 1000
