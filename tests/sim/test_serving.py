"""A target as a serving engine: traces by hand, laws of queues, and what holds for all."""

from itertools import groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specfleet.fleet.policies.continuous import ContinuousBatching
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.records.metrics.findings import findings_of
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.replay import replay_stations
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import LocalDrafts, ResolvedVerifiers
from specfleet.fleet.stations.build import stations
from specfleet.fleet.stations.messages import Draft, Join, StepDone
from specfleet.fleet.stations.station import Plan, Start, Station
from specfleet.fleet.stations.verifier import VerifierStation
from specfleet.fleet.times.step import Step
from specfleet.sim.run import simulate

K = 3


def station(batching: ContinuousBatching, drafts: LocalDrafts | None = None) -> VerifierStation:
    """A target that drafts itself; without `drafts` it decodes alone."""
    return VerifierStation("verifier.1", ResolvedVerifiers(batching=batching, drafts=drafts, speculates=bool(drafts)))


def run_step(target: VerifierStation, accepted: int = 0) -> Step:
    """Run the next step; verifications accept so many drafts."""
    plan = target.plan(0.0)
    assert isinstance(plan, Start)
    outcomes = [
        Outcome(min(accepted, member.tokens)) if plan.step.kind_of(member) == "verify" else Outcome()
        for member in plan.step.members
    ]
    target.handle(StepDone(plan.step.number, tuple(outcomes), 1.0), 0.0)
    return plan.step


def fed(target: VerifierStation, accepted: int = 0) -> dict[int, int]:
    """Run the next step of the target, and the draft after it; return the tokens of each row."""
    step = run_step(target, accepted)
    shares = {member.tag: member.tokens + (step.kind_of(member) == "verify") for member in step.members}
    while target.program:
        assert run_step(target).kind in ("draft", "draft_prefill")
    return shares


def test_prompts_take_what_running_rows_leave_step_by_step() -> None:
    A, B, C, D, E = range(5)
    target = station(ContinuousBatching(8, 16, lookahead=K), LocalDrafts(K))
    for tag, prompt in ((A, 8), (B, 8), (C, 40)):
        target.handle(Join(tag, tag, prompt, 100), 0.0)
    assert fed(target) == {A: 8, B: 8}
    assert fed(target) == {A: 4, B: 4, C: 8}
    assert fed(target) == {A: 4, B: 4, C: 8}
    target.handle(Join(D, D, 5, 100), 0.0)
    assert [fed(target) for _ in range(3)] == [{A: 4, B: 4, C: 8}] * 3
    assert fed(target) == {A: 4, B: 4, C: 4, D: 4}
    assert fed(target) == {A: 4, B: 4, C: 4, D: 1}
    target.handle(Join(E, E, 7, 100), 0.0)
    assert fed(target) == {A: 4, B: 4, C: 4, D: 4}


def test_a_short_budget_cuts_drafts_and_they_are_lost() -> None:
    target = station(ContinuousBatching(8, 10), LocalDrafts(K, reads_prompts=False))
    for tag in range(3):
        target.handle(Join(tag, tag, 3, 100), 0.0)
    fed(target)
    assert [fed(target, accepted=K) for _ in range(2)] == [{0: 4, 1: 4, 2: 2}] * 2
    assert [target.sessions[tag].base for tag in range(3)] == [12, 12, 8]


def test_the_newest_row_is_preempted_and_computed_again() -> None:
    A, B, C = range(3)
    target = station(ContinuousBatching(8, 8192, kv_blocks=6))
    for tag, prompt in ((A, 32), (B, 19), (C, 24)):
        target.handle(Join(tag, tag, prompt, 40), 0.0)
    assert fed(target) == {A: 32, B: 19, C: 24}
    assert fed(target) == {A: 1, B: 1}  # A needs a third block; C, with two blocks, goes
    assert (target.sessions[C].base, target.rows.waiting[C].known) == (25, 25)
    for _ in range(12):
        step = fed(target)
    assert step == {A: 1, B: 1}
    while C not in step:
        step = fed(target)
    assert step[C] == 25  # prompt and output, in one prefill
    assert target.sessions[C].base == 26


