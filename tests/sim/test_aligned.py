"""Aligned rows: which of them share a round, and what realignment costs."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.fleet.acceptance.models import Geometric, committed_closed_form, pmf
from specfleet.fleet.policies.aligned import AlignedRule, PooledRow, Realign, Rollback, SameLength
from specfleet.fleet.policies.continuous import ContinuousBatching
from specfleet.fleet.policies.goodspeed import GoodSpeed
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import scenario_of
from specfleet.fleet.scenario.resolved import LocalDrafts, ResolvedVerifiers
from specfleet.fleet.stations.aligned import AlignedStation
from specfleet.fleet.stations.messages import Finished, Join, StepDone
from specfleet.fleet.stations.station import Start, Station
from specfleet.fleet.stations.verifier import VerifierStation
from specfleet.fleet.times.step import Step
from specfleet.sim.run import simulate
from tests.helpers.stars import star
from tests.helpers.steps import ended, started


def rows(*lengths: int) -> list[PooledRow]:
    return [PooledRow(tag, length) for tag, length in enumerate(lengths)]


def test_exspec_takes_the_first_length_that_fills_a_batch() -> None:
    choice = SameLength(window=6).pick(rows(9, 7, 8, 7, 8), 2)
    assert (choice.tags, choice.realign) == ((1, 3), False)


def test_exspec_realigns_the_oldest_rows_otherwise() -> None:
    choice = SameLength(window=6).pick(rows(9, 7, 8), 2)
    assert (choice.tags, choice.realign) == ((0, 1), True)


def test_exspec_groups_new_rows_with_new_rows_only() -> None:
    pool = [PooledRow(0, 9), PooledRow(1, 7, fresh=True), PooledRow(2, 7), PooledRow(3, 7, fresh=True)]
    assert SameLength(window=6).pick(pool, 2).tags == (1, 3)


def test_eqspec_realigns_always_and_rollback_never() -> None:
    pool = rows(5, 5)
    assert Realign().pick(pool, 2).realign
    assert not Rollback().pick(pool, 2).realign


def verifying(size: int, aligned: AlignedRule | None) -> ResolvedVerifiers:
    """A target with drafts of three tokens on its device."""
    return ResolvedVerifiers(batching=ContinuousBatching(size, 2048), drafts=LocalDrafts(3), aligned=aligned)


def station_of(rule: AlignedRule, size: int) -> AlignedStation:
    return AlignedStation("verifier.1", verifying(size, rule))


class Device:
    """Runs an aligned station with fixed acceptance, and records its steps."""

    def __init__(self, rule: AlignedRule, size: int, prompts: list[int], new_tokens: int) -> None:
        self.station = station_of(rule, size)
        self.finished: list[int] = []
        self.steps: list[Step] = []
        for tag, prompt in enumerate(prompts):
            assert self.station.handle(Join(tag, 0, prompt, new_tokens), 0.0) == []

    def run(self, accepted: dict[int, int] | None = None, steps: int = 10_000) -> list[tuple[str, tuple[int, ...]]]:
        shown = []
        while steps and isinstance(plan := self.station.plan(0.0), Start):
            steps -= 1
            step = plan.step
            self.steps.append(step)
            shown.append((step.kind, tuple(member.tag for member in step.members)))
            outcomes = tuple(
                Outcome(min((accepted or {}).get(member.tag, 0), member.tokens) if step.kind == "verify" else 0)
                for member in step.members
            )
            for instruction in self.station.handle(StepDone(step.number, outcomes, 1.0), 0.0):
                if isinstance(instruction, Finished):
                    self.finished.append(instruction.tag)
        return shown


def test_a_round_of_eqspec_is_prefill_realign_draft_verify() -> None:
    device = Device(Realign(), 2, [5, 9, 7], 4)
    both = (0, 1)
    first = [("prefill", both), ("draft_prefill", both), ("realign", both), ("draft", both), ("verify", both)]
    assert device.run(steps=8) == [*first, ("realign", both), ("draft", both), ("verify", both)]


def test_prefills_feed_the_prompt() -> None:
    device = Device(Rollback(), 2, [5, 9], 4)
    device.run(steps=4)
    assert [[(member.base, member.tokens) for member in step.members] for step in device.steps] == [
        [(0, 5), (0, 9)], [(0, 5), (0, 9)], [(6, 3), (10, 3)], [(6, 3), (10, 3)],
    ]  # fmt: skip


def self_drafting(size: int) -> VerifierStation:
    return VerifierStation("verifier.1", verifying(size, None))


@pytest.mark.parametrize(
    "station",
    [self_drafting(3), *(station_of(rule, 3) for rule in (Realign(), Rollback(), SameLength(window=3)))],
    ids=["continuous", "EqSpec", "rollback", "ExSpec"],
)
def test_empty_drafts_commit_one_token(station: Station) -> None:
    """A stop rule or an empty grant may leave a row without draft tokens."""
    for tag in range(3):
        station.handle(Join(tag, 0, 5, 9), 0.0)
    drafted, passed = (0, 2, -1), {0: 0, 1: 2, 2: 1}  # none, two, all planned tokens
    verified = None
    while verified is None:
        step, outcomes = started(station), ()
        if step.kind == "draft":
            outcomes = tuple(Outcome(drafted=tokens) for tokens in drafted)
        elif step.kind == "verify":
            verified = step
            outcomes = tuple(Outcome(passed[member.tag]) for member in verified.members)
        ended(station, 0.0, *outcomes)
    assert [(member.tag, member.tokens) for member in verified.members] == [(0, 0), (1, 2), (2, 3)]
    assert {tag: session.base for tag, session in station.sessions.items()} == {0: 7, 1: 9, 2: 8}


def test_outcomes_must_match_the_rows() -> None:
    for station in (
        station_of(Rollback(), 2),
        self_drafting(2),
        VerifierStation("verifier.1", ResolvedVerifiers()),
        VerifierStation("verifier.1", ResolvedVerifiers(allocate=GoodSpeed(5))),
    ):
        station.handle(Join(0, 0, 5, 9), 0.0)
        started(station)
        with pytest.raises(ValueError, match="argument"):
            ended(station, 0.0, Outcome(), Outcome())


def test_a_fixed_batch_carries_finished_rows() -> None:
    device = Device(Realign(), 2, [5, 5, 5], 8)
    device.run({0: 3})
    ballast = [step.ballast for step in device.steps if step.kind == "verify"]
    assert ballast == [0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    assert device.finished == [0, 1, 2]


def test_online_rows_join_at_the_next_realignment() -> None:
    device = Device(Realign(fixed=False), 2, [5, 5, 5], 8)
    device.run({0: 3})
    together = [step.members for step in device.steps if step.kind == "verify"]
    assert [len(members) for members in together[:7]] == [2] * 7
    assert all(step.ballast == 0 for step in device.steps)


def test_realigned_rows_with_equal_acceptance_stay_a_group() -> None:
    device = Device(SameLength(window=2), 2, [5, 9], 20)
    shown = [kind for kind, _ in device.run({0: 2, 1: 2})]
    assert shown.count("realign") == 1
    assert shown.count("verify") == 7


def test_realigned_rows_get_the_longest_length() -> None:
    """The rows have 11, 12 and 12 tokens; the two oldest are realigned to 12."""
    device = Device(SameLength(window=3), 2, [5, 9, 12], 20)
    device.run({1: 1}, steps=5)
    assert device.station.pool == {0: 11, 1: 12, 2: 12}
    assert started(device.station).kind == "realign"
    assert device.station.pool == {0: 12, 1: 12, 2: 12}


def test_sorting_takes_short_prompts_in_first() -> None:
    device = Device(SameLength(window=1, sort=True), 1, [9, 5, 7], 2)
    device.run()
    assert device.finished == [1, 2, 0]


rules: st.SearchStrategy[tuple[AlignedRule, int]] = st.sampled_from(
    [
        (Realign(), 3),
        (Realign(fixed=False), 3),
        (Rollback(), 3),
        (SameLength(window=4), 2),
        (SameLength(window=4, sort=True), 2),
    ]
)


@given(rules, st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(1, 9), st.data())
def test_every_session_is_served_to_its_end(
    case: tuple[AlignedRule, int], prompts: list[int], new_tokens: int, data: st.DataObject
) -> None:
    rule, size = case
    accepted = {tag: data.draw(st.integers(0, 3)) for tag in range(len(prompts))}
    device = Device(rule, size, prompts, new_tokens)
    device.run(accepted)
    assert sorted(device.finished) == list(range(len(prompts)))
    station = device.station
    assert not station.sessions
    assert not station.pool
    assert not station.waiting
    assert not station.grants.out
    assert max(len(step.members) + step.ballast for step in device.steps) <= size
    if isinstance(rule, Rollback):
        assert "realign" not in {step.kind for step in device.steps}


def run_batch(size: int, rule: dict[str, Any], beta: float = 0.6, realign_s: float = 0.0, **workload: Any) -> Run:
    """Equal requests that all wait from the beginning."""
    load = {"requests": 40, "new_tokens": 400} | workload
    return simulate(
        star(
            seed=0,
            profile={"draft": {"per_token_s": 1.0}, "realign": {"base_s": realign_s}},
            drafters={"depth": 4, "place": "target"},
            verifiers={"count": 1, "max_num_seqs": size, "aligned": rule},
            acceptance={"beta": beta},
            workload=load | {"streams": load["requests"]},
            measure={"warm_up_share": 0.0},
        )
    )


@given(st.sampled_from(["realign", "same-length", "rollback"]), st.integers(1, 6), st.integers(1, 9))
@settings(max_examples=25)
def test_the_first_step_takes_all_initial_requests(policy: str, size: int, requests: int) -> None:
    """As many as fit: all arrive at 0, and the engine takes all of them too."""
    window = {"window": size} if policy == "same-length" else {}
    run = run_batch(size, {"policy": policy} | window, requests=requests, new_tokens=4)
    log = run.frame()
    first = log[(log.event == "start") & (log.step == 1)]
    assert set(first.tag) == set(range(min(size, requests)))


def test_a_batch_of_one_follows_equation_1() -> None:
    """S = alpha k / (c_draft + c_verify + c_kv), in decoding steps of 4 s: 1, 1 and 0.5. Batch means at 99.9 %."""
    beta, depth = 0.6, 4
    metrics = measure(run_batch(1, {"policy": "realign"}, realign_s=2.0))
    committed = committed_closed_form(beta, depth)
    expected = committed / (1.0 + 1.0 + 0.5) / 4.0  # alpha k, and the bonus token
    metric = metrics["throughput"]
    assert abs(metric.value - expected) < (metric.high - metric.low) / 2 * 3.88 / 2.09
    assert metrics["realign_share"].value == pytest.approx(2 / 10, rel=0.02)


def test_rollback_commits_the_expected_minimum_of_the_batch() -> None:
    """E[min of B] = sum over j of P(l >= j)^B for independent rows. Batch means at 99.9 %."""
    beta, B = 0.8, 3
    metric = measure(run_batch(B, {"policy": "rollback"}, beta))["acceptance_length"]
    survival = 1 - np.cumsum(pmf(Geometric(beta), 4))[:-1]
    assert abs(metric.value - float((survival**B).sum())) < (metric.high - metric.low) / 2 * 3.88 / 2.09


def test_shares_count_the_steps_of_all_targets() -> None:
    """The second target's verifications take four times as long: a round of 22 s, not 10 s, of which 2 s realign."""
    scenario = run_batch(2, {"policy": "realign", "fixed": False}, realign_s=2.0, new_tokens=40).header.scenario
    slow_target = {"verifiers.count": 2, "verifiers.tiers": [{"first": 2, "step": {"base_s": 16.0}}]}
    run = simulate(scenario_of(scenario, slow_target))
    metrics, log = measure(run), run.frame()
    steps = log[log.event == "done"].drop_duplicates(["station", "step"])
    spent_s = steps.groupby("kind").duration_s.sum()
    assert metrics["realign_share"].value == pytest.approx(spent_s["realign"] / spent_s.sum(), rel=1e-6)
    assert metrics["grouped_share"].value == 0.0
