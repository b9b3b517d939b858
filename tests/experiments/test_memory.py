"""Programs keep the memory that their arrays have left."""

import subprocess
import sys

import pytest

from tests.helpers.processes import ROOT

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


def faults(*arguments: str) -> int:
    program = [sys.executable, "-c", FAULTS, *arguments]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted as Linux does")
def test_later_programs_reuse_array_memory() -> None:
    assert faults("kept") < 100 < faults()
