"""Batch Speculative Decoding's rounds: overhead by calls of the host, and a workload that gives table 2's tokens."""

from pathlib import Path

import numpy as np
import pytest

from specfleet.experiments.reproduce import batch_model as model
from specfleet.experiments.reproduce import batch_turns as turns
from specfleet.experiments.reproduce.batch import served
from specfleet.experiments.reproduce.batch_turns import evenly, turn_tokens, write_lengths
from specfleet.fleet.hardware.profile import estimate
from specfleet.fleet.records.metrics.tables import verifications_of


def test_eqspecs_overhead_is_the_papers_at_1_and_4() -> None:
    draft_ms, verify_ms, at_four_ms = model.eqspec_times_ms()
    (at_one_ms, a_row_ms), written_ms = model.realign_ms("realign")
    assert written_ms == 0.0
    assert at_one_ms / (at_one_ms + draft_ms + verify_ms) == pytest.approx(0.13)
    assert at_one_ms + 3 * a_row_ms == pytest.approx(at_four_ms)


def test_a_served_batch_without_speculation_yields_a_token_a_row_and_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "fitted", lambda: model.WorkloadFit(0.5, 200, 200))
    monkeypatch.setattr(model, "PROMPT_TOKENS", {"low": 1, "high": 1})
    profile = estimate("qwen3-8b@a100-80gb", "qwen3-0.6b@a100-80gb", engine="vllm")
    assert served(profile, 4, 0) == pytest.approx(4 / profile.decode.mean_s(1, 100, 4, 3), rel=0.02)


def test_exspec_makes_fewer_calls_and_writes_rows_back() -> None:
    (_, of_eqspec_ms), _ = model.realign_ms("realign")
    (at_one_ms, of_exspec_ms), written_ms = model.realign_ms("same-length")
    assert of_exspec_ms / of_eqspec_ms == pytest.approx(6 / 18)
    assert written_ms / of_eqspec_ms == pytest.approx(4 / 18)
    assert at_one_ms > of_exspec_ms


@pytest.mark.slow
def test_the_fitted_workload_gives_the_papers_tokens_a_verification() -> None:
    tokens = 95.6 * 1469 * 24.88 / 0.449 / 1000
    for rule, verifications in ((model.eqspec(4), 1469), (model.exspec(4), 952)):
        runs = [verifications_of(model.run_batch(rule, seed).columns()).frame() for seed in range(2)]
        ours = np.mean([(run.acceptance_length + 1).sum() / run.step.nunique() for run in runs])
        assert ours == pytest.approx(tokens / verifications, rel=0.05)


def test_a_full_draft_counts_four_tokens_and_the_bonus() -> None:
    run = model.run_batch(model.eqspec(2), fit=model.WorkloadFit(0.9, 20, 20), requests=4)
    assert verifications_of(run.columns()).acceptance_length.max() == model.DEPTH - 1


def test_requests_are_spec_benchs_turns_cut_to_size(tmp_path: Path) -> None:
    file = tmp_path / "lengths.csv"
    write_lengths(file, 560, ((0.0, 1.0), (16, 139)), seed=1, most=800)
    rows = [tuple(map(int, line.split(","))) for line in file.read_text().splitlines()[1:]]
    prompts, answers = zip(*rows, strict=True)
    assert sorted(prompts) == turn_tokens(800)
    assert list(prompts) != turn_tokens(800)
    assert prompts.count(800) > 40
    assert max(prompts) == 800 < max(turn_tokens(10_000))
    assert min(answers) >= 16
    assert max(answers) <= 139


def test_answers_of_table_3_spread_as_latencies_without_waits() -> None:
    answers = turns.answers_of_table_3()
    lengths = np.interp(evenly(10_000), *answers)
    middle, late, last = np.quantile(lengths, [0.5, 0.9, 0.99])
    assert late / middle == pytest.approx(12.96 / 6.70, rel=0.01)
    assert last / middle == pytest.approx(16.53 / 6.70, rel=0.01)
    assert lengths.mean() == pytest.approx((model.fitted().low + model.fitted().high) / 2, rel=0.01)
