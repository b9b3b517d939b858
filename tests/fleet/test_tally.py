"""A tally says of a growing log what the tables say of the whole one, and costs next to nothing."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.records.counts import EDGES_S, RECENT, Counts, OfTarget, Times
from fleet.records.recorded import Log
from fleet.records.run import Run
from fleet.records.schema import SCHEMA
from fleet.records.tables import commits_of, rounds_of, verifications_of
from fleet.records.tally import Tally
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle
from fleet.stations.build import stations
from sim.run import simulate
from tests.helpers.logs import log_of_run
from tests.helpers.stars import repeatable, star

SHORT = {"requests": 12, "new_tokens": 30}
KINDS: dict[str, dict[str, Any]] = {
    "a star": {},
    "fifo of eight": {"verifiers": {"count": 8}},
    "trees": {"drafters": {"depth": 3, "shape": {"kind": "tree", "branching": [2, 2, 1]}}},
    "drafting ahead": {"drafters": {"overlap": "ahead"}},
    "two drafters": {"drafters": {"count": 2}},
    "a router": {"drafters": {"count": 2, "route": "least-work"}},
    "open arrivals": {"workload": SHORT | {"arrivals": {"process": "poisson", "per_s": 0.1}}},
    "several streams a target": {"workload": SHORT | {"streams": 6}},
    "a batch": {"verifiers": {"count": 1}, "batch": {"rule": {"policy": "slots", "size": 3}}},
    "no drafter": {"drafters": {"count": 0}, "profile": {"decode": {"base_s": 1.0}}},
}


def tallied(scenario: Scenario, run: Run) -> Counts:
    tally = Tally(settle(scenario))
    assert not tally.take(log_of_run(run))
    return tally.counts(0.0)


def sums(targets: tuple[OfTarget, ...], name: str) -> int:
    return sum(getattr(one, name) for one in targets)


def accepted(targets: tuple[OfTarget, ...]) -> list[int]:
    deepest = max((len(one.accepted) for one in targets), default=0)
    return [sum(one.accepted[j] for one in targets if j < len(one.accepted)) for j in range(deepest)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_targets_counts_are_sums_of_the_tables_of_the_whole_log(kind: str, seed: int) -> None:
    scenario = star(**({"workload": SHORT, "seed": seed} | KINDS[kind]))
    run = simulate(scenario)
    rows, counts = run.frame(), tallied(scenario, run)
    commits, verified = commits_of(run.columns()).frame(), verifications_of(run.columns()).frame()
    assert sums(counts.verifying, "committed") == commits.committed.sum()
    assert sums(counts.verifying, "rounds") == len(verified)
    assert sums(counts.verifying, "drafted") == verified.draft_tokens.sum()
    assert sums(counts.verifying, "accepted_tokens") == verified.acceptance_length.sum()
    drafts = verified[verified.draft_tokens > 0]
    assert sums(counts.verifying, "drafts") == len(drafts) == sum(accepted(counts.verifying))
    assert accepted(counts.verifying) == np.bincount(drafts.acceptance_length, minlength=0).tolist()
    assert sums(counts.verifying, "finished") == sums(counts.verifying, "opened") == scenario.workload.requests
    joins = rows[rows.event == "join"].set_index("request").time_s
    ends = commits.groupby("request").time_s.agg(["min", "max"])
    assert counts.first.sum_s == pytest.approx((ends["min"] - joins).sum())
    assert counts.latency.sum_s == pytest.approx((ends["max"] - joins).sum())
    per_target = commits.groupby(commits.tag.map(settle(scenario).target_of)).committed.sum()
    assert {one.target: one.committed for one in counts.verifying} == per_target.to_dict()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("a batch", "no drafter")])
def test_what_drafters_saw_is_what_targets_did_but_for_the_first_and_last_tokens_of_texts(kind: str) -> None:
    scenario = star(**({"workload": SHORT} | KINDS[kind]))
    fleet = settle(scenario)
    run = simulate(scenario)
    rows, counts = run.frame(), tallied(scenario, run)
    if fleet.routed:  # of a session that moves the drafters learn less
        assert 0 < sums(counts.drafting, "committed") < sums(counts.verifying, "committed")
        return
    verified = verifications_of(run.columns()).frame()
    last = verified.groupby(["tag", "request"]).base.transform("max") == verified.base
    told = verified[~last]
    bases = rows[(rows.event == "draft-request") & rows.station.str.startswith("drafter")].groupby("request").base
    assert sums(counts.drafting, "committed") == (bases.max() - bases.min()).sum()
    if fleet.in_turn:
        assert sums(counts.drafting, "rounds") == len(told)
        assert sums(counts.drafting, "drafted") == told.draft_tokens.sum()
        assert sums(counts.drafting, "accepted_tokens") == told.acceptance_length.sum()
        waits_s = rounds_of(run.columns()).frame().wait_s
        assert counts.waits.sum_s == pytest.approx(waits_s.sum())
        assert sum(counts.waits.numbers) == len(waits_s)


def test_a_stations_steps_and_busy_time_are_those_of_its_rows_and_a_running_step_counts() -> None:
    scenario = star(workload=SHORT)
    run = simulate(scenario)
    rows, log = run.frame(), log_of_run(run)
    fleet, built = settle(scenario), stations(settle(scenario)).values()
    tally = Tally(fleet)
    tally.take(log)
    for station in tally.counts(1e9, built).stations:
        own = rows[(rows.station == station.name) & (rows.event == "done")].drop_duplicates("step")
        begun = rows[(rows.station == station.name) & (rows.event == "start")].drop_duplicates("step")
        assert station.busy_s == pytest.approx(own.time_s.sum() - begun.time_s.sum())
        for kind, of_kind in own.groupby("kind"):
            assert station.steps[str(kind)] == (len(of_kind), pytest.approx(of_kind.duration_s.sum()))
    first = rows[(rows.event == "start") & (rows.station == "drafter")].index[0]
    tally = Tally(fleet)
    tally.take(log, most=int(first) + 1)
    begun_s = float(rows.time_s[first])
    (drafter,) = [one for one in tally.counts(begun_s + 0.25, built).stations if one.name == "drafter"]
    assert drafter.busy_s == pytest.approx(0.25)


@given(pieces=st.lists(st.integers(1, 200), max_size=20), ragged=st.integers(0, len(SCHEMA) - 1))
@repeatable
def test_it_does_not_matter_in_which_pieces_a_log_is_read(pieces: list[int], ragged: int) -> None:
    """A row that is half written is left for later."""
    log = log_of_run(RUN)
    whole, tally, growing = Tally(FLEET), Tally(FLEET), Log()
    whole.take(log)
    place, before = 0, 0
    for piece in pieces:
        end = min(place + piece * len(SCHEMA), len(log))
        growing += log[place : max(end - ragged, place)]
        tally.take(growing)
        growing += log[len(growing) : end]
        tally.take(growing, most=piece)
        committed = sums(tally.counts(0.0).verifying, "committed")
        assert committed >= before
        place, before = end, committed
    tally.take(log)
    assert tally.counts(5.0) == whole.counts(5.0)


SCENARIO = star(workload=SHORT)
RUN = simulate(SCENARIO)
FLEET = settle(SCENARIO)


def test_the_last_waits_are_those_of_the_last_requests_and_only_where_asked_for() -> None:
    tally = Tally(FLEET)
    tally.take(log_of_run(RUN))
    assert all(one.waits_s == () for one in tally.counts(0.0).drafting)
    for one in tally.counts(0.0, recent=True).drafting:
        rounds = rounds_of(RUN.columns()).frame().query(f"tag == {one.target}").sort_values("begun_s")
        assert one.waits_s == pytest.approx(rounds.wait_s.tail(RECENT).tolist())


def test_a_time_is_counted_under_the_first_edge_that_is_not_below_it() -> None:
    tally = Tally(FLEET)
    for time_s in (0.0005, 0.001, 0.002, 400.0):
        tally.waits.add(time_s)
    numbers = dict(zip((*EDGES_S, "longer"), tally.counts(0.0).waits.numbers, strict=True))
    assert numbers[0.001] == 2
    assert numbers[0.0025] == numbers["longer"] == 1
    assert tally.counts(0.0).waits.sum_s == pytest.approx(400.0035)
    assert Times().numbers == (0,) * (len(EDGES_S) + 1)


def test_who_was_killed_has_nothing_open_and_what_follows_is_counted() -> None:
    scenario = star(
        profile={"decode": {"base_s": 4.0}},
        drafters={"lease_s": 9.0},
        verifiers={"patience_s": 8.0, "rejoin_s": 3.0},
        faults=[{"what": "kill", "node": "drafter", "at_s": 100.0, "for_s": 60.0}],
    )
    run = simulate(scenario)
    counts = tallied(scenario, run)
    assert sums(counts.verifying, "committed") == commits_of(run.columns()).committed.sum()
    assert sums(counts.verifying, "finished") == scenario.workload.requests
    assert 0 < sums(counts.drafting, "committed") < sums(counts.verifying, "committed")
