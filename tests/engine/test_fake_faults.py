"""Nodes on a network in memory that drops, repeats, delays and reorders frames, with stalls, kills and restarts."""

from collections import Counter

import msgspec
import pytest

from specfleet.engine.net.actions import ALIVE_S, LEASE_S
from specfleet.engine.net.socket_thread import TICK_S
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import make_run
from specfleet.fleet.scenario.faults import Stall
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.stations.session import ERA, INCARNATION
from specfleet.fleet.times.step import Step
from tests.fakes.network import FakeNetwork
from tests.helpers.faulty import FLEETS, faulty, plain_fleet
from tests.helpers.marks import slow
from tests.helpers.toy_fleets import ToyFleet
from tests.helpers.toys import ToyDrafter, check_texts, toy_fleet

# without waits for a device or a user
NAMES = [name for name in FLEETS if name not in ("turns", "contended", "arrivals")]
FEW, ALL = range(4), range(100)  # scripts of each fleet; all of them are 1,000
STEP_S = {"prefill": 0.1, "chunk": 0.1, "draft": 0.1, "verify": 0.3, "decode": 0.25, "route": 0.0}
MAX_S = 600.0  # of virtual time; a fleet needs 10 s
FLEET = toy_fleet()


def seconds_of(step: Step) -> float:
    return max(STEP_S[step.kind_of(member)] for member in step.members)


def played(name: str, seed: int) -> tuple[Scenario, ToyFleet]:
    """Run the toys of a fleet under the script of that seed; an error if they do not finish."""
    scenario = faulty(name, seed)
    fleet = resolve(scenario)
    network = FakeNetwork(seed, way_s=0.02, faults=fleet.faults, notices=seed % 2 == 0)
    toys = ToyFleet(fleet, network, seconds_of)
    toys.start()
    assert network.run(MAX_S, lambda: toys.finished), f"{name}, seed {seed}: hangs"
    lease_s = fleet.drafters.lease_s
    network.run(network.now_s + 12.0 + 2 * lease_s, lambda: False)
    return scenario, toys


@pytest.mark.parametrize(("name", "seeds"), [case for name in NAMES for case in ((name, FEW), slow(name, ALL))])
def test_faults_change_no_token_and_logs_replay(name: str, seeds: range) -> None:
    events: Counter[str] = Counter()
    for seed in seeds:
        scenario, toys = played(name, seed)
        check_texts(toys.fleet, toys.outputs)
        run = make_run(scenario, "engine", toys.log, toys.fleet)
        assert replay(run) == [], seed
        for station, node in toys.network.nodes.items():
            left = node.worker.station.sessions
            assert station == "router" or not left, (seed, station, left)
        events.update(run.table["event"].to_pylist())
        rows = zip(run.table["kind"].to_pylist(), run.table["epoch"].to_pylist(), strict=True)
        events["back"] += sum(kind == "verify" and epoch % INCARNATION >= ERA for kind, epoch in rows)
    if seeds is ALL:  # the scripts had their faults
        assert min(events[event] for event in ("overdue", "retry", "killed", "restart", "back")) >= 20


def test_a_silent_target_loses_its_session_after_the_lease() -> None:
    at_s, lease_s = 2.0, 1.5
    scenario = plain_fleet("star", 0, lease_s=lease_s)
    fleet = resolve(msgspec.structs.replace(scenario, faults=(Stall("verifier.1", 60.0, at_s),)))
    network = FakeNetwork(0, way_s=0.02)
    toys = ToyFleet(fleet, network, seconds_of)
    toys.start()
    assert not network.run(at_s, lambda: False)
    drafter = network.nodes["drafter"].worker
    assert 0 in drafter.station.sessions, "or nothing is to be released"
    assert not network.run(at_s + lease_s + 2 * STEP_S["draft"] + STEP_S["prefill"], lambda: False)
    assert 0 not in drafter.station.sessions
    assert isinstance(drafter.executor, ToyDrafter)
    assert 0 not in drafter.executor.texts
    assert network.run(MAX_S, lambda: toys.finished)
    check_texts(fleet, toys.outputs)


def test_runs_with_the_same_seed_are_the_same() -> None:
    (_, one), (_, same), (_, other) = (played("star", seed) for seed in (7, 7, 8))
    assert one.log == same.log != other.log


@pytest.mark.parametrize("name", ["narrow", "narrow and late", "late"])
def test_a_drafter_gets_one_request_of_a_session_at_a_time(name: str) -> None:
    """The drafter is slow: caches are lost, and texts go on, while drafts are on their way."""
    fleet = resolve(plain_fleet(name, 0, patience_s=0.0, lease_s=0.0))
    network = FakeNetwork(0, way_s=0.02)
    toys = ToyFleet(fleet, network, lambda step: 0.5 if step.kind == "draft" else seconds_of(step))
    toys.start()
    assert network.run(MAX_S, lambda: toys.finished)
    check_texts(fleet, toys.outputs)
    server = network.nodes["drafter"].connections.server
    assert server is not None
    assert not any(server.counts.values())


def test_targets_decode_alone_while_the_drafter_is_dead() -> None:
    network, fleet = FakeNetwork(0), toy_fleet(workload={"requests": 30})
    toys = ToyFleet(fleet, network)
    toys.start()
    assert not network.run(0.3, lambda: False)
    toys.change("drafter", "kill")
    assert not network.run(0.5, lambda: False)
    toys.change("drafter", "start")
    drafter = network.nodes["drafter"]
    assert network.run(MAX_S, lambda: toys.finished)
    check_texts(fleet, toys.outputs)
    assert drafter.worker.executor.drafted > 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(("notices", "within_s"), [(True, 2 * TICK_S), (False, LEASE_S + ALIVE_S)])
def test_the_successor_of_a_dead_target_is_served(notices: bool, within_s: float) -> None:
    """At once if the kernel reports the end of its connection, else after a lease without a frame."""
    network = FakeNetwork(0, notices=notices)
    toys = ToyFleet(FLEET, network)
    toys.start()
    assert not network.run(0.3, lambda: False)
    killed_s = network.now_s
    toys.change("verifier.1", "kill")
    drafter = network.nodes["drafter"]
    assert network.run(MAX_S, lambda: not any(tag % 2 == 0 for tag in drafter.worker.station.sessions))
    assert network.now_s <= killed_s + within_s
    toys.change("verifier.1", "start")
    assert network.run(MAX_S, lambda: toys.finished)
    check_texts(FLEET, toys.outputs)
