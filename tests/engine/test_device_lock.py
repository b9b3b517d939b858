"""Locks of a device: one holder at a time, in any process."""

import os
import threading
import time
from pathlib import Path

import pytest

from specfleet.engine.node.worker import DeviceLock, device_lock
from tests.helpers.processes import eventually


def take_turn(lock: DeviceLock, turns: list[str]) -> None:
    with lock():
        turns.append("next")


def locks_of(path: Path) -> list[str]:
    """The lines of a file in the kernel's list of locks: holders, and processes that wait."""
    inode = os.stat(path).st_ino
    return [line for line in Path("/proc/locks").read_text().splitlines() if f":{inode} " in line]


def test_a_device_has_one_holder_at_a_time_and_a_killed_one_frees_it(tmp_path: Path) -> None:
    path, turns = tmp_path / "device", list[str]()
    lock = device_lock(path)
    child = os.fork()
    if not child:
        with device_lock(path)():
            time.sleep(30.0)  # until it is killed
        os._exit(0)
    waiting = threading.Thread(target=lambda: take_turn(lock, turns))
    assert eventually(lambda: locks_of(path))
    waiting.start()
    assert eventually(lambda: any(" -> " in line for line in locks_of(path)))
    assert turns == []
    os.kill(child, 9)
    os.waitpid(child, 0)
    waiting.join()
    assert turns == ["next"]


def test_a_step_that_fails_frees_the_device(tmp_path: Path) -> None:
    lock, turns = device_lock(tmp_path / "device"), list[str]()
    with pytest.raises(ZeroDivisionError), lock():
        raise ZeroDivisionError
    take_turn(device_lock(tmp_path / "device"), turns)
    assert turns == ["next"]


def test_a_device_of_one_station_is_never_waited_for() -> None:
    lock = device_lock(None)
    with lock(), lock():
        pass
