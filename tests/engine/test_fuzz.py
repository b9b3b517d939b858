"""A hundred thousand messages of strangers and of dishonest peers, at a server with honest targets."""

import contextlib

import numpy as np
import pytest

from engine.net import server
from engine.net.clock import now_s
from tests.engine.test_nodes import toy_drafter, toy_target
from tests.fuzz.attack import FLEET, HONEST, Found, FuzzedDrafter, attack, check
from tests.fuzz.attackers import Attacker
from tests.helpers.marks import slow
from tests.helpers.threads import Threads
from tests.helpers.toys import STEP_S
from tests.helpers.zmtp import connected, framed


def test_strangers_change_no_log() -> None:
    quiet, loud = attack(0, 0, dishonest=False, seed=0), attack(60_000, 6, dishonest=False, seed=0)
    check(loud)
    assert loud.sent == 60_000
    assert loud.outputs == quiet.outputs
    assert loud.ends_s == quiet.ends_s
    assert loud.log == quiet.log
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
            stream.sendall(framed(attacker.next_frame()))
            while sent < messages:
                stream.sendall(framed(attacker.next_frame()))
                sent += 1
    return sent


def test_attacks_over_sockets_change_no_text_and_end_no_node() -> None:
    """Attackers share this process with their targets, so its speed means little here."""
    drafter = toy_drafter(FLEET, FuzzedDrafter())
    assert drafter.socket_thread is not None
    assert drafter.socket_thread.connections.server is not None
    counts = drafter.socket_thread.connections.server.counts
    targets = [toy_target(FLEET, number, drafter.port) for number in range(HONEST)]
    with Threads() as threads:
        drafter.open()
        began = threads.start(lambda: drafter.serve(now_s()))
        attackers = [Attacker(FLEET, f"attacker {n}", np.random.default_rng(n), None, bad=0.5) for n in range(3)]
        attackers += [Attacker(FLEET, f"peer {n}", np.random.default_rng(n), n, bad=0.3) for n in (2, 3)]
        strikes = [threads.start(lambda a=each: strike(drafter.port, a, 1000)) for each in attackers]  # type: ignore[misc]
        for node in targets:
            node.open()
            node.wait_for_welcomes(30.0)
        for thread in [threads.start(lambda node=node: node.serve(now_s())) for node in targets]:  # type: ignore[misc]
            thread.result()
        sent = sum(thread.result() for thread in strikes)
        drafter.stop()
        began.result()
    log = [value for node in (drafter, *targets) for value in node.worker.recorded.log]
    outputs = [node.worker.executor.outputs for node in targets]  # type: ignore[attr-defined]
    check(Found(outputs, log, [0.0] * HONEST, counts, sent=sent))
    assert sent == 1000 * len(attackers)
    assert counts["malformed"] >= 3
    assert counts["cut"] >= 3
