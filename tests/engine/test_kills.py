"""Real processes that a script kills and stops: no token changes, every log replays, every process ends."""

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.faults.kills import NAMES, check, run_killed
from tests.helpers.marks import slow

KILLS = 4  # that each script asks for


@pytest.mark.parametrize(
    ("name", "seed"), [(name, seed) if name == "replayed" else slow(name, seed) for seed, name in enumerate(NAMES)]
)
def test_processes_that_a_script_kills_change_no_token(tiny: Path, name: str, seed: int) -> None:
    """All of them together are more than twenty kills."""
    found = run_killed(name, tiny, seed, KILLS)
    check(found)
    assert found.events["killed"] == KILLS
    assert found.events["restart"] >= 1
