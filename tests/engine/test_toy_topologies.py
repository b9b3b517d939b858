"""Every topology on a network in memory, with random step times: texts are the truth, and logs replay."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.records.replay import replay
from fleet.records.run import make_run
from fleet.scenario.reading import make_scenario
from fleet.scenario.resolve import resolve
from fleet.times.step import Step
from tests.fakes.network import FakeNetwork
from tests.helpers.toy_fleets import ToyFleet
from tests.helpers.toys import check_texts

MOST_S = 600.0
AHEAD = {"policy": "ahead"}
ROUTES = ["round-robin", "shortest-queue"]


def run_toy(seed: int, **tables: dict[str, Any]) -> ToyFleet:
    """Run a fleet of toys with steps of 1 to 20 ms; check its texts and its logs."""
    content: dict[str, Any] = {
        "name": "toy", "drafters": {}, "verifiers": {},
        "workload": {"requests": 8, "prompt_tokens": 8, "new_tokens": 12},
    }  # fmt: skip
    merged = content | {name: content.get(name, {}) | table for name, table in tables.items()}
    scenario = make_scenario(merged)
    fleet, rng = resolve(scenario), np.random.default_rng(seed)
    network = FakeNetwork(seed)

    def seconds_of(_step: Step) -> float:
        return float(rng.uniform(0.001, 0.02))

    toys = ToyFleet(fleet, network, seconds_of)
    toys.start()
    assert network.run(MOST_S, lambda: toys.finished), f"seed {seed} hangs"
    assert not network.run(network.now_s + 0.1, lambda: False)
    check_texts(fleet, toys.outputs)
    assert replay(make_run(scenario, "engine", toys.log, fleet)) == []
    assert not toys.network.nodes[toys.fleet.drafter_name(0)].worker.station.sessions, "a session was not released"
    assert not any(row.event == "refusal" for row in toys.rows)
    return toys


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 4), st.booleans(), st.integers(1, 2))
def test_drafting_ahead_changes_no_token(seed: int, least: int, busy: bool, targets: int) -> None:
    toys = run_toy(seed, drafters={"overlap": AHEAD | {"least": least, "busy": busy}}, verifiers={"count": targets})
    assert sum(life.verified for lives in toys.executors.values() for life in lives) > 0


def test_pending_drafts_stay_only_if_the_target_agrees() -> None:
    verified = [
        row for row in run_toy(3, drafters={"overlap": AHEAD}).rows if (row.event, row.kind) == ("done", "verify")
    ]
    assert any(row.matches for row in verified)
    assert any(row.accepted < row.tokens for row in verified)


@settings(deadline=None, max_examples=20)
@given(
    st.integers(0, 10**6),
    st.integers(1, 4),
    st.sampled_from(["wait", "skip"]),
    st.sampled_from(["goodspeed", "fixed-share", "random-share"]),
    st.integers(0, 6),
)
def test_requests_carry_grants_and_an_empty_one_drafts_nothing(
    seed: int, drafters: int, late: str, rule: str, budget: int
) -> None:
    allocate = {"policy": rule, "budget": budget}
    toys = run_toy(seed, drafters={"count": drafters}, verifiers={"late": late, "allocate": allocate})
    drafted = [row.tokens for row in toys.rows if row.station == "verifier.1" and row.event == "draft"]
    assert min(drafted) >= 0
    assert max(drafted) <= budget


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 4))
def test_streams_dealt_to_several_drafters_stay_with_them(seed: int, drafters: int, targets: int) -> None:
    toys = run_toy(seed, drafters={"count": drafters}, verifiers={"count": targets})
    for row in toys.rows:
        if row.event == "draft-request":
            assert row.station == toys.fleet.drafter_name(toys.fleet.drafter_of(row.tag))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from(ROUTES), st.integers(2, 3), st.integers(1, 4))
def test_a_moved_session_opens_with_all_its_tokens(seed: int, route: str, drafters: int, targets: int) -> None:
    toys = run_toy(seed, drafters={"count": drafters, "route": route}, verifiers={"count": targets})
    if route == "round-robin":
        moved = [row for row in toys.rows if row.event == "draft-request" and row.flag and row.epoch > 1]
        assert moved, "or nothing has moved"
