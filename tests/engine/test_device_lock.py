"""Locks of a device: one holder at a time, in any process."""

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from engine.node.device_lock import DeviceLock, device_lock
from tests.helpers.processes import eventually


def take_turn(lock: DeviceLock, turns: list[str], name: str) -> None:
    with lock():
        turns.append(name)


def test_a_device_has_one_holder_at_a_time(tmp_path: Path) -> None:
    first, second = device_lock(tmp_path / "device"), device_lock(tmp_path / "device")
    turns: list[str] = []
    waiting = threading.Thread(target=lambda: take_turn(second, turns, "second"))
    with first():
        waiting.start()
        assert eventually(lambda: is_waited_for(tmp_path / "device"))
        turns.append("first")
    waiting.join()
    assert turns == ["first", "second"]


def is_waited_for(path: Path) -> bool:
    """Whether a process waits for a lock on the file, in the kernel's list."""
    inode = os.stat(path).st_ino
    return any(f":{inode} " in line and " -> " in line for line in Path("/proc/locks").read_text().splitlines())


def test_a_killed_holder_frees_the_device(tmp_path: Path) -> None:
    lock = device_lock(tmp_path / "device")
    child = os.fork()
    if not child:
        file = os.open(tmp_path / "device", os.O_RDWR)
        fcntl.flock(file, fcntl.LOCK_EX)
        time.sleep(30.0)  # until it is killed
        os._exit(0)
    turns: list[str] = []
    waiting = threading.Thread(target=lambda: take_turn(lock, turns, "next"))
    assert eventually(lambda: is_held(tmp_path / "device"))
    waiting.start()
    assert eventually(lambda: is_waited_for(tmp_path / "device"))
    os.kill(child, 9)
    os.waitpid(child, 0)
    waiting.join()
    assert turns == ["next"]


def is_held(path: Path) -> bool:
    return f":{os.stat(path).st_ino} " in Path("/proc/locks").read_text()


def test_a_step_that_fails_frees_the_device(tmp_path: Path) -> None:
    lock = device_lock(tmp_path / "device")
    with pytest.raises(ZeroDivisionError), lock():
        raise ZeroDivisionError
    turns: list[str] = []
    take_turn(device_lock(tmp_path / "device"), turns, "next")
    assert turns == ["next"]


def test_a_device_of_one_station_is_never_waited_for() -> None:
    lock = device_lock(None)
    with lock(), lock():
        pass
