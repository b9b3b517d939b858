"""Drafting ahead (AMUSD): the epoch protocol, its theory, and the reader of the authors' run files."""

import json
from pathlib import Path
from typing import Any

import pytest

from specfleet.experiments.reproduce import REPRODUCTIONS, amusd
from specfleet.experiments.reproduce.amusd_runs import read_sample
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.policies.overlap import Ahead
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.scenario.reading import change_scenario
from specfleet.fleet.scenario.resolved import ResolvedDrafters, ResolvedVerifiers
from specfleet.fleet.stations.drafter import DrafterStation
from specfleet.fleet.stations.messages import Draft, DraftRequest, Ignored, Join
from specfleet.fleet.stations.verifier import VerifierStation
from specfleet.sim.run import simulate
from tests.helpers.marks import slow
from tests.helpers.stars import star
from tests.helpers.steps import ended, run_step, started
from tests.helpers.theory import drafting_ahead


def drafting(**changes: Any) -> DrafterStation:
    station = DrafterStation("drafter", ResolvedDrafters(overlap=Ahead(**changes)))
    station.handle(DraftRequest(0, 0, 1, 11, opening=True), 0.0)
    run_step(station)  # the prefill
    return station


def verifying(tail: int, **changes: Any) -> VerifierStation:
    """A target after its prefill, with `tail` draft tokens."""
    station = VerifierStation("verifier.1", ResolvedVerifiers(overlap=Ahead(**changes)))
    station.handle(Join(0, 0, 10, 50), 0.0)
    run_step(station)
    for place in range(tail):
        station.handle(Draft(0, 0, 1, 11 + place, 1), 0.0)
    return station


def test_a_drafter_ahead_drafts_without_requests() -> None:
    station = drafting()
    drafts = [run_step(station) for _ in range(3)]
    assert drafts == [[Draft(0, 0, 1, 11 + place, 1)] for place in range(3)]


def test_a_rollback_drops_the_running_draft() -> None:
    station = drafting()
    run_step(station)
    started(station)
    assert station.handle(DraftRequest(0, 0, 2, 12), 0.0) == []
    assert ended(station) == []
    assert run_step(station) == [Draft(0, 0, 2, 12, 1)]


def test_a_matching_bonus_token_keeps_the_tail() -> None:
    station = verifying(2)
    assert started(station).members[0].tokens == 2
    for place in (13, 14, 15):
        station.handle(Draft(0, 0, 1, place, 1), 0.0)
    assert ended(station, 0.0, Outcome(2, matches=True)) == []
    session = station.sessions[0]
    assert (session.base, session.epoch, session.tail) == (14, 1, 2)  # two accepted, and the bonus
    member = started(station).members[0]
    assert (member.base, member.tokens) == (14, 2)


def test_a_mismatch_commits_one_token_and_drops_the_tail() -> None:
    station = verifying(3)
    assert run_step(station, 0.0, Outcome(0)) == [DraftRequest(0, 0, 2, 12, tokens=48)]  # to the goal, 60
    ignored = station.handle(Draft(0, 0, 1, 14, 1), 0.0)
    assert isinstance(ignored[0], Ignored)
    assert not station.ready


def test_a_busy_target_decodes_alone_while_the_drafter_rolls_back() -> None:
    station = verifying(2, least=2, busy=True)
    run_step(station, 0.0, Outcome(1))
    step = started(station)
    assert (step.kind, step.members[0].tokens) == ("verify", 0)


def scenario(beta: float, draft_s: float, verify_s: float, least: int, tokens: int) -> Any:
    return star(
        seed=0,
        profile={"draft": {"per_token_s": draft_s}, "verify": {"base_s": verify_s}},
        acceptance={"beta": beta},
        drafters={"overlap": {"policy": "ahead", "least": least}},
        verifiers={"count": 1},
        workload={"requests": 1, "new_tokens": tokens},
        measure={"warm_up_share": 0.0},
    )


CHAINS = [(0.9, 2.7, 2), (0.6, 3.31, 1), (0.95, 0.37, 1), (0.8, 5.3, 3)]


@pytest.mark.parametrize(
    ("beta", "verify_s", "least", "tokens"), [(*CHAINS[1], 5_000), *[slow(*chain, 20_000) for chain in CHAINS]]
)
def test_the_simulation_follows_the_exact_chain(beta: float, verify_s: float, least: int, tokens: int) -> None:
    """Intervals by batch means of one run, widened from 95 % to 99.9 %: one false alarm in 1,000 seeds a case."""
    run = simulate(scenario(beta, 1.0, verify_s, least, tokens))
    metrics, theory = measure(run), drafting_ahead(1.0, verify_s, beta, least)
    for name, expected in (("throughput", theory.tokens_per_s), ("mean_acceptance_length", theory.committed)):
        metric = metrics[name]
        half = (metric.high - metric.low) / 2 * 3.88 / 2.09  # Student t with 19 degrees of freedom: 99.9 % over 95 %
        assert abs(metric.value - expected) < half, (name, metric, expected)


