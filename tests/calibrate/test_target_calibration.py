"""Targets that draft are calibrated in service: the fit gives back what made its steps, and commands fit together."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")
pytest.importorskip("transformers")

from specfleet.calibration.fits import fit_batch_step
from specfleet.cli.entry import app
from specfleet.fleet.acceptance.signals import read_signals
from specfleet.fleet.records.run import read_run
from specfleet.fleet.times.profile import read_profile
from specfleet.fleet.times.step_time import StepTime

TRUTH = StepTime(0.002, 0.0002, 1e-6, 2e-9, 0.0001, 0.00012, 4e-7, 0.0005, 0.0001)


def steps(rng: np.random.Generator, count: int) -> np.ndarray:
    """Extents as mixed rows have them: tokens, context, rows, tokens of the other rows."""
    tokens, context = rng.integers(2, 10, count), rng.integers(50, 400, count)
    rows = rng.choice([1, 2, 4, 8, 16], count)
    return np.stack([tokens, context, rows, (rows - 1) * rng.integers(1, tokens)], axis=1)


def times_s(time: StepTime, extents: np.ndarray) -> np.ndarray:
    return np.array([time.mean_s(*map(int, extent)) for extent in extents])


def test_the_fit_recovers_the_true_step_time() -> None:
    rng = np.random.default_rng(0)
    extents = steps(rng, 400)
    fitted, error = fit_batch_step(extents, times_s(TRUTH, extents))
    others = steps(rng, 100)
    assert times_s(fitted, others) == pytest.approx(times_s(TRUTH, others), rel=1e-6)
    assert error < 1e-6


def test_interrupted_steps_count_only_in_the_mean() -> None:
    """One step in fifty takes five times as long: the fit's mean is that of all, its proportions are the others'."""
    rng = np.random.default_rng(1)
    extents = steps(rng, 2000)
    measured = times_s(TRUTH, extents)
    measured[::50] *= 5
    fitted, _ = fit_batch_step(extents, measured)
    factors = times_s(fitted, extents) / times_s(TRUTH, extents)
    assert factors.std() < 0.02
    assert factors.mean() == pytest.approx(1 + 4 / 50, rel=0.02)


@pytest.mark.slow
def test_commands_calibrate_run_and_predict_a_target(tmp_path: Path) -> None:
    """No figure is checked here, for that would depend on this host: only that the four commands fit together."""
    (tmp_path / "small.toml").write_text(
        '[drafters]\nplace = "target"\ndepth = 3\n[verifiers]\nmax_num_seqs = 2\n'
        "[workload]\nrequests = 4\nstreams = 4\nprompt_tokens = {low = 16, high = 32}\nnew_tokens = 12\n"
    )
    scenario, profile = str(tmp_path / "small.toml"), tmp_path / "profile.json"
    for command in (
        ["calibrate", "--scenario", scenario, "--quick", "-o", str(profile)],
        ["run", scenario, "-o", str(tmp_path / "engine.parquet"), "--signals", str(tmp_path / "here.parquet")],
        ["simulate", scenario, "--set", f"profile={profile}", "-o", str(tmp_path / "sim.parquet")],
        ["simulate", scenario, "--set", f"profile={profile}", "--set", "verifiers.allocate.policy=dsde",
         "--set", "drafters.depth=5", "--set", "acceptance.model=signals",
         "--set", f"acceptance.file={tmp_path / 'profile.signals.parquet'}",
         "-o", str(tmp_path / "dsde.parquet")],
    ):  # fmt: skip
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
    calibrated = read_profile(str(profile), tmp_path)
    assert calibrated.verify.base_s > 0
    of_target = calibrated.overhead.own.target
    assert all(delay.mean_s > 0 for delay in (of_target.queued, of_target.woken, of_target.after))
    assert len(read_signals(tmp_path / "here.parquet")) == 4
    runs = [read_run(tmp_path / f"{name}.parquet") for name in ("engine", "sim", "dsde")]
    assert [run.header.world for run in runs] == ["engine", "sim", "sim"]
    requests = [set(run.frame().query("event == 'join'").request) for run in runs]
    assert requests[0] == requests[1] == requests[2] == {0, 1, 2, 3}


@pytest.mark.parametrize("drafters", ["", 'place = "target"\nkind = "lookup"\n'])
def test_signals_are_refused_where_drafts_have_none(tmp_path: Path, drafters: str) -> None:
    (tmp_path / "star.toml").write_text(f"[drafters]\n{drafters}[workload]\nrequests = 2\n")
    result = CliRunner().invoke(app, ["run", str(tmp_path / "star.toml"), "--signals", str(tmp_path / "x.parquet")])
    assert result.exit_code != 0
    assert "only a model's chains on a target's device have signals" in str(result.exception or result.output)
