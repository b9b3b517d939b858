"""Nodes over real sockets, with toy models: threads of one process, their wakes, and ends of single nodes."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from specfleet.engine.net.addresses import FREE
from specfleet.engine.net.clock import now_s
from specfleet.engine.net.connections import ConnectionTable
from specfleet.engine.net.content import NOTHING
from specfleet.engine.net.socket_thread import SocketThread
from specfleet.engine.net.sockets import Sockets
from specfleet.engine.node.node import HERE, Node, Site, clients_of_drafters, drafting_node
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.records.recorder import RecordedStation
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import streams_of
from specfleet.fleet.stations.build import verifier_station
from specfleet.fleet.stations.messages import Leave
from specfleet.fleet.times.step import Step
from tests.helpers.threads import Threads
from tests.helpers.toys import ToyDrafter, ToyTarget, check_texts, toy_fleet

FLEET = toy_fleet()
PATIENCE_S = 30.0


def toy_drafter(fleet: Fleet, address: str = FREE) -> Node:
    return drafting_node(fleet, 0, ToyDrafter(), "replayed", Site(address))


def toy_target(fleet: Fleet, target: int, address: str, executor: ToyTarget | None = None, site: Site = HERE) -> Node:
    ends = clients_of_drafters(fleet, [target], {0: address}, site)
    station = RecordedStation(verifier_station(fleet, target), "replayed")
    requests = {target: streams_of(fleet).get(target, [])}
    return Node(fleet, station, executor or ToyTarget(), *ends, requests)


def serve(drafter: Node, *targets: Node) -> list[dict[int, list[int]]]:
    """Serve open nodes, each in a thread, until all targets end; return their texts."""
    with Threads() as threads:
        serving = threads.start(lambda: drafter.serve(now_s()))
        for node in targets:
            node.wait_for_welcomes(PATIENCE_S)
        ended = [threads.start(lambda node=node: node.serve(now_s())) for node in targets]  # type: ignore[misc]
        for thread in ended:
            thread.result()
        drafter.stop()
        serving.result()
    return [node.worker.executor.outputs for node in targets]  # type: ignore[attr-defined]


def test_targets_may_start_before_their_drafter(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/own/drafter"
    targets = [toy_target(FLEET, number, address) for number in range(2)]
    for node in targets:
        node.open()
    drafter = toy_drafter(FLEET, address=address)
    drafter.open()
    check_texts(FLEET, serve(drafter, *targets))
    assert drafter.worker.recorded.log.count("draft-request") > 10
    assert "refusal" not in targets[0].worker.recorded.log


def test_targets_decode_alone_when_the_drafter_ends() -> None:
    drafter = toy_drafter(FLEET)
    drafter.open()

    class Ending(ToyTarget):
        def run(self, step: Step) -> tuple[Outcome, ...]:
            if step.number == 5:
                drafter.stop()
            return super().run(step)

    targets = [toy_target(FLEET, 0, drafter.address, Ending()), toy_target(FLEET, 1, drafter.address)]
    for node in targets:
        node.open()
    check_texts(FLEET, serve(drafter, *targets))
    assert "refusal" in targets[0].worker.recorded.log


def test_a_node_stopped_during_a_step_ends_after_it() -> None:
    drafter = toy_drafter(FLEET)
    drafter.open()

    class Stopping(ToyTarget):
        def run(self, step: Step) -> tuple[Outcome, ...]:
            node.stop()
            return super().run(step)

    node = toy_target(FLEET, 0, drafter.address, Stopping())
    node.open()
    serve(drafter, node)
    assert node.worker.recorded.log.count("done") == 1


def test_a_stopped_target_with_work_left_ends_after_its_step() -> None:
    class Stopping(ToyTarget):
        def run(self, step: Step) -> tuple[Outcome, ...]:
            node.stop()
            return super().run(step)

    fleet = toy_fleet(drafters={"count": 0})
    station = RecordedStation(verifier_station(fleet, 0), "replayed")
    node = Node(fleet, station, Stopping(), requests={0: streams_of(fleet)[0]})
    assert node.serve(now_s()).count("done") == 1


def test_a_target_with_another_precision_is_rejected() -> None:
    drafter = toy_drafter(msgspec.structs.replace(FLEET, precision="float64"))
    drafter.open()
    node = toy_target(FLEET, 0, drafter.address)
    node.open()
    with pytest.raises(InputError, match="precision is float64 at the drafter and"):
        node.wait_for_welcomes(PATIENCE_S)
    drafter.close()


def test_a_wait_for_a_drafter_is_reported_once(tmp_path: Path) -> None:
    lines, address = list[str](), f"ipc://{tmp_path}/own/drafter"
    node = toy_target(FLEET, 0, address)
    assert node.socket_thread is not None
    node.socket_thread.say = lines.append
    node.open()
    with Threads() as threads:
        waiting = threads.start(lambda: node.wait_for_welcomes(PATIENCE_S))
        while not lines:
            time.sleep(0.01)
        drafter = toy_drafter(FLEET, address=address)
        drafter.open()
        waiting.result()
    assert lines == [f"waits for a drafter at {tmp_path}/own/drafter"]
    node.close()
    drafter.close()


def test_a_wake_ends_a_waiting_poll() -> None:
    sockets = Sockets()
    threading.Timer(0.05, sockets.wake).start()
    began = time.monotonic()
    assert sockets.poll(10.0) == []
    assert time.monotonic() - began < 5.0
    sockets.close()


def test_a_wake_after_close_writes_into_no_file() -> None:
    sockets = Sockets()
    sockets.close()
    read, write = os.pipe()  # reuses the descriptors of the waking pipe
    assert {read, write} & {sockets.waking, sockets.woken}
    os.set_blocking(read, False)
    sockets.wake()
    with pytest.raises(BlockingIOError):
        os.read(read, 1)
    os.close(read)
    os.close(write)


def test_sockets_can_be_closed_while_threads_wake_them() -> None:
    for _ in range(30):
        sockets, started = Sockets(), threading.Barrier(3)

        def wake(sockets: Sockets = sockets, started: threading.Barrier = started) -> None:
            started.wait()
            for _ in range(500):
                sockets.wake()

        with ThreadPoolExecutor(2) as pool:
            waking = [pool.submit(wake) for _ in range(2)]
            started.wait()
            sockets.close()
            for each in waking:
                each.result()


def test_a_node_can_end_while_its_thread_is_ending() -> None:
    """The thread closes its transport as soon as it should end, perhaps before `wake`."""
    sockets = Sockets()
    thread = SocketThread(ConnectionTable(), sockets, lambda _: None, lambda: None, lambda _: None)
    wake = sockets.wake

    def late() -> None:
        thread.join(5.0)  # `end` must not return before the thread has ended
        wake()

    sockets.wake = late  # type: ignore[method-assign]
    thread.start()
    thread.end()
    assert not thread.is_alive()
    sockets.wake = wake  # type: ignore[method-assign]
    thread.post(Leave(0, 0), NOTHING)


def test_too_many_connections_of_a_process_are_refused() -> None:
    with pytest.raises(InputError, match=r"1100 connections of one process: .*; start its targets in several"):
        Sockets(connect=dict.fromkeys(range(1100), "ipc:///nowhere"))
