"""Fault scripts: their keys, the moments of processes, and the fate of messages."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.faults import Copy, Fault, Kill, LinkFault, LinkFaults, Moment, Stall, moments
from specfleet.fleet.scenario.reading import change_scenario
from specfleet.fleet.scenario.scenario import Scenario
from tests.helpers.faulty import random_script
from tests.helpers.stars import star

LIVELY = {"verifiers": {"patience_s": 8.0}, "drafters": {"lease_s": 20.0}}
KILL = {"what": "kill", "node": "drafter"}
DROP = {"what": "link", "effect": "drop", "share": 0.5}
LATE = {"what": "link", "effect": "reorder", "share": 1}

DELAY, REORDER, DUPLICATE = (LinkFault(effect, 1.0, 2.0) for effect in ("delay", "reorder", "duplicate"))


def lively(*faults: dict[str, Any], **changes: Any) -> Scenario:
    return star(**(LIVELY | changes), faults=list(faults))


def link(*faults: Fault, seed: int = 0) -> LinkFaults:
    return LinkFaults(faults, "drafter", "verifier.2", np.random.default_rng(seed))


def test_a_scenario_reads_faults_with_units() -> None:
    faults = lively(
        KILL | {"at_s": "500ms", "for_s": "2s"},
        {"what": "stall", "node": "verifier.3", "for_s": 1},
        {"what": "link", "effect": "drop", "share": "1%"},
        LATE | {"share": 0.5, "by_s": "20ms", "node": "verifier.1", "at_s": 3, "for_s": 4},
    ).faults
    assert faults == (
        Kill("drafter", 0.5, 2.0),
        Stall("verifier.3", 1.0),
        LinkFault("drop", 0.01),
        LinkFault("reorder", 0.5, 0.02, node="verifier.1", at_s=3.0, for_s=4.0),
    )


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"what": "explode"}, "what"),
        ({"kind": "kill"}, "needs the key `what`; allowed: kill, stall, link"),
        ({"what": "kill"}, "node"),
        ({"what": "stall", "node": "drafter"}, "for_s"),
        (DROP | {"share": 0}, "share"),
        (DROP | {"share": 1.5}, "share"),
        (DROP | {"by_s": 1}, "leave by_s out"),
        (LATE | {"by_s": 0}, "needs by_s above 0"),
        (DROP | {"effect": "lose"}, "effect"),
        (KILL | {"at_s": -1}, "at_s"),
        (KILL | {"node": "drafter.2"}, "node = 'drafter.2' is no station of this fleet; allowed: drafter, verifier.1"),
        (DROP | {"node": "verifier.4"}, "node = 'verifier.4' is no station"),
        (KILL | {"node": "router"}, "node = 'router' is no station"),
    ],
)
def test_a_fault_that_cannot_be_is_refused_by_its_key(fault: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match="faults") as refused:
        lively(fault)
    assert message in str(refused.value)


def test_moments_come_in_the_order_of_time() -> None:
    script = (Stall("verifier.1", 5.0, 1.0), Kill("drafter", 2.0, 0.0), Kill("drafter", 9.0), LinkFault("drop", 0.1))
    assert moments(script) == [
        Moment(1.0, "verifier.1", "stall"),
        Moment(2.0, "drafter", "kill"),
        Moment(2.0, "drafter", "start"),
        Moment(6.0, "verifier.1", "resume"),
        Moment(9.0, "drafter", "kill"),
    ]


def test_unaffected_messages_arrive_once_and_on_time() -> None:
    others = (
        LinkFault("drop", 1.0, node="verifier.1"),
        LinkFault("drop", 1.0, at_s=5.0),
        LinkFault("drop", 1.0, for_s=2.0),
        Kill("drafter"),
    )
    assert link(*others).copies(3.0) == [Copy(0.0, in_order=True)]
    assert link(*others).copies(1.9) == link(*others).copies(5.0) == []


@pytest.mark.parametrize("node", ["", "drafter", "verifier.2"])
def test_faults_of_a_link_hit_both_of_its_ends(node: str) -> None:
    assert link(LinkFault("drop", 1.0, node=node)).copies(0.0) == []


def test_late_messages_wait_or_are_overtaken_and_copies_are_overtaken() -> None:
    late, overtaken, twice = (link(fault).copies(0.0) for fault in (DELAY, REORDER, DUPLICATE))
    assert [(copy.in_order, 0 < copy.late_s < 2) for copy in late + overtaken] == [(True, True), (False, True)]
    assert twice[0] == Copy(0.0, in_order=True)
    assert [(copy.in_order, 0 < copy.late_s < 2) for copy in twice[1:]] == [(False, True)]
    both = link(DELAY, REORDER, DUPLICATE).copies(0.0)
    assert [copy.in_order for copy in both] == [False, False]
    assert link(DUPLICATE, LinkFault("drop", 1.0)).copies(0.0) == []


def test_as_many_messages_are_hit_as_the_share_says() -> None:
    faulty, sent = link(LinkFault("drop", 0.2), LinkFault("duplicate", 0.5, 1.0), seed=3), 20_000
    arrivals = Counter(len(faulty.copies(0.0)) for _ in range(sent))
    expected = {0: 0.2, 1: 0.4, 2: 0.4}
    for copies, share in expected.items():
        deviation = (share * (1 - share) / sent) ** 0.5
        assert abs(arrivals[copies] / sent - share) < 3.89 * deviation  # 99.99 %


def test_random_scripts_are_valid_and_reproducible() -> None:
    names = ["drafter"], ["verifier.1", "verifier.2", "verifier.3"]
    scripts = [random_script(seed, *names, length_s=10.0, outage_s=2.0) for seed in range(200)]
    assert scripts == [random_script(seed, *names, length_s=10.0, outage_s=2.0) for seed in range(200)]
    kinds = Counter(getattr(fault, "effect", type(fault).__name__) for script in scripts for fault in script)
    assert set(kinds) == {"Kill", "Stall", "drop", "delay", "duplicate", "reorder"}
    for script in scripts:
        again = change_scenario(lively(), {"faults": script})
        assert again.faults == script
        assert all(fault.for_s is not None for fault in script if isinstance(fault, Kill) and fault.node != "drafter")
