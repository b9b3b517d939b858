"""Turns on a device: who waits for it is told what held up the one before."""

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from engine.node.device_lock import DeviceLock, file_lock, no_lock
from tests.helpers.processes import eventually


def next_turn_s(lock: DeviceLock) -> float:
    with lock(lambda: 0.0) as before_s:
        return before_s


def test_who_waits_for_the_device_is_told_what_its_holder_has_waited_and_nobody_else(tmp_path: Path) -> None:
    first, second = file_lock(tmp_path / "device"), file_lock(tmp_path / "device")
    told: list[float] = []
    waiting = threading.Thread(target=lambda: told.append(next_turn_s(second)))
    with first(lambda: 0.25) as before_s:
        assert before_s == 0.0
        waiting.start()
        assert eventually(lambda: is_waited_for(tmp_path / "device"))
    waiting.join()
    assert told == [0.25]
    assert next_turn_s(first) == 0.0  # it is free


def is_waited_for(path: Path) -> bool:
    """Whether somebody waits for a lock on the file, as the kernel lists them."""
    inode = os.stat(path).st_ino
    return any(f":{inode} " in line and " -> " in line for line in Path("/proc/locks").read_text().splitlines())


def test_a_holder_that_was_killed_has_told_nothing(tmp_path: Path) -> None:
    lock = file_lock(tmp_path / "device")
    child = os.fork()
    if not child:
        file = os.open(tmp_path / "device", os.O_RDWR)
        fcntl.flock(file, fcntl.LOCK_EX)
        time.sleep(30.0)  # until it is killed
        os._exit(0)
    told: list[float] = []
    waiting = threading.Thread(target=lambda: told.append(next_turn_s(lock)))
    assert eventually(lambda: is_held(tmp_path / "device"))
    waiting.start()
    assert eventually(lambda: is_waited_for(tmp_path / "device"))
    os.kill(child, 9)
    os.waitpid(child, 0)
    waiting.join()
    assert told == [0.0]


def is_held(path: Path) -> bool:
    return f":{os.stat(path).st_ino} " in Path("/proc/locks").read_text()


def test_a_step_that_fails_lets_the_device_go(tmp_path: Path) -> None:
    lock = file_lock(tmp_path / "device")
    with pytest.raises(ZeroDivisionError), lock(lambda: 0.0):
        raise ZeroDivisionError
    assert next_turn_s(lock) == 0.0


def test_a_device_of_its_own_is_waited_for_by_nobody() -> None:
    assert next_turn_s(no_lock) == 0.0
