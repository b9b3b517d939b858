"""What the engine cannot do yet it says by key, before anything is started."""

import msgspec
import pytest

from engine.runtime.runnable import check_can_run
from fleet.errors import InputError
from fleet.policies.liveness import Patience
from fleet.scenario.faults import Drop
from fleet.scenario.reading import make_scenario
from fleet.scenario.settle import settle
from fleet.scenario.settled import Fleet

replace = msgspec.structs.replace
PLAIN = settle(make_scenario({}))


@pytest.mark.parametrize(
    ("key", "fleet"),
    [
        ("verifiers.patience_s", replace(PLAIN, verifiers=replace(PLAIN.verifiers, patience=Patience(1.0)))),
        ("drafters.lease_s", replace(PLAIN, drafters=replace(PLAIN.drafters, lease_s=1.0))),
        ("faults", replace(PLAIN, faults=(Drop(0.5),))),
    ],
)
def test_faults_and_what_stations_do_about_them_are_refused_by_key(key: str, fleet: Fleet) -> None:
    check_can_run(PLAIN)
    with pytest.raises(InputError, match=f"{key}: real nodes have leases of their own"):
        check_can_run(fleet)
