"""Drafters behind a router: routing rules, moves, and the parts of a routed round."""

from statistics import mean
from typing import Any

import msgspec
import pandas as pd
import pytest

from specfleet.fleet.policies.allocate import RandomShare
from specfleet.fleet.policies.route import RoundRobin
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.metrics.tables import rounds_of
from specfleet.fleet.records.replay import replay
from specfleet.fleet.scenario.reading import change_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.stations.messages import DraftRequest, Ignored, Instruction, Leave, Routed, StepDone, View
from specfleet.fleet.stations.router import RouterStation
from specfleet.fleet.stations.station import Start
from specfleet.sim.run import simulate
from tests.helpers.stars import star


def route(station: RouterStation, *events: Any) -> list[Instruction]:
    followed: list[Instruction] = []
    for event in events:
        followed += station.handle(event, 0.0)
        while isinstance(plan := station.plan(0.0), Start):
            followed += station.handle(StepDone(plan.step.number, (), 0.0), 0.0)
    return followed


def test_a_move_leaves_the_old_drafter() -> None:
    station = RouterStation("router", 2, RoundRobin())
    first, second = DraftRequest(0, 0, 1, 11, opening=True), DraftRequest(0, 0, 2, 15)
    assert route(station, first) == [Routed(0, 0, 0, first)]
    assert route(station, second) == [
        Routed(0, 0, 0, Leave(0, 0, epoch=2)),
        Routed(0, 0, 1, DraftRequest(0, 0, 2, 15, opening=True)),
    ]
    assert route(station, Leave(0, 0)) == [Routed(0, 0, 1, Leave(0, 0))]


def test_repeated_and_late_messages_change_nothing() -> None:
    station = RouterStation("router", 2, RoundRobin())
    opening = DraftRequest(0, 0, 1, 11, opening=True)
    route(station, opening, View(0, 5, 3))
    before = (dict(station.homes), list(station.queues), station.turn)
    for event in (opening, View(0, 4, 9), DraftRequest(1, 0, 2, 15), Leave(7, 0)):
        assert isinstance(route(station, event)[0], Ignored)
    assert (dict(station.homes), list(station.queues), station.turn) == before
    route(station, Leave(0, 0))
    for event in (opening, Leave(0, 0)):
        assert isinstance(route(station, event)[0], Ignored)


def m_for_n(M: int, N: int, route: str, new_tokens: int, **drafters: Any) -> Scenario:
    return star(
        seed=0,
        profile={"draft": {"base_s": 1.0, "spread": {"spread": "exponential"}}, "verify": {"base_s": 2.0}},
        acceptance={"beta": 0.6},
        drafters={"count": M, "depth": 4, "route": route} | drafters,
        verifiers={"count": N},
        workload={"requests": N, "new_tokens": new_tokens},
    )


@pytest.mark.slow
def test_queues_beat_round_robin() -> None:
    queue, turn = (
        measure(simulate(m_for_n(3, 9, route, 400)))["rounds_per_s"].value
        for route in ("shortest-queue", "round-robin")
    )
    assert queue > turn


def test_predictions_for_like_drafters_are_shortest_queues() -> None:
    queue, predicted = (simulate(m_for_n(2, 5, route, 100)) for route in ("shortest-queue", "predicted"))
    assert predicted.digest() == queue.digest()


def test_predictions_avoid_a_slow_drafter() -> None:
    slow_tier = [{"first": 2, "step": {"base_s": 9.0, "spread": {"spread": "exponential"}}}]
    runs = [simulate(m_for_n(2, 4, route, 200, tiers=slow_tier)) for route in ("shortest-queue", "predicted")]
    queue, predicted = (run.frame().query("event == 'start' and kind == 'draft'") for run in runs)
    assert (predicted.station == "drafter.2").mean() < (queue.station == "drafter.2").mean() / 3
    assert measure(runs[1])["rounds_per_s"].value > 1.1 * measure(runs[0])["rounds_per_s"].value
    assert replay(runs[1]) == []


def test_a_moved_session_is_prefilled_anew() -> None:
    frame = (
        simulate(m_for_n(2, 6, "round-robin", 300)).frame().query("epoch > 1").sort_values(["tag", "request", "epoch"])
    )
    moved = frame.query("station != 'router' and flag")
    prefilled = frame.query("event == 'start' and kind == 'prefill'")
    assert prefilled.tag.tolist() == moved.tag.tolist()
    assert prefilled.tokens.tolist() == (moved.base - 1).tolist()


