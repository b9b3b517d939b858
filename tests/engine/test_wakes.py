"""Waking the thread of a node's sockets: from any thread, at any time, also after its end."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from engine.net.connections import ConnectionTable
from engine.net.content import NOTHING
from engine.net.socket_thread import SocketThread
from engine.net.sockets import Sockets
from fleet.stations.messages import Leave


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