def test_a_row_that_preempts_itself_is_computed_again() -> None:
    """30 tokens and 5 drafts need a third block, 30 tokens two; the other row waits for its draft."""
    target = VerifierStation("verifier.1", ResolvedVerifiers(batching=ContinuousBatching(8, 64, kv_blocks=4)))
    for tag in (0, 1):
        target.handle(Join(tag, tag, 20, 30), 0.0)
    run_step(target)
    for epoch, base, accepted in ((1, 21, 5), (2, 27, 2), (3, 30, 5)):
        target.handle(Draft(1, 1, epoch, base, 5), 0.0)
        step = run_step(target, accepted)
    assert (step.kind, step.members[0].base, step.members[0].tokens) == ("prefill", 0, 30)
    assert target.sessions[1].base == 31


def test_no_drafts_by_schedule_still_cost_the_drafters_first_pass() -> None:
    target = station(ContinuousBatching(8, 8192), LocalDrafts(0))
    target.handle(Join(0, 0, 30, 100), 0.0)
    steps = [run_step(target) for _ in range(4)]
    assert [step.kind for step in steps] == ["prefill", "draft_prefill", "verify", "draft_prefill"]
    assert [(step.members[0].behind, step.members[0].of_prompt) for step in steps[1::2]] == [(30, True), (1, False)]


SEEDS = range(6)
ONE_TARGET: dict[str, Any] = {
    "profile": {"name": "p", "draft": {}, "verify": {"base_s": 1.0}, "decode": {"base_s": 1.0}},
    "drafters": {"count": 0}, "verifiers": {"count": 1}, "measure": {"warm_up_share": 0.1},
}  # fmt: skip


def served(seed: int, per_s: float, requests: int, **workload: Any) -> dict[str, float]:
    """Metrics of a target with steps of 1 s and Poisson arrivals."""
    arrivals = {"process": "poisson", "per_s": per_s}
    tables = ONE_TARGET | {"seed": seed, "workload": {"requests": requests, "arrivals": arrivals} | workload}
    if workload.pop("alone", False):
        tables["verifiers"] = {"count": 1, "max_num_seqs": 1}
        del tables["workload"]["alone"]
    return {name: metric.value for name, metric in measure(simulate(make_scenario(tables))).items()}


def test_one_row_without_drafts_is_an_m_g_1_queue() -> None:
    """Requests of 2 to 6 tokens take 1 to 5 s more than the prefill, which takes none: Pollaczek and Khinchine."""
    service_s = np.arange(1, 6)
    per_s = 0.7 / float(service_s.mean())
    waits = [
        served(seed, per_s, 2000, prompt_tokens=8, new_tokens={"low": 2, "high": 6}, alone=True)["ttft_s"]
        for seed in SEEDS
    ]
    expected = per_s * (service_s**2).mean() / (2 * (1 - 0.7))
    error = np.std(waits, ddof=1) / np.sqrt(len(waits))
    assert abs(np.mean(waits) - expected) < 4.03 * error + 1e-9  # 99 % of Student's t with 5 degrees of freedom


def test_constant_steps_are_a_batch_service_queue() -> None:
    """A busy target takes all requests that came during its step: half a step of waiting, and a step for each token."""
    found = [served(seed, 4.0, 1000, prompt_tokens=8, new_tokens=21) for seed in SEEDS[:3]]
    waits = np.array([metrics["latency_s"] for metrics in found])
    assert np.abs(waits - 21.5).max() < 0.05