def reported(frame: pd.DataFrame) -> bool:
    """Whether drafters have answered each of the router's requests with a view of their work."""
    at_drafters = frame.station.str.startswith("drafter")
    return (frame.event == "view").sum() >= (at_drafters & (frame.event == "draft-request")).sum()


@pytest.mark.parametrize("admit", [{"policy": "at-most", "sessions": 0}, {"policy": "at-most", "sessions": 1}])
def test_a_refused_session_frees_its_drafter(admit: dict[str, Any]) -> None:
    frame = simulate(m_for_n(2, 4, "shortest-queue", 40, admit=admit)).frame()
    assert {"decode"} <= set(frame.kind)  # one was refused, and finished
    assert reported(frame)


def test_an_empty_grant_frees_its_drafter() -> None:
    scenario = m_for_n(2, 4, "shortest-queue", 40)
    verifiers = msgspec.structs.replace(scenario.verifiers, count=1, allocate=RandomShare(2))
    workload = msgspec.structs.replace(scenario.workload, streams=4)
    frame = simulate(msgspec.structs.replace(scenario, verifiers=verifiers, workload=workload)).frame()
    assert (frame.query("event == 'draft-request'").tokens == 0).any()
    assert reported(frame)


@pytest.mark.parametrize("route", ["shortest-queue", "round-robin"])
def test_the_parts_of_a_routed_round_add_up(route: str) -> None:
    run = simulate(change_scenario(m_for_n(2, 6, route, 200), {"link": {"latency_s": 0.25}}))
    metrics = measure(run)
    assert metrics["communication_s"].value == pytest.approx(0.5)
    assert metrics["return_s"].value == pytest.approx(2.5)  # both ways, and a verification of 2 s
    rounds = rounds_of(run.columns()).frame()
    round_ = ["tag", "request", "epoch"]
    later = rounds.assign(epoch=rounds.epoch - 1).set_index(round_).asked_s
    cycle_s = rounds.set_index(round_).join(later.rename("next_asked_s"))
    parts_s = cycle_s.wait_s + cycle_s.service_s + cycle_s.return_s
    unexplained_s = (cycle_s.next_asked_s - cycle_s.asked_s - parts_s).dropna()
    assert unexplained_s.abs().max() < 1e-9
    assert replay(run) == []


def test_an_immediate_router_adds_no_wait() -> None:
    sent = simulate(m_for_n(2, 6, "round-robin", 200))
    rows = sent.frame().query("event == 'draft-request' and station != 'router'")
    asked_s = rounds_of(sent.columns()).frame().set_index(["tag", "request", "epoch"]).asked_s
    assert asked_s.equals(rows.set_index(["tag", "request", "epoch"]).time_s.rename("asked_s")[asked_s.index])


def test_routed_latencies_are_those_of_requests() -> None:
    """Views have numbers like requests, and must not count as requests."""
    tables = {"drafters": {"depth": 5, "count": 3, "route": "shortest-queue"}, "verifiers": {"count": 3}}
    run = simulate(star(workload={"requests": 30, "new_tokens": 20}, measure={"warm_up_share": 0.0}, **tables))
    rows = run.frame().to_dict("records")
    joined_s = {(row["tag"], row["request"]): row["time_s"] for row in rows if row["event"] == "join"}
    firsts_s: dict[tuple[int, int], float] = {}
    lasts_s: dict[tuple[int, int], float] = {}
    for row in rows:
        if row["event"] == "done" and row["station"].startswith("verifier"):
            firsts_s.setdefault((row["tag"], row["request"]), row["time_s"])
            lasts_s[row["tag"], row["request"]] = row["time_s"]
    measured = measure(run)
    ended = min(max(lasts_s[tag, number] for tag, number in lasts_s if tag == stream) for stream in range(3))
    counted = [request for request in lasts_s if lasts_s[request] <= ended]
    assert measured["requests"].value == len(counted) > 20
    ttft_s = mean(firsts_s[request] - joined_s[request] for request in counted)
    latency_s = mean(lasts_s[request] - joined_s[request] for request in counted)
    assert measured["ttft_s"].value == pytest.approx(ttft_s)
    assert measured["latency_s"].value == pytest.approx(latency_s)


def test_a_request_that_waits_for_its_route_can_leave() -> None:
    """A target that gives up names its epoch; nothing was sent to a drafter yet."""
    station = RouterStation("router", 2, RoundRobin())
    assert station.handle(DraftRequest(0, 0, 1, 11, opening=True), 0.0) == []
    assert station.handle(Leave(0, 0, epoch=1), 0.0) == []
    assert not station.waiting
