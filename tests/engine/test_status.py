"""The status of a node: access, size of an answer, and content."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("zmq")

from engine.launch.watched import StatusCache
from engine.net.actions import LEASE_S, Action, Cut
from engine.net.asking import Asker
from engine.net.content import NOTHING, Content
from engine.net.frames import HEADER, MAX_ENVELOPE_BYTES, pack, parse
from engine.net.handshake import Denied, Unknown
from engine.net.limits import max_bytes
from engine.net.server import IDLE, MAX_WATCHERS, ServerEnd
from engine.net.status import ROWS, Ask, Status, StatusRow
from fleet.errors import InputError
from fleet.records.metrics.counters import Counters
from fleet.stations.messages import Draft, DraftRequest
from tests.engine.test_strangers import Ring, RunningServer, calling, holds, ring  # noqa: F401  (a fixture)
from tests.helpers.connecting import connected, frame_of, said
from tests.helpers.counted import counters_of_drafter
from tests.helpers.stars import repeatable
from tests.helpers.toys import toy_fleet

FLEET = toy_fleet()
LARGE = toy_fleet(verifiers={"count": 100})
largest = st.integers(0, (1 << 62) - 1)
real = st.floats(0, 1e12) | st.none()


def open_door(fleet: Any = FLEET, counters: Counters | None = None) -> ServerEnd:
    server = ServerEnd(fleet, 1)
    server.status = StatusCache(counters or Counters(fleet), "drafter").page
    return server


def some_counters() -> Counters:
    return counters_of_drafter(FLEET, 10.0, 50, target=1)


def ask(server: ServerEnd, peer: bytes = b"top", first: int = 0, now_s: float = 0.0) -> list[Action]:
    return server.receive(peer, pack(Ask(first)), now_s)


# --- at a server ---


def test_a_status_has_load_queue_and_each_target() -> None:
    server = open_door(counters=some_counters())
    (status,) = said(ask(server))
    assert (status.node, status.scenario, status.targets) == ("drafter", "toy", 2)
    assert (status.waiting, status.sessions, status.rounds) == (1, 2, 50)
    assert (status.load, status.draft_s) == pytest.approx((0.7, 0.14))
    assert [row.target for row in status.rows] == [0, 1]
    row = status.rows[1]
    assert (row.sessions, row.waiting, row.rounds) == (2, 1, 50)
    assert (row.tokens_per_s, row.acceptance) == pytest.approx((20.0, 0.6))
    assert (row.wait_p50_s, row.wait_p90_s) == pytest.approx((0.0055, 0.0091))
    assert not server.peers
    assert not server.counts


def test_status_bytes_and_ages_are_those_of_the_connection() -> None:
    server = open_door()
    client = connected(FLEET, server, 1, now_s=1.0)
    request = DraftRequest(1, 1, 1, 9, opening=True)
    frame = frame_of(client.send(request, Content([1] * 9), 2.0))
    server.receive(b"peer", frame, 2.0)
    answer = frame_of(server.send(Draft(1, 1, 1, 9, 4), Content([5, 6, 7, 8])))
    (status,) = said(ask(server, now_s=3.5))
    assert status.rows[1].received_bytes == len(frame)
    assert status.rows[1].sent_bytes == len(answer)
    assert status.rows[1].heard_s == 1.5
    assert status.rows[0] == StatusRow(0)
    server.lost(b"peer")
    (gone,) = said(ask(server, now_s=4.0))
    assert gone.rows[1].heard_s is None
    assert gone.rows[1].sent_bytes == len(answer)  # bytes that were sent still count


def test_a_server_without_a_status_treats_askers_as_strangers() -> None:
    assert said(ask(ServerEnd(FLEET, 1))) == [Unknown()]


def test_status_pages_cover_all_targets() -> None:
    server = open_door(LARGE)
    pages = [said(ask(server, first=first))[0] for first in (0, ROWS, 2 * ROWS, 3 * ROWS, 4 * ROWS, (1 << 31) - 1)]
    assert [row.target for page in pages for row in page.rows] == list(range(100))
    assert all(page.targets == 100 for page in pages)


@given(
    rows=st.lists(
        st.builds(StatusRow, largest, largest, largest, largest, st.floats(allow_nan=False), real, real, real, largest,
                  largest, real),
        max_size=ROWS,
    ),
    node=st.text(max_size=64), scenario=st.text(max_size=200), header=st.tuples(largest, largest, largest, largest),
)  # fmt: skip
@repeatable
def test_any_status_survives_packing(rows: list[StatusRow], node: str, scenario: str, header: tuple[int, ...]) -> None:
    targets, sessions, waiting, rounds = header
    status = Status(
        node, scenario, 1e12, targets, sessions, waiting % (1 << 31), rounds, first=targets, rows=tuple(rows)
    )
    frame = pack(status)
    assert len(frame) <= HEADER.size + MAX_ENVELOPE_BYTES <= max_bytes(FLEET)
    assert parse(frame) == (status, NOTHING)


def test_watchers_are_limited_and_idle_ones_are_replaced() -> None:
    server = open_door()
    watching = [b"%d" % number for number in range(MAX_WATCHERS)]
    for peer in watching:
        assert isinstance(said(ask(server, peer))[0], Status)
    (denied,) = said(ask(server, b"one more"))
    assert isinstance(denied, Denied)
    assert all(peer in server.accepted for peer in watching)
    assert b"one more" not in server.accepted
    for peer in watching[1:]:
        ask(server, peer, now_s=LEASE_S)
    server.tick(LEASE_S + 0.5)
    assert watching[0] not in server.accepted
    assert isinstance(said(ask(server, b"one more", now_s=LEASE_S + 1.0))[0], Status)


def test_frequent_askers_are_cut_and_dropped() -> None:
    server = open_door()
    actions: list[Action] = []
    for _ in range(IDLE + 1):
        assert not any(isinstance(action, Cut) for action in actions)
        actions = ask(server)
    assert actions == [Cut(b"top")]
    assert b"top" not in server.accepted


def test_a_watcher_may_become_a_target_but_not_vice_versa() -> None:
    server = open_door()
    ask(server, b"peer")
    connected(FLEET, server, 1)
    assert not server.watchers
    assert ask(server, b"peer") == []
    assert server.counts["out of place"] == 1


def test_only_nodes_with_a_status_answer() -> None:
    server = open_door()
    connected(FLEET, server, 1)
    assert server.receive(b"peer", pack(Status("x", "y", 0.0, 1)), 0.0) == []
    assert server.counts["out of place"] == 1
    client = connected(FLEET, server, 0, b"other")
    assert client.receive(pack(Status("x", "y", 0.0, 1)), 0.0) == []
    assert client.bad == 1


def test_missing_values_of_a_status_are_none() -> None:
    status = StatusCache(Counters(FLEET), "drafter").page(0)
    assert (status.load, status.acceptance, status.draft_s) == (None, None, None)
    assert all(row.acceptance is None and row.wait_p50_s is None for row in status.rows)
    assert not math.isnan(msgspec.to_builtins(status)["tokens_per_s"])


# --- over sockets ---


def test_any_local_client_gets_the_status() -> None:
    with RunningServer() as running:
        counters = Counters(FLEET)
        running.server.status = StatusCache(counters, "drafter").page
        asker = Asker(f"127.0.0.1:{running.port}")
        try:
            assert asker.status().rounds == 0
            with counters.lock:
                counters.drafting.update(some_counters().drafting)
                counters.time_s = 10.0
            assert asker.status().rounds == 50
            assert len(asker.status().rows) == 2
            assert running.open == 1
        finally:
            asker.close()
        assert running.sockets.counts["silent connections"] == 0


def test_only_allowed_keys_get_a_status(ring: Ring) -> None:  # noqa: F811
    with RunningServer(ring.own) as running:
        running.server.status = StatusCache(Counters(FLEET), "drafter").page
        address = f"127.0.0.1:{running.port}"
        for keys, reason in ((ring.of("mallory"), "refuses the key mallory"), (None, "no node of specfleet answered")):
            asker = Asker(address, keys, patience_s=3.0)
            try:
                with pytest.raises(InputError, match=reason):
                    asker.status()
            finally:
                asker.close()
        assert not running.frames  # no frame of theirs was even decoded
        asker = Asker(address, ring.of("alice"))
        try:
            assert asker.status().node == "drafter"
        finally:
            asker.close()
        assert set(running.frames) == {"alice"}


def test_an_unused_or_foreign_port_is_one_line() -> None:
    with RunningServer() as running:  # a node without a status
        asker = Asker(f"127.0.0.1:{running.port}")
        with pytest.raises(InputError, match="does not tell how it is doing"):
            asker.status()
        asker.close()
        port = running.port
    asker = Asker(f"127.0.0.1:{port}", patience_s=0.3)
    with pytest.raises(InputError, match=rf"127.0.0.1:{port}: no node of specfleet answered within 0.3 s"):
        asker.status()
    asker.close()
    for wrong in ("", "here", "here:", ":5555", "here:70000", "here:port"):
        with pytest.raises(InputError, match="write HOST:PORT"):
            Asker(wrong)
    with pytest.raises(InputError, match="is another host"):
        Asker("192.0.2.7:5555")


def test_a_watcher_takes_no_seat() -> None:
    with RunningServer() as running:
        running.server.status = StatusCache(Counters(FLEET), "drafter").page
        asker = Asker(f"127.0.0.1:{running.port}")
        try:
            asker.status()
            with calling(running.port) as (client, _):
                client.wait_for_welcomes(30.0)
                assert holds(lambda: asker.status().rows[0].heard_s is not None)
        finally:
            asker.close()
