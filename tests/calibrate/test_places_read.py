"""AMUSD's run files as recordings."""

from pathlib import Path

import pytest

import specfleet
from specfleet.calibration.readers.amusd import read_amusd
from specfleet.fleet.acceptance.tokens import Agreement
from specfleet.fleet.errors import InputError
from tests.sim.test_amusd import trace


def test_amusds_sd_run_gives_agreement_and_step_times(tmp_path: Path) -> None:
    recording = read_amusd([trace(tmp_path)])
    assert (recording.rounds, recording.accepted, recording.depth, recording.stated) == (200, 760, 5, 4.8)
    assert isinstance(recording.acceptance, Agreement)
    assert recording.acceptance.sessions == ("11111?11111?11011111?011111?11111?11111?1011111?" * 20,)
    profile = recording.profile
    assert profile is not None
    assert (profile.draft.per_token_s, profile.verify.base_s) == pytest.approx((0.01, 0.03))
    assert profile.decode.base_s == pytest.approx((21.0 - 0.04) / 959)
    made = specfleet.import_record("amusd", tmp_path / "runs.json", tmp_path / "amusd.toml")
    run = specfleet.simulate(made.scenario, workload={"requests": 2, "new_tokens": 60})
    assert run.metrics["mean_acceptance_length"].value > 2


def test_a_time_a_token_that_contradicts_the_total_is_refused(tmp_path: Path) -> None:
    says = r"runs.json: entry 1 \(sd\): time_per_token = 0.04 contradicts total_time / tokens_generated = 0.01"
    with pytest.raises(InputError, match=says):
        read_amusd([trace(tmp_path, sd={"time_per_token": 0.04})])