@pytest.mark.parametrize(
    ("verify_s", "least", "tables"),
    [
        (0.02, 1, {}),
        (0.06, 2, {}),
        (0.02, 1, {"link": {"latency_s": 0.005}}),
        (0.014, 1, {"link": {"latency_s": 0.003}}),  # the rollback arrives as the next draft ends
        (0.0186, 1, {"link": {"latency_s": 0.0007}}),
        (0.04, 1, {"drafters": {"overlap": {"policy": "ahead", "busy": True}}}),
        (0.02, 1, {"verifiers": {"patience_s": 9.0}}),
    ],
)
def test_a_token_drafted_as_a_verification_ends_is_ready(verify_s: float, least: int, tables: dict[str, Any]) -> None:
    """A tie to the last digit, and to its rounding, is as a verification that takes a microsecond longer."""
    tied, beside = (
        measure(simulate(change_scenario(scenario(0.8, 0.02, verify_s + late_s, least, 1500), tables)))
        for late_s in (0.0, 1e-6)
    )
    for name in ("throughput", "mean_acceptance_length"):
        assert tied[name].value == pytest.approx(beside[name].value, rel=1e-4)
    if verify_s == 0.02 and not tables:
        assert tied["throughput"].value == pytest.approx(drafting_ahead(0.02, 0.02, 0.8).tokens_per_s, rel=0.02)


def test_throughput_ahead_is_bound_by_the_slower_side() -> None:
    assert drafting_ahead(1.0, 3.3, 0.9999).tokens_per_s == pytest.approx(1.0, rel=1e-2)
    # With a fast drafter, verifications follow each other.
    assert drafting_ahead(0.01, 1.0, 0.5).verifications_per_s == pytest.approx(1 / 1.02, rel=0.01)


# The authors' run files.


def trace(tmp_path: Path, **changes: Any) -> Path:
    """A run file in the authors' form with t = 10 ms, v = 30 ms, d = 5."""
    accepted = [6, 6, 3, 6, 1, 6, 6, 6, 2, 6] * 20
    drafts = 5 * len(accepted) + sum(k == 6 for k in accepted[:-1])
    runs: dict[str, dict[str, Any]] = {
        "greedy": {"token_times": [0.04] + [0.02] * 959, "total_time": 21.0},
        "sd": {
            "draft_times": [0.1] + [0.01] * (drafts - 1),
            "verify_times": [0.05] + [0.03] * (len(accepted) - 1),
            "accepted_tokens": accepted,
            "total_time": 0.11 + 0.01 * drafts + 0.03 * len(accepted),
        },
        "amusd": {
            "draft_times": [0.02] + [0.01] * 1099,
            "verify_times": [0.5] + [0.03] * 399,
            "accepted_tokens": [3] * 280 + [1] * 120,
            "total_time": 13.0,
        },
    }
    for strategy, change in changes.items():
        runs[strategy] |= change
    looks = [{"gpu_powers": [220.0, 50.0]}] * 2
    whole = {"tokens_generated": 960, "time_per_token": 0.0, "gpustats": looks}
    content = [{"sample_index": 0, "strategy": name, "metrics": whole | metrics} for name, metrics in runs.items()]
    file = tmp_path / "runs.json"
    file.write_text(json.dumps(content))
    return file


def test_the_reader_finds_depth_agreement_and_the_extra_draft(tmp_path: Path) -> None:
    sd = read_sample(trace(tmp_path)).sd
    assert sd.depth == 5
    agreement = sd.agreement
    assert agreement.sessions[0].startswith("11111?11111?11011111?0")
    assert len(agreement.sessions[0]) == sum(sd.accepted_tokens)
    assert agreement.unknown == pytest.approx(21 / 22)  # in ten rounds, after two agreements: 7 x 3, and a mismatch
    assert sd.catch_up_s == pytest.approx(0.01)


def test_predictions_ignore_the_measured_amusd_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amusd, "SEEDS", 2)
    own = {"draft_times": [0.02] + [0.012] * 1099, "verify_times": [0.5] + [0.04] * 299, "total_time": 17.0}
    before, after = (
        REPRODUCTIONS["amusd-a100"](trace(tmp_path, **changes)).rows
        for changes in ({}, {"amusd": own | {"accepted_tokens": [3] * 250 + [1] * 50}})
    )
    predicted = [(old, new) for old, new in zip(before, after, strict=True) if old.kind == "predicted"]
    assert {old.case["from"] for old, _ in predicted} == {"sd alone"}
    measured = {old.quantity for old, new in predicted if old.paper != new.paper}
    assert measured == {"total_s", "accepted a verification", "energy, J/token"}
    assert [new.ours for _, new in predicted] == [old.ours for old, _ in predicted]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("{}", "needs a list"),
        ("[]", "holds the runs none"),
        ('[{"sample_index": 0, "strategy": "sd"}]', "entry 0: .*`metrics`"),
        ('[{"sample_index": 0, "strategy": "x", "metrics": {"total_time": 1, "tokens_generated": 1}}]', "allowed"),
    ],
)
def test_a_bad_run_file_is_one_clear_line(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(content)
    with pytest.raises(InputError, match=message):
        read_sample(file)


def test_a_missing_run_is_named(tmp_path: Path) -> None:
    file = trace(tmp_path)
    entries = json.loads(file.read_text())
    file.write_text(json.dumps([entries[0], entries[2]]))
    with pytest.raises(InputError, match="holds the runs greedy, amusd; needs greedy, sd and amusd of one sample"):
        read_sample(file)


def test_draft_steps_give_the_depth_without_full_rounds(tmp_path: Path) -> None:
    sd = {"accepted_tokens": [2, 3, 1], "draft_times": [0.01] * 15, "verify_times": [0.03] * 3, "total_time": 0.3}
    assert read_sample(trace(tmp_path, sd=sd)).sd.depth == 5
