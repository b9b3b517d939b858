"""README's own journey, line by line, with two models in folders: calibrate, simulate, run, compare, figure.

The test is strict about what both worlds must share, and about the run with all its parts played back; tests share
their host with others, and say nothing of times from the profile alone.
"""

import re
import shlex
import shutil
from pathlib import Path

import pytest

import specfleet
from specfleet.experiments.compare.differences import mean_length_of, sharing
from specfleet.fleet.acceptance.fits import mean_interval
from specfleet.fleet.acceptance.models import Recorded
from tests.helpers.cli import Said
from tests.helpers.processes import ROOT, ended, start

README = ROOT / "README.md"
MODELS = ROOT / "engine" / "demo_pair"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]  # a minute or two on a quiet host


def readme_lines() -> list[str]:
    """The commands below README's sentence on two models of one's own."""
    after = README.read_text().partition("Two Hugging Face models")[2]
    return after.split("```")[1].strip().splitlines()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A newcomer's folder, with a drafter and a target where README has them."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("newcomer")
    for model in ("drafter", "target"):
        shutil.copytree(MODELS / model, folder / "path" / "to" / model)
    return folder


@pytest.fixture(scope="module")
def journey(home: Path) -> dict[str, Said]:
    """What each of README's commands said; the calibration is a quick one."""
    said = {}
    for line in readme_lines():
        _, command, *words = shlex.split(line, comments=True)
        more = ["--quick"] if command == "calibrate" else []
        said[command] = Said(*ended(start("-m", "specfleet", command, *words, *more, cwd=home), 1400))
    return said


@pytest.fixture(scope="module")
def mine(home: Path, journey: dict[str, Said]) -> Path:  # noqa: ARG001  (its files)
    return home / "runs" / "mine"


def test_every_command_of_the_journey_runs_without_a_note(journey: dict[str, Said]) -> None:
    assert list(journey) == ["calibrate", "simulate", "run", "compare"]
    for command, said in journey.items():
        assert said.status in ((0, 1) if command == "compare" else (0,)), said.err  # 1: beyond its tolerance
        assert "note:" not in said.err
    assert "scenario that fits it: runs/mine/pair.toml" in journey["calibrate"].err


def test_both_worlds_share_acceptance_and_devices(mine: Path, journey: dict[str, Said]) -> None:
    simulated, measured = (specfleet.read_run(mine / f"{name}.parquet").run for name in ("sim", "engine"))
    model = simulated.header.fleet.acceptance
    assert isinstance(model, Recorded)
    recorded, accepted = mean_interval(model.sessions), mean_length_of(measured)
    assert recorded.low < accepted.high
    assert accepted.low < recorded.high
    assert sharing(simulated.header.fleet) == sharing(measured.header.fleet)
    assert simulated.header.profile_digest == measured.header.profile_digest
    assert not re.findall("^not shared: (?!acceptance)", journey["compare"].out, re.MULTILINE)


def test_playback_of_all_of_the_run_gives_it_again(mine: Path) -> None:
    """Steps, acceptance, delays and links are the run's own, so a busy host makes no difference."""
    measured = specfleet.read_run(mine / "engine.parquet")
    again = specfleet.play_back(measured, ["all"])
    (row,) = [row for row in specfleet.compare(again, measured).rows if row.quantity == "rounds_per_s"]
    assert abs(row.error) < 0.005
