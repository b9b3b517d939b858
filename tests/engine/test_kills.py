"""Real processes under scripts of kills and stops: no token changes, every log replays, every process ends."""

from pathlib import Path

import msgspec
import pytest

from specfleet.engine.launch.serve import serve
from specfleet.fleet.scenario.faults import Kill
from specfleet.fleet.scenario.reading import make_scenario
from tests.faults.kills import LEASE_S, NAMES, PATIENCE_S, PROFILE, REJOIN_S, check, run_killed, scenario_of
from tests.helpers.marks import slow

KILLS = 4  # of each script
QUICK = ("replayed routed",)


def test_scripts_kill_targets_of_replayed_fleets(tiny: Path) -> None:
    """Else fleets with targets that cannot be killed would pass."""
    killed = {}
    for seed, name in enumerate(NAMES):
        faults = scenario_of(name, tiny, seed, KILLS).faults
        killed[name] = {fault.node.partition(".")[0] for fault in faults if type(fault) is Kill}
    assert all("verifier" in killed[name] for name in QUICK)


@pytest.mark.parametrize(
    ("name", "seed"), [(name, seed) if name in QUICK else slow(name, seed) for seed, name in enumerate(NAMES)]
)
def test_killed_processes_change_no_token(tiny: Path, name: str, seed: int) -> None:
    """All of them together are more than twenty kills."""
    found = run_killed(name, tiny, seed, KILLS)
    check(found)
    assert found.events["killed"] == KILLS
    assert found.events["restart"] >= 1


@pytest.mark.slow
def test_a_killed_process_is_back_on_time() -> None:
    """It starts right after the kill, so its start takes no time of the outage."""
    kill = Kill("drafter", 0.5, 6.0)
    scenario = make_scenario(
        {
            "profile": PROFILE,
            "drafters": {"kind": "replayed", "lease_s": LEASE_S},
            "verifiers": {"kind": "replayed", "count": 2, "patience_s": PATIENCE_S, "rejoin_s": REJOIN_S},
            "workload": {"requests": 2, "new_tokens": 2000},
            "acceptance": {"model": "geometric", "beta": 0.7},
            "faults": [msgspec.to_builtins(kill)],
        }
    )
    rows = serve(scenario).run.frame()
    (back_s,) = rows.time_s[rows.event == "restart"]
    assert 0.0 <= back_s - kill.at_s - kill.for_s < 0.5