TARGETS = st.fixed_dictionaries(
    {"count": st.integers(1, 2)},
    optional={
        "max_num_seqs": st.integers(1, 4),
        "max_num_batched_tokens": st.integers(6, 60),
        "prefill_first": st.booleans(),
        "kv_tokens": st.sampled_from([96, 128, 256]),
        "kv_block_size": st.sampled_from([1, 32]),
        "late": st.sampled_from(["skip", "wait", "decode"]),
    },
)
DRAFTERS = st.fixed_dictionaries(
    {"depth": st.integers(1, 4)},
    optional={"place": st.just("target"), "kind": st.sampled_from(["eagle", "block", "lookup"]), "count": st.just(0)},
)
STEP = {"base_s": 0.1, "per_token_s": 0.01, "spread": "exponential"}
LAWS = {"name": "p", "link": {"latency_s": 0.05}, "verify": STEP | {"per_row_s": 0.02}} | dict.fromkeys(
    ("draft", "decode", "draft_prefill", "verify_prefill"), STEP
)


hit = {"what": st.sampled_from(["kill", "stall"]), "node": st.sampled_from(["verifier.1", "drafter"])}
when = {"at_s": st.floats(0.1, 6.0), "for_s": st.floats(0.1, 4.0)}
FAULTS = st.lists(st.fixed_dictionaries(hit | when), max_size=3)


@settings(max_examples=80, suppress_health_check=list(HealthCheck))
@given(verifiers=TARGETS, drafters=DRAFTERS, seed=st.integers(0, 99), open_loop=st.booleans(), faults=FAULTS)
def test_work_is_conserved_and_every_log_replays(
    verifiers: dict[str, Any], drafters: dict[str, Any], seed: int, open_loop: bool, faults: list[dict[str, Any]]
) -> None:
    """Through chunks, preemptions, late drafts, deaths and stalls: every request gets its tokens, and no more."""
    verifiers, drafters = dict(verifiers), dict(drafters)
    if "kv_tokens" not in verifiers:
        verifiers.pop("kv_block_size", None)
    speculates = drafters.get("count", 1) > 0
    if not speculates:
        drafters = {"count": 0}
    if not speculates or "place" in drafters:
        verifiers.pop("late", None)
    load = {"arrivals": {"process": "poisson", "per_s": 2.0}} if open_loop else {"streams": 6}
    tables: dict[str, Any] = {
        "seed": seed, "profile": LAWS, "acceptance": {"model": "geometric", "beta": 0.7},
        "verifiers": verifiers, "drafters": drafters,
        "workload": {"requests": 14, "prompt_tokens": {"low": 1, "high": 40}, "new_tokens": {"low": 1, "high": 30}}
        | load,
    }  # fmt: skip
    if faults and speculates and "place" not in drafters and verifiers.get("late") != "wait":
        tables["verifiers"], tables["drafters"] = verifiers | {"patience_s": 2.0}, drafters | {"lease_s": 5.0}
        tables["faults"] = faults
    run = simulate(make_scenario(tables))
    requests = findings_of(run).requests
    assert len(requests) == 14
    assert requests.finished.all()
    batching = resolve(run.header.scenario).verifiers.batching
    fleet = run.header.fleet
    watched = {name: Watched(station, batching) for name, station in stations(fleet).items()}
    again = lambda name: Watched(stations(fleet)[name], batching)  # noqa: E731
    assert replay_stations(run, watched, again) == []  # type: ignore[arg-type]
    for name, rows in run.frame().sort_values("seq").groupby("station"):
        if str(name).startswith("verifier"):
            check_texts(rows)
            check_order(rows)
    if "faults" not in tables:  # a station that starts again counts its steps anew
        check_work(run.frame(), batching)


@pytest.mark.parametrize("allocate", [{"policy": "fixed", "depth": 0}, {"policy": "fixed-share", "budget": 2}])
def test_empty_late_drafts_are_dropped(allocate: dict[str, Any]) -> None:
    """A draft without tokens that comes during the step that decodes its row is late, too."""
    tables: dict[str, Any] = {
        "profile": LAWS, "acceptance": {"model": "geometric", "beta": 0.7},
        "verifiers": {"late": "decode", "allocate": allocate},
        "workload": {"requests": 8, "streams": 4, "prompt_tokens": 9, "new_tokens": 30},
    }  # fmt: skip
    run = simulate(make_scenario(tables))
    assert replay_stations(run, stations(run.header.fleet)) == []
    assert findings_of(run).requests.finished.all()


