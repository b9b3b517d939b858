"""Simulations side by side in processes: nothing is heard of them after the last line."""

import subprocess
import sys

LOST = """
import os
from joblib.externals.loky.backend.resource_tracker import register
from experiments.jobs import side_by_side
if __name__ == "__main__":
    assert list(side_by_side(abs, [(-1,), (-2,)], jobs=2)) == [1, 2]
    register("/nobody-told-that-it-is-gone", "semlock")
    assert "PYTHONWARNINGS" not in os.environ
    print("the last line", flush=True)
"""


def test_what_is_left_of_the_processes_says_nothing_after_the_last_line() -> None:
    program = [sys.executable, "-c", LOST]
    ended = subprocess.run(program, check=False, capture_output=True, text=True, env={}, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "the last line\n", "")
