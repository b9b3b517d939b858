"""Targets that draft are calibrated in service: the fit gives back what made its steps, and commands fit together."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")
pytest.importorskip("transformers")

from specfleet.calibration.laws import Fitted, Timed, fit
from specfleet.cli.entry import app
from specfleet.fleet.acceptance.signals import read_signals
from specfleet.fleet.policies.shapes import CHAIN
from specfleet.fleet.records.run import read_run
from specfleet.fleet.times.mixed import extent_of, parts_of
from specfleet.fleet.times.profile import read_profile
from specfleet.fleet.times.step import Member, Step
from specfleet.fleet.times.step_time import StepTime

TRUTH = StepTime(0.002, 0.0002, 1e-6, 2e-9, 0.0001, 0.00012, 4e-7, 0.0005, 0.0001)


def steps(rng: np.random.Generator, count: int) -> list[Step]:
    """Verifications of mixed rows."""

    def members(rows: int) -> tuple[Member, ...]:
        return tuple([Member(row, row, 1, *rng.integers((50, 1), (400, 9)).tolist()) for row in range(rows)])

    return [Step(number, "verify", members(rows)) for number, rows in enumerate(rng.choice([1, 2, 4, 8, 16], count))]


def times_s(time: StepTime, some: Sequence[Step], aligned: bool = False) -> np.ndarray:
    return np.array([time.mean_s(*extent_of(parts_of(step, CHAIN), aligned)) for step in some])


def fitted_to(some: Sequence[Step], measured_s: np.ndarray, aligned: bool = False) -> Fitted:
    timed = [Timed(step, (), time_s, 0) for step, time_s in zip(some, measured_s.tolist(), strict=True)]
    return fit(timed, CHAIN, aligned)


@pytest.mark.parametrize("aligned", [False, True])
def test_the_fit_recovers_the_true_step_time(aligned: bool) -> None:
    rng = np.random.default_rng(0)
    some, others = steps(rng, 400), steps(rng, 100)
    fitted = fitted_to(some, times_s(TRUTH, some, aligned), aligned)
    law = fitted.laws["verify"]
    assert times_s(law, others, aligned) == pytest.approx(times_s(TRUTH, others, aligned), rel=1e-6)
    assert fitted.fits["verify"]["error"] < 1e-6


def test_interrupted_steps_count_only_in_the_mean() -> None:
    """One step in fifty takes five times as long: the fit's mean is that of all, its proportions are the others'."""
    some = steps(np.random.default_rng(1), 2000)
    measured = times_s(TRUTH, some)
    measured[::50] *= 5
    factors = times_s(fitted_to(some, measured).laws["verify"], some) / times_s(TRUTH, some)
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