class Watched:
    """Wraps a station: before each step its rows have blocks for what they compute, within the cache."""

    def __init__(self, station: Station, batching: ContinuousBatching) -> None:
        self.station = station
        self.batching = batching

    def __getattr__(self, name: str) -> Any:
        return getattr(self.station, name)

    def plan(self, now_s: float) -> Plan:
        plan = self.station.plan(now_s)
        if isinstance(self.station, VerifierStation):
            rows, size = self.station.rows, self.batching.block_size
            blocks = {tag: row.blocks for tag, row in rows.running.items()}
            assert not self.batching.kv_blocks or sum(blocks.values()) <= self.batching.kv_blocks
            for tag, (_, share) in rows.parts.items():
                assert tag not in blocks or blocks[tag] * size >= share.computed + share.tokens
        return plan


def check_texts(rows: Any) -> None:
    """Each text grows from its prompt to its goal without a gap, a repetition or a token too many."""
    known: dict[tuple[int, int], int] = {}
    goals: dict[tuple[int, int], int] = {}
    for row in rows.itertuples():
        place = row.tag, row.request
        if row.event == "join":
            known[place], goals[place] = row.tokens, row.goal
        elif row.event == "done" and row.kind in ("prefill", "verify", "decode"):
            assert known[place] == row.base + (row.tokens if row.kind == "prefill" else 0)
            known[place] = min(known[place] + row.accepted + 1, goals[place])
    assert known == goals


def check_order(rows: Any) -> None:
    """Requests begin in the order of their arrival."""
    waiting: list[tuple[int, int]] = []
    for (event, _), own in groupby(rows.itertuples(), lambda row: (row.event, row.step)):
        places = [(row.tag, row.request) for row in own]
        if event == "killed":
            waiting = []
        elif event == "join":
            waiting += places
        elif event == "start":
            begun = set(places) & set(waiting)
            assert begun == set(waiting[: len(begun)])
            waiting = waiting[len(begun) :]


def check_work(rows: Any, batching: ContinuousBatching) -> None:
    """No step exceeds a limit, and every part of a prompt follows the one before."""
    starts = rows[(rows.event == "start") & rows.station.str.startswith("verifier")]
    starts = starts[~starts.kind.isin(["draft", "draft_prefill"])]
    fed_tokens = starts.tokens + (starts.kind == "verify") + batching.slots
    steps = [starts.station, starts.step]
    assert fed_tokens.groupby(steps).sum().max() <= batching.max_num_batched_tokens
    assert starts.groupby(["station", "step"]).size().max() <= batching.max_num_seqs
    for _, own in starts[starts.kind.isin(["prefill", "chunk"])].groupby(["station", "tag", "request"]):
        ends = (own.base + own.tokens).tolist()
        for base, before in zip(own.base.tolist()[1:], ends, strict=False):
            assert base in (0, before)


@pytest.mark.parametrize(
    ("drafters", "allocate"),
    [({"count": 0, "depth": 100}, None), ({"overlap": "ahead"}, None), ({}, {"policy": "fixed", "depth": 3})],
)
def test_a_step_has_the_stated_tokens_if_its_draft_fits(drafters: dict[str, Any], allocate: Any) -> None:
    tables = {
        "profile": LAWS, "acceptance": {"model": "geometric", "beta": 0.7}, "drafters": drafters,
        "verifiers": {"max_num_seqs": 8, "max_num_batched_tokens": 4} | ({"allocate": allocate} if allocate else {}),
        "workload": {"requests": 8, "streams": 8, "prompt_tokens": 90, "new_tokens": 20},
    }  # fmt: skip
    rows = simulate(make_scenario(tables)).frame()
    check_work(rows, ContinuousBatching(8, 4))
