"""Tests of the rooms below the engine."""

import subprocess
import sys


def test_tests_of_fleet_and_sim_load_without_the_engines_libraries() -> None:
    hidden = ("-p", "tests.helpers.without_engine")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *hidden, "tests/fleet", "tests/sim"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-2000:]
