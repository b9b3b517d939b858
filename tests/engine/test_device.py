"""On an accelerator all tensors stay there, and the host waits for it once a round. The test needs none."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_only_outcomes_of_verification_are_copied_to_the_host() -> None:
    """All kinds of drafts, greedy and sampled, with graphs and without, on a device that mixes with no other."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.helpers.pretended"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert len(found) == 36
    for case, copies in found.items():
        assert copies["draft"] == [0, 0], case
        assert copies["verify"] == [1, 1], case
        reordered = case.startswith("model, dynamic")  # only the device has the places of such a draft's nodes
        assert max(copies["advance"]) <= reordered, case
