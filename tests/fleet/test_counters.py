"""Counters of a growing log equal the tables of the whole log; recent metrics equal those of a run."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.fleet.records.metrics.counters import MAX_EVENTS, SPAN_S, Counters, TargetCounters
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.metrics.tables import commits_of, left_s_of, rounds_of, verifications_of
from specfleet.fleet.records.recorder import Log, ReportedRows
from specfleet.fleet.records.run import Run
from specfleet.fleet.records.schema import WIDTH, Row
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.run import simulate
from tests.helpers.logs import log_of_run
from tests.helpers.stars import star

SHORT = {"requests": 12, "new_tokens": 30}
KINDS: dict[str, dict[str, Any]] = {
    "a star": {},
    "fifo of eight": {"verifiers": {"count": 8}},
    "trees": {"drafters": {"depth": 3, "shape": {"kind": "tree", "branching": [2, 2, 1]}}},
    "drafting ahead": {"drafters": {"overlap": "ahead"}},
    "two drafters": {"drafters": {"count": 2}},
    "a router": {"drafters": {"count": 2, "route": "shortest-queue"}},
    "open arrivals": {"workload": SHORT | {"arrivals": {"process": "poisson", "per_s": 0.1}}},
    "several streams a target": {"workload": SHORT | {"streams": 6}},
    "own drafts": {
        "drafters": {"place": "target"},
        "verifiers": {"max_num_seqs": 3},
        "workload": SHORT | {"streams": 9},
    },
    "aligned rows": {
        "drafters": {"place": "target"},
        "verifiers": {"max_num_seqs": 3, "aligned": {"policy": "realign"}},
        "workload": SHORT | {"streams": 9},
    },
    "no drafter": {"drafters": {"count": 0}, "profile": {"decode": {"base_s": 1.0}}},
}


def counted(scenario: Scenario, run: Run) -> Counters:
    counters = Counters(resolve(scenario))
    counters.take(ReportedRows(0.0, log_of_run(run)))
    return counters


def sums(targets: dict[int, TargetCounters], name: str) -> int:
    return sum(getattr(one, name) for one in targets.values())


def accepted(targets: Iterable[TargetCounters]) -> list[int]:
    """Drafts by their number of accepted tokens."""
    lengths = [length for one in targets for length in one.accepted.elements()]
    return np.bincount(np.array(lengths, dtype=int)).tolist() if lengths else []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_counts_of_targets_are_sums_of_the_tables(kind: str, seed: int) -> None:
    scenario = star(**({"workload": SHORT, "seed": seed} | KINDS[kind]))
    run = simulate(scenario)
    rows, counts = run.frame(), counted(scenario, run)
    commits, verified = commits_of(run.columns()).frame(), verifications_of(run.columns()).frame()
    assert sums(counts.verifying, "committed") == commits.committed.sum()
    assert sums(counts.verifying, "rounds") == len(verified)
    assert sums(counts.verifying, "drafted") == verified.draft_tokens.sum()
    assert sums(counts.verifying, "accepted_tokens") == verified.acceptance_length.sum()
    drafts = verified[verified.draft_tokens > 0]
    assert sums(counts.verifying, "drafts") == len(drafts)
    assert accepted(counts.verifying.values()) == np.bincount(drafts.acceptance_length).tolist()
    assert sums(counts.verifying, "finished") == sums(counts.verifying, "opened") == scenario.workload.requests
    joins = rows[rows.event == "join"].set_index("request").time_s
    left_s = left_s_of(resolve(scenario), run.columns(), commits_of(run.columns()))
    ends = commits.assign(left_s=left_s).groupby("request").left_s.agg(["min", "max"])
    assert counts.first.sum_s == pytest.approx((ends["min"] - joins).sum())
    assert counts.latency.sum_s == pytest.approx((ends["max"] - joins).sum())
    per_target = commits.groupby(commits.tag.map(resolve(scenario).target_of)).committed.sum()
    assert {target: one.committed for target, one in counts.verifying.items()} == per_target.to_dict()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("own drafts", "aligned rows", "no drafter")])
def test_drafters_count_all_but_first_and_last_tokens(kind: str) -> None:
    scenario = star(**({"workload": SHORT} | KINDS[kind]))
    fleet = resolve(scenario)
    run = simulate(scenario)
    rows, counts = run.frame(), counted(scenario, run)
    assert sums(counts.drafting, "opened") == scenario.workload.requests
    if fleet.routed:  # of a session that moves, drafters learn less
        assert 0 < sums(counts.drafting, "committed") < sums(counts.verifying, "committed")
        return
    verified = verifications_of(run.columns()).frame()
    last = verified.groupby(["tag", "request"]).base.transform("max") == verified.base
    reported = verified[~last]
    bases = rows[(rows.event == "draft-request") & rows.station.str.startswith("drafter")].groupby("request").base
    assert sums(counts.drafting, "committed") == (bases.max() - bases.min()).sum()
    if fleet.in_turn:
        assert sums(counts.drafting, "rounds") == len(reported)
        assert sums(counts.drafting, "drafted") == reported.draft_tokens.sum()
        assert sums(counts.drafting, "accepted_tokens") == reported.acceptance_length.sum()
        waits_s = rounds_of(run.columns()).frame().wait_s
        assert counts.waits.sum_s == pytest.approx(waits_s.sum())
        assert sum(counts.waits.numbers) == len(waits_s)


def test_busy_time_and_steps_match_the_stations_rows() -> None:
    scenario = star(workload=SHORT)
    run = simulate(scenario)
    rows, counts = run.frame(), counted(scenario, run)
    for name, station in counts.stations.items():
        own = rows[(rows.station == name) & (rows.event == "done")].drop_duplicates("step")
        begun = rows[(rows.station == name) & (rows.event == "start")].drop_duplicates("step")
        assert station.busy_until_s(1e9) == pytest.approx(own.time_s.sum() - begun.time_s.sum())
        for kind, of_kind in own.groupby("kind"):
            assert station.steps[str(kind)] == (len(of_kind), pytest.approx(of_kind.duration_s.sum()))


def test_a_running_step_counts_as_busy_time() -> None:
    rows = RUN.frame()
    first = int(rows[(rows.event == "start") & (rows.station == "drafter")].index[0])
    counters = Counters(FLEET)
    counters.take(ReportedRows(0.0, log_of_run(RUN)[: (first + 1) * WIDTH]))
    assert counters.stations["drafter"].busy_until_s(float(rows.time_s[first]) + 0.25) == pytest.approx(0.25)


@given(pieces=st.lists(st.integers(1, 200), max_size=20))
def test_pieces_of_a_log_count_like_the_whole(pieces: list[int]) -> None:
    log, whole, growing = log_of_run(RUN), Counters(FLEET), Counters(FLEET)
    whole.take(ReportedRows(5.0, log))
    place = 0
    for piece in [*pieces, len(log)]:
        before = growing.committed
        growing.take(ReportedRows(5.0, log[place : place + piece * WIDTH]))
        assert growing.committed >= before
        place += piece * WIDTH
    for name in ("drafting", "verifying", "stations", "waits", "first", "latency"):
        assert getattr(growing, name) == getattr(whole, name)
    assert growing.recent_metrics() == whole.recent_metrics()


SCENARIO = star(workload=SHORT)
RUN = simulate(SCENARIO)
FLEET = resolve(SCENARIO)


# --- the last minute ---

FAST = {"draft": {"base_s": 0.1}, "verify": {"base_s": 0.4}}  # a run of less than a minute


@pytest.mark.parametrize("side", ["targets", "drafters alone"])
def test_recent_metrics_of_a_short_run_are_its_metrics(side: str) -> None:
    scenario = star(profile=FAST, measure={"warm_up_share": 0.0}, verifiers={"count": 1}, workload={"requests": 4})
    run = simulate(scenario)
    rows, log = run.frame(), log_of_run(run)
    end_s = float(rows.time_s.max())
    assert end_s < SPAN_S
    if side == "drafters alone":
        log = [value for row in log_rows(log) if row[1] == "drafter" for value in row]
    counters, measured = Counters(resolve(scenario)), measure(run)
    counters.take(ReportedRows(end_s, log))
    recent = counters.recent_metrics()
    assert recent["load"] == pytest.approx(measured["load"].value)
    if side == "targets":
        assert recent["throughput"] == pytest.approx(measured["throughput"].value)
        assert recent["acceptance_rate"] == pytest.approx(measured["acceptance_rate"].value)
    else:
        assert recent["throughput"] == pytest.approx(counters.committed / end_s)


def log_rows(log: Log) -> list[Log]:
    return [log[place : place + WIDTH] for place in range(0, len(log), WIDTH)]


@pytest.mark.parametrize(
    ("rounds", "now_s", "throughput", "acceptance"),
    [
        ([], 5.0, 0.0, math.nan),
        ([(100.0, 60, 120, 120), (200.0, 30, 60, 15), (230.0, 12, 24, 6)], 240.0, 42 / SPAN_S, 0.25),
        ([(0.001 * number, 3, 4, 2) for number in range(1, 2 * MAX_EVENTS)], 0.002 * MAX_EVENTS, 3000.0, 0.5),
    ],
    ids=["nothing yet", "older than a minute", "a full ring"],
)
def test_recent_metrics_are_those_of_the_kept_rounds_of_the_last_minute(
    rounds: list[tuple[float, ...]], now_s: float, throughput: float, acceptance: float
) -> None:
    counters = Counters(FLEET)
    counters.recent_rounds.extend(rounds)
    counters.time_s = now_s
    recent = counters.recent_metrics()
    assert recent["throughput"] == pytest.approx(throughput, rel=0.001)
    assert recent["acceptance_rate"] == pytest.approx(acceptance, nan_ok=True)
    assert math.isnan(recent["load"])


def test_a_killed_station_has_nothing_open_and_counts_on() -> None:
    scenario = star(
        profile={"decode": {"base_s": 4.0}},
        drafters={"lease_s": 9.0},
        verifiers={"patience_s": 8.0, "rejoin_s": 3.0},
        faults=[{"what": "kill", "node": "drafter", "at_s": 100.0, "for_s": 60.0}],
    )
    run = simulate(scenario)
    counts = counted(scenario, run)
    assert sums(counts.verifying, "committed") == commits_of(run.columns()).committed.sum()
    assert sums(counts.verifying, "finished") == scenario.workload.requests
    assert 0 < sums(counts.drafting, "committed") < sums(counts.verifying, "committed")


def test_a_request_that_begins_again_counts_once() -> None:
    kill = {"what": "kill", "node": "verifier.1", "at_s": 100.0, "for_s": 60.0}
    scenario = star(
        profile={"decode": {"base_s": 4.0}}, drafters={"lease_s": 9.0}, verifiers={"patience_s": 8.0}, faults=[kill]
    )
    run = simulate(scenario)
    joins, counts = run.frame().event.eq("join").sum(), counted(scenario, run)
    assert joins > sums(counts.verifying, "opened") == scenario.workload.requests
    assert sums(counts.verifying, "prompt_tokens") == 10 * scenario.workload.requests


def test_a_restarted_station_has_nothing_open() -> None:
    log = log_of_run(RUN)
    rows = RUN.frame()
    opened = int(rows[(rows.event == "draft-request") & rows.flag].index[0]) + 1
    counters = Counters(FLEET)
    counters.take(ReportedRows(0.0, log[: opened * WIDTH]))
    assert counters.stations["drafter"].texts
    restart = list(log[:WIDTH])
    restart[1], restart[3] = "drafter", "restart"
    counters.take(ReportedRows(0.0, restart))
    assert not counters.stations["drafter"].texts


def test_an_empty_grant_waits_for_no_step() -> None:
    row = next(Row._make(values) for values in log_rows(log_of_run(RUN)) if values[3] == "draft-request")
    for tokens, waits in ((4, True), (0, False)):
        counters = Counters(FLEET)
        counters.take(ReportedRows(0.0, list(row._replace(tokens=tokens))))
        assert counters.stations["drafter"].texts[row.tag].waits == waits


@pytest.mark.parametrize("events", [["draft-request", "refusal"], ["refusal", "draft-request"]])
def test_a_refused_session_is_not_open_at_its_drafter(events: list[str]) -> None:
    """Whichever of both processes reports first."""
    scenario = star(workload=SHORT, drafters={"admit": {"policy": "at-most", "sessions": 1}})
    rows = [Row._make(values) for values in log_rows(log_of_run(simulate(scenario)))]
    request = next(row.request for row in rows if row.event == "refusal")
    counters = Counters(resolve(scenario))
    for event in events:
        (row,) = [row for row in rows if (row.request, row.event) == (request, event)]
        counters.take(ReportedRows(0.0, list(row)))
    assert counters.stations["drafter"].texts == {}
