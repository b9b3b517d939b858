"""The cost of a dead drafter, in runs of constant times, counted by hand."""

from typing import Any

import pytest

from specfleet.fleet.records.metrics.findings import findings_of
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.metrics.outages import alone_of, rejoins_of
from specfleet.fleet.records.metrics.tables import commits_of
from specfleet.fleet.records.run import Run
from specfleet.sim.run import simulate
from tests.helpers.stars import star

# One target, no link, prefills without time: a round takes 1 s of drafting and 1 s of verification, and commits
# 3 tokens, since both of a draft pass. The first token of 43 is the prefill's.
PROFILE = {"draft": {"base_s": 1.0}, "verify": {"base_s": 1.0}, "decode": {"base_s": 1.0}}
ROUND_S = 2.0
PATIENCE_S, REJOIN_S = 1.5, 4.0


def run_of(*faults: dict[str, Any], requests: int = 1, new_tokens: int = 43, **changes: Any) -> Run:
    return simulate(
        star(
            profile=PROFILE,
            acceptance={"beta": 1.0},
            drafters={"depth": 2, "lease_s": 50.0},
            verifiers={"count": 1, "patience_s": PATIENCE_S, "rejoin_s": REJOIN_S},
            workload={"requests": requests, "new_tokens": new_tokens},
            measure={"warm_up_share": 0.0},
            faults=list(faults),
            **changes,
        )
    )


def kill(node: str, at_s: float, for_s: float) -> dict[str, Any]:
    return {"what": "kill", "node": node, "at_s": at_s, "for_s": for_s}


def test_dead_drafters_cost_the_wait_and_slower_decoding() -> None:
    """It dies at 4.5 s in the third draft, requested at 4 s, and is back at 7 s.

    From 5.5 s on its target decodes a token a second. It retries at 9.5 s, is answered at once, and rejoins at 10.5
    s, after its running step. The next draft is verified 2 s later, and 11 rounds are left of 14.
    """
    run = run_of(kill("drafter", 4.5, 2.5))
    rows = run.columns()
    commits = commits_of(rows)
    alone = alone_of(rows, commits)
    assert rows.time_s[rows.event.among("overdue")].tolist() == [5.5]
    assert alone.begun_s.tolist() == [5.5, 6.5, 7.5, 8.5, 9.5]
    assert alone.time_s.tolist() == [6.5, 7.5, 8.5, 9.5, 10.5]
    assert rejoins_of(rows).rejoined_s.tolist() == [12.5]
    assert commits.committed.tolist() == [1, 3, 3, *[1] * 5, *[3] * 10, 1]
    ended_s = 10.5 + 11 * ROUND_S
    values = {name: metric.value for name, metric in measure(run).items()}
    assert values["given_up"] == 1
    assert values["alone_share"] == pytest.approx(5 / ended_s)
    assert values["rejoin_s"] == pytest.approx(12.5 - 5.5)
    assert values["throughput"] == pytest.approx(42 / ended_s)


def test_fleets_without_faults_lose_no_drafter() -> None:
    metrics = measure(run_of())
    assert metrics["given_up"].value == metrics["alone_share"].value == 0
    assert "rejoin_s" not in metrics
    assert metrics["throughput"].value == pytest.approx(3 / ROUND_S)


def test_outage_metrics_need_a_fleet_with_timeouts() -> None:
    assert not {"given_up", "alone_share"} & set(measure(simulate(star())))


def test_tokens_beside_a_late_draft_are_not_decoded_alone() -> None:
    run = simulate(star(profile=PROFILE, verifiers={"count": 1, "late": "decode", "patience_s": 50.0}))
    assert commits_of(run.columns()).kind.among("decode").any()
    assert measure(run)["alone_share"].value == 0


def test_outages_last_across_requests() -> None:
    """Requests of 7 tokens end before the drafter is back."""
    run = run_of(kill("drafter", 4.5, 20.0), requests=40, new_tokens=7)
    back = rejoins_of(run.columns())
    assert len(back) == 1
    assert back.time_s[0] == 5.5
    assert 24.5 < back.rejoined_s[0] < 24.5 + REJOIN_S + ROUND_S + 1.0


def test_what_a_target_committed_before_it_died_is_lost() -> None:
    """At 9 s it has committed 13 tokens of 43; it starts at 11 s from the prompt, and needs 28 s."""
    run = run_of(kill("verifier.1", 9.0, 2.0))
    rows = run.columns()
    commits = commits_of(rows)
    assert commits.committed.sum() == 43
    assert commits.time_s.min() == 11.0
    requests = findings_of(run).requests
    assert (requests.joined_s[0], requests.last_s[0]) == (0.0, 39.0)
    assert measure(run)["latency_s"].value == 39.0


def test_runs_with_timed_faults_have_no_intervals() -> None:
    """A longer run has no more of it: its mean estimates nothing stationary."""
    chance = {"what": "link", "effect": "delay", "share": 0.1, "by_s": 0.5}
    lasting, once = (measure(run_of(fault, requests=30)) for fault in (chance, chance | {"for_s": 60.0}))
    assert any(metric.low == metric.low for metric in lasting.values())  # not NaN
    assert all(metric.low != metric.low and metric.times_longer == 1 for metric in once.values())
