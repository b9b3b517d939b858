"""A hundred thousand messages of strangers and of dishonest peers, at a server with honest targets."""

import contextlib
import time

import numpy as np
import pytest

pytest.importorskip("zmq")

from engine.net import server
from engine.net.client import ClientEnd
from engine.net.clock import now_s
from engine.net.connections import ConnectionTable
from engine.net.limits import max_bytes
from engine.net.sockets import Sockets
from engine.node.node import Node
from fleet.records.recorder import RecordedStation
from fleet.scenario.workload import requests_of
from fleet.stations.build import drafter_station, join_of, verifier_station
from tests.fuzz.attack import FLEET, HONEST, Found, FuzzedDrafter, attack, check
from tests.fuzz.attackers import Attacker
from tests.helpers.marks import slow
from tests.helpers.threads import Threads
from tests.helpers.toys import STEP_S, ToyTarget
from tests.helpers.zmtp import connected, framed


def test_strangers_change_no_log() -> None:
    quiet, loud = attack(0, 0, dishonest=False, seed=0), attack(60_000, 6, dishonest=False, seed=0)
    check(loud)
    assert loud.sent == 60_000
    assert loud.outputs == quiet.outputs
    assert loud.ends_s == quiet.ends_s
    assert loud.logs == quiet.logs
    assert {"malformed", "of strangers", "denied", "cut"} <= {what for what, count in loud.counts.items() if count}
    early, late = loud.weights[: len(loud.weights) // 4], loud.weights[len(loud.weights) // 4 :]
    assert max(late) <= 1.2 * max(early)


@pytest.mark.parametrize("patient", [False, True])
@pytest.mark.parametrize("seed", [1, *(slow(seed) for seed in range(2, 8))])
def test_dishonest_peers_change_no_text_and_cost_only_their_drafts(
    seed: int, patient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A patient server cuts no peer, so that every message reaches the checks behind its limits."""
    if patient:
        for limit in ("MAX_BAD", "IDLE", "JOINS"):
            monkeypatch.setattr(server, limit, 1 << 40)
    quiet, loud = attack(0, 0, dishonest=False, seed=seed), attack(20_000, 2, dishonest=True, seed=seed)
    check(loud)
    for end_s, alone_s in zip(loud.ends_s, quiet.ends_s, strict=True):
        assert end_s <= alone_s + loud.spent_s + STEP_S["prefill"]
    found = {what for what, count in loud.counts.items() if count}
    assert found >= {"inadmissible", "repeated", "malformed", "of strangers"}
    assert ("too many" in found) != patient
    assert loud.spent_s > (2.0 if patient else 0.1), "dishonest peers are served, too"


def strike(port: int, attacker: Attacker, messages: int) -> int:
    """Send so many messages to a server, over a new connection after each cut; return the number sent."""
    sent = 0
    while sent < messages:
        attacker.connect()
        with contextlib.suppress(OSError), connected(port) as stream:
            stream.settimeout(5.0)
            attacker.welcome = attacker.number is not None
            stream.sendall(framed(attacker.says()))
            while sent < messages:
                stream.sendall(framed(attacker.says()))
                sent += 1
    return sent


def honest_target(number: int, port: int) -> Node:
    address = f"tcp://127.0.0.1:{port}"
    connections = ConnectionTable(clients={0: ClientEnd(FLEET, number, time.time_ns(), name=address)})
    users = {number: (join_of(FLEET, number, request) for request in requests_of(FLEET, number))}
    station = RecordedStation(verifier_station(FLEET, number), "replayed")
    return Node(station, ToyTarget(), connections, Sockets(connect={0: address}, max_bytes=max_bytes(FLEET)), users)


def test_attacks_over_sockets_change_no_text_and_end_no_node() -> None:
    """Attackers share this process with their targets, so its speed means little here."""
    sockets = Sockets("tcp://127.0.0.1:0", max_bytes=max_bytes(FLEET))
    serving = server.ServerEnd(FLEET, 1)
    station = RecordedStation(drafter_station(FLEET), "replayed")
    drafter = Node(station, FuzzedDrafter(), ConnectionTable(serving), sockets)
    targets = [honest_target(number, sockets.bound_port) for number in range(HONEST)]
    with Threads() as threads:
        drafter.open()
        began = threads.start(lambda: drafter.serve(now_s()))
        attackers = [Attacker(FLEET, f"attacker {n}", np.random.default_rng(n), None, bad=0.5) for n in range(3)]
        attackers += [Attacker(FLEET, f"peer {n}", np.random.default_rng(n), n, bad=0.3) for n in (2, 3)]
        strikes = [threads.start(lambda a=each: strike(sockets.bound_port, a, 1000)) for each in attackers]  # type: ignore[misc]
        for node in targets:
            node.open()
            node.wait_for_welcomes(30.0)
        for thread in [threads.start(lambda node=node: node.serve(now_s())) for node in targets]:  # type: ignore[misc]
            thread.result()
        sent = sum(thread.result() for thread in strikes)
        drafter.stop()
        began.result()
    logs = [("drafter", drafter.worker.recorded.log), *(("target", node.worker.recorded.log) for node in targets)]
    outputs = [node.worker.executor.outputs for node in targets]  # type: ignore[attr-defined]
    check(Found(outputs, logs, [0.0] * HONEST, serving.counts, sent=sent))
    assert sent == 1000 * len(attackers)
    assert serving.counts["malformed"] >= 3
    assert serving.counts["cut"] >= 3
