"""Fleets under random fault scripts: every request finishes, and nothing is committed twice."""

from collections import Counter

import msgspec
import pytest
from simpy import Environment

from specfleet.figures.timeline import steps_of
from specfleet.fleet.acceptance.tokens import Agreement
from specfleet.fleet.records.metrics.findings import findings_of
from specfleet.fleet.records.playback import playback_of
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import Run, make_run
from specfleet.fleet.scenario.faults import Kill, Stall
from specfleet.fleet.scenario.reading import scenario_of
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.stations.session import ERA, INCARNATION
from specfleet.sim.network import Network
from specfleet.sim.run import simulate
from tests.helpers.faulty import FLEETS, NEW_TOKENS, faulty, plain_fleet
from tests.helpers.marks import slow

KILLED = [{"what": "kill", "node": "drafter", "at_s": 5.0, "for_s": 2.0}]
FEW, ALL = range(16), range(77)  # scripts of each fleet; more than 1,000 in all
END_S = 1000.0  # simulated time, a hundred times what a fleet needs
STEPS = 200_000  # events, a hundred times what a fleet needs


def played(name: str, seed: int) -> tuple[Run, Network]:
    """Simulate a fleet under the script of that seed to its end."""
    scenario = faulty(name, seed)
    fleet, env = resolve(scenario), Environment()
    network = Network(env, fleet)
    network.start()
    for _ in range(STEPS):
        if env.peek() == float("inf"):
            return make_run(scenario, "sim", network.log, fleet), network
        assert env.peek() < END_S
        env.step()
    raise AssertionError(f"{name}, seed {seed}: does not end")


def committed(run: Run) -> Counter[tuple[int, int]]:
    """Committed tokens of each request, without those of killed targets."""
    names = ("station", "event", "kind", "tag", "request", "epoch", "base", "tokens", "accepted", "goal")
    goals: dict[tuple[int, int], int] = {}
    tokens: Counter[tuple[int, int, int]] = Counter()
    for row in zip(*(run.table[name].to_pylist() for name in names), strict=True):
        station, event, kind, tag, request, epoch, base, of_row, accepted, goal = row
        if event == "join":
            goals[tag, request] = goal
        elif event == "done" and kind in ("prefill", "verify", "decode") and not station.startswith("drafter"):
            length = base or of_row  # a prefill's tokens are the prompt
            tokens[tag, request, epoch // INCARNATION] += min(accepted + 1, goals[tag, request] - length)
    latest = {(tag, request): started for tag, request, started in sorted(tokens)}
    return Counter({stream: tokens[*stream, started] for stream, started in latest.items()})


@pytest.mark.parametrize(("name", "seeds"), [case for name in FLEETS for case in ((name, FEW), slow(name, ALL))])
def test_every_request_finishes_under_any_faults(name: str, seeds: range) -> None:
    events: Counter[str] = Counter()
    for seed in seeds:
        run, network = played(name, seed)
        assert not network.open, seed
        assert set(committed(run).values()) == {NEW_TOKENS}, seed
        assert len(committed(run)) == 6, seed
        assert replay(run) == [], seed
        left = {server.station.name for server in network.servers if server.station.sessions}
        assert left <= {"router"}, (seed, left)
        assert not any(server.station.waiting or server.station.running for server in network.servers), seed
        events.update(run.table["event"].to_pylist())
        rows = zip(run.table["kind"].to_pylist(), run.table["epoch"].to_pylist(), strict=True)
        events["back"] += sum(kind == "verify" and epoch % INCARNATION >= ERA for kind, epoch in rows)
    # All kinds of faults happened.
    assert min(events[event] for event in ("overdue", "retry", "killed", "restart", "back")) >= 2


@pytest.mark.parametrize("name", FLEETS)
def test_timeouts_change_nothing_without_faults(name: str) -> None:
    watched, unwatched = (plain_fleet(name, 1, wait_s, lease_s=wait_s) for wait_s in (900.0, 0.0))
    assert simulate(watched).digest() == simulate(unwatched).digest()


def test_a_station_that_starts_again_worked_as_long_as_its_steps_lasted() -> None:
    """A fresh station numbers its steps from 0, as the one before did."""
    scenario = scenario_of("dying-drafter", {"workload.requests": 100, "measure.warm_up_share": 0.0, "faults": KILLED})
    run = simulate(scenario)
    rows = run.frame()
    steps = rows[(rows.event == "done") & (rows.station == "drafter")].drop_duplicates("time_s")
    found = findings_of(run).draft_steps
    assert (found.ended_s - found.begun_s).sum() == pytest.approx(steps.duration_s.sum(), rel=0.01)
    assert len(found) == len(steps)
    drawn = steps_of(rows)
    assert len(drawn[drawn.station == "drafter"]) == len(steps)


def test_equal_seeds_give_equal_faults() -> None:
    digests = [simulate(faulty("star", seed)).digest() for seed in (3, 3, 8)]
    assert digests[0] == digests[1] != digests[2]


def test_a_fault_after_the_last_request_changes_no_row() -> None:
    plain = plain_fleet("star", 1)
    late = (Kill("drafter", 500.0), Stall("verifier.1", 3.0, 400.0))
    assert simulate(msgspec.structs.replace(plain, faults=late)).digest() == simulate(plain).digest()


def test_a_stalled_station_takes_messages_before_timeouts() -> None:
    """The first draft takes 0.28 s, longer than the patience; it comes during the stall, after its timeout."""
    fleet = plain_fleet("star", 1, patience_s=0.2)
    workload = msgspec.structs.replace(fleet.workload, requests=1)
    run = simulate(msgspec.structs.replace(fleet, workload=workload, faults=(Stall("verifier.1", 1.0, 0.2),)))
    events = run.frame().event
    assert ("draft" in set(events), "overdue" in set(events)) == (True, False)


def test_a_restarted_target_goes_through_the_same_texts() -> None:
    texts = Agreement(("?" * 30,), unknown=0.6)
    fleet = msgspec.structs.replace(plain_fleet("star", 1), acceptance=texts, faults=(Kill("verifier.1", 1.9, 0.0),))
    frame = simulate(fleet).frame().query("event == 'done' and kind == 'verify'")
    verified = frame.groupby(["request", "base", "tokens"]).accepted
    assert verified.size().max() == 2
    assert verified.nunique().max() == 1


@pytest.mark.parametrize("name", FLEETS)
def test_a_run_with_faults_can_be_played_back(name: str) -> None:
    for seed in range(6):
        scenario = faulty(name, seed)
        again = simulate(scenario, playback=playback_of(simulate(scenario)))
        assert replay(again) == [], seed
        assert set(committed(again).values()) == {NEW_TOKENS}, seed
