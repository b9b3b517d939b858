"""Simulations side by side in processes, and children: no message comes after the last line."""

import os
import signal
import subprocess
import sys

import pytest

from tests.helpers.processes import alive, ended, eventually, start

LOST = """
import os
from joblib.externals.loky.backend.resource_tracker import register
from specfleet.experiments.jobs import side_by_side
if __name__ == "__main__":
    assert list(side_by_side(abs, [(-1,), (-2,)], workers=2)) == [1, 2]
    register("/nobody-told-that-it-is-gone", "semlock")
    assert "PYTHONWARNINGS" not in os.environ
    print("the last line", flush=True)
"""


def said(program: str, *words: str) -> tuple[int, str, str]:
    """Status and outputs of a program."""
    words = (sys.executable, "-c", program, *words)
    done = subprocess.run(words, check=False, capture_output=True, text=True, env={}, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_remaining_processes_print_nothing_after_the_last_line() -> None:
    assert said(LOST) == (0, "the last line\n", "")


GROWN = """
import sys, time
from specfleet.experiments.jobs import side_by_side

def grow(number):
    if number > 1:  # not the first of its process, which shows how large it should be
        sys.kept = b"x" * 330_000_000
        time.sleep(1.1)  # so often it is looked at
    return number

if __name__ == "__main__":
    print(list(side_by_side(grow, [(number,) for number in range(8)], workers=2)))
"""


@pytest.mark.slow
def test_a_process_that_has_grown_is_replaced_without_a_word() -> None:
    pytest.importorskip("psutil")  # joblib checks memory only with it
    assert said(GROWN) == (0, f"{list(range(8))}\n", "")


TORN = """
import os, signal
from joblib.externals.loky.backend import fork_exec as started
from specfleet.experiments.jobs import side_by_side
from specfleet.experiments.console.exits import run

def fork_exec(*arguments, fork_exec=started.fork_exec, **more):
    try:
        return fork_exec(*arguments, **more)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)  # a process has been started, and is still to be told what it is

if __name__ == "__main__":
    started.fork_exec = fork_exec
    run(lambda: list(side_by_side(abs, [(-1,), (-2,)], workers=2)))
"""


def test_processes_print_nothing_if_a_signal_interrupts_their_start() -> None:
    assert said(TORN) == (143, "", "specfleet: ended by SIGTERM; nothing was written\n")


KILLED = """
import time
from specfleet.experiments.jobs import side_by_side

if __name__ == "__main__":
    for number in side_by_side(abs, ((number,) for number in range(10**6)), workers=2):
        print(number, flush=True)
        time.sleep(0.2)
"""


def test_no_process_outlives_a_killed_program() -> None:
    program = start("-c", KILLED)
    assert program.stdout.readline() == "0\n"
    assert len(alive(program.pid)) > 2
    os.kill(program.pid, signal.SIGKILL)
    ended(program)
    assert eventually(lambda: alive(program.pid) == [])


FAULTS = """
import resource, sys
import numpy as np
from specfleet.experiments.memory import keep_freed_memory
from specfleet.experiments.console.exits import run

def main():
    faults = []
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(20):
            arrays = [np.ones(400_000) for _ in range(20)]  # 3 MB each
            del arrays
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    print(faults[-1])

run(main) if "kept" in sys.argv else main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted as Linux does")
def test_later_programs_reuse_array_memory() -> None:
    kept, freed = (int(said(FAULTS, *words)[1]) for words in (["kept"], []))
    assert kept < 100 < freed
