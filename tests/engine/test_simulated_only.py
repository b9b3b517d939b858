"""The engine refuses scenarios that it cannot run by key, before any process starts."""

from typing import Any

import pytest

from engine.launch.runnable import check_by_hand, check_can_run
from fleet.errors import InputError
from fleet.scenario.reading import make_scenario
from fleet.scenario.resolve import resolve
from fleet.scenario.resolved import Fleet

PATIENT = {"patience_s": 1.0}
REPLAYED = {"kind": "replayed"}


def fleet_of(**tables: Any) -> Fleet:
    return resolve(make_scenario(tables))


def one_process(**tables: Any) -> Fleet:
    device = {"devices": {"host": {"sharing": "one-process"}}}
    verifiers, drafters = ({"device": "host"} | tables.get(name, {}) for name in ("verifiers", "drafters"))
    return fleet_of(**device | tables | {"verifiers": verifiers, "drafters": drafters})


@pytest.mark.parametrize(
    ("key", "tables"),
    [
        ("verifiers.patience_s", {"verifiers": PATIENT}),
        ("drafters.lease_s", {"verifiers": PATIENT, "drafters": {"lease_s": 1.0}}),
        (
            "faults",
            {"verifiers": PATIENT, "drafters": {"lease_s": 1.0}, "faults": [{"what": "kill", "node": "drafter"}]},
        ),
    ],
)
def test_stations_of_one_process_have_no_timeouts_or_kills(key: str, tables: dict[str, Any]) -> None:
    check_can_run(one_process())
    with pytest.raises(InputError, match=f"{key} does not go with devices.host.sharing = 'one-process'"):
        check_can_run(one_process(**tables))


def test_nodes_that_are_started_by_hand_are_killed_by_hand() -> None:
    lossy = {"verifiers": PATIENT, "drafters": {"lease_s": 1.0}}
    check_by_hand(fleet_of(**lossy, faults=[{"what": "link", "effect": "drop", "share": 0.1}]))
    with pytest.raises(InputError, match=r"node = 'drafter': nodes that are started by hand are killed and stopped by"):
        check_by_hand(fleet_of(**lossy, faults=[{"what": "kill", "node": "drafter"}]))


@pytest.mark.parametrize("node", ["drafter.2", "verifier.1"])
def test_routed_replayed_targets_and_drafters_can_be_killed(node: str) -> None:
    check_can_run(
        fleet_of(
            profile="rtx-4090",
            acceptance={"model": "geometric", "beta": 0.5},
            drafters=REPLAYED | {"count": 2, "route": "shortest-queue", "lease_s": 1.0},
            verifiers=REPLAYED | PATIENT | {"count": 2},
            faults=[{"what": "kill", "node": node, "for_s": 1.0}],
        )
    )
