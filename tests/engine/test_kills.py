"""Real processes that a script kills and stops: no token changes, every log replays, every process ends."""

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from fleet.scenario.faults import Kill
from tests.faults.kills import NAMES, check, run_killed, scenario_of
from tests.helpers.marks import slow

KILLS = 4  # that each script asks for
QUICK = ("replayed", "replayed routed")


def test_the_script_of_each_kind_of_fleet_kills_targets_of_some(tiny: Path) -> None:
    """Else fleets whose targets cannot be killed would pass."""
    killed = {
        name: {
            fault.node.partition(".")[0] for fault in scenario_of(name, tiny, seed, KILLS).faults if type(fault) is Kill
        }
        for seed, name in enumerate(NAMES)
    }
    assert all("verifier" in killed[name] for name in QUICK)


@pytest.mark.parametrize(
    ("name", "seed"), [(name, seed) if name in QUICK else slow(name, seed) for seed, name in enumerate(NAMES)]
)
def test_processes_that_a_script_kills_change_no_token(tiny: Path, name: str, seed: int) -> None:
    """All of them together are more than twenty kills."""
    found = run_killed(name, tiny, seed, KILLS)
    check(found)
    assert found.events["killed"] == KILLS
    assert found.events["restart"] >= 1
