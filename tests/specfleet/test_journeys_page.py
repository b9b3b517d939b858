"""docs/journeys.md: every command works as it stands there, in order, in one folder, and says what the page says."""

import re
import shlex
from pathlib import Path

import pytest

import specfleet as api
from specfleet.experiments.compare.differences import mean_length_of, sharing
from specfleet.fleet.acceptance.fits import mean_interval
from specfleet.fleet.acceptance.models import Recorded
from tests.helpers.processes import ROOT, specfleet

PAGE = (ROOT / "docs" / "journeys.md").read_text()
JOURNEYS = {
    title: [shlex.split(line.removeprefix("$ ")) for line in re.findall(r"^\$ .*$", text, re.MULTILINE)]
    for title, text in (part.split("\n", 1) for part in PAGE.split("\n## ")[1:])
}
SAID = {  # by the first words of a command
    "analytic fleet.toml": "N_full", "sweep fleet.toml": "knee: the drafter", "simulate fleet.toml": "share of N = 1",
    "plan fleet.toml": "fleet: ", "simulate runs/mine/pair.toml": "throughput", "run runs/mine/pair.toml": "throughput",
    "compare runs/mine/sim.parquet": "mechanism", "sweep star": "level with it by the 95 % intervals",
}  # fmt: skip
LIMIT_S = 600
DISAGREE = 1  # what a busy host makes of a comparison


def test_the_journey_of_the_readme_is_that_of_the_page() -> None:
    block = (ROOT / "README.md").read_text().partition("Two Hugging Face models")[2].split("```")[1]
    calibrate, *others = (shlex.split(line, comments=True) for line in block.strip().splitlines())
    ours, *same = JOURNEYS["Models of your own"]
    assert others == same
    assert {word for word in calibrate if "path/to" not in word} == set(ours) - {"demo", "--quick"}


def test_each_journey_has_at_most_ten_commands() -> None:
    assert len(JOURNEYS) == 3
    assert all(1 < len(commands) <= 10 for commands in JOURNEYS.values())


@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("title", JOURNEYS)
def test_the_commands_of_a_journey_work_in_order(title: str, tmp_path: Path) -> None:
    if title.startswith("Models"):
        pytest.importorskip("torch")
    for words in JOURNEYS[title]:
        process = specfleet(*words[1:], cwd=tmp_path)
        out, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode in ((0, DISAGREE) if words[1] == "compare" else (0,)), err
        assert SAID.get(" ".join(words[1:3]), "") in out
        assert "Traceback" not in err
        kept = words[words.index("-o") + 1] if "-o" in words else "."
        assert (tmp_path / kept).exists()
    if title.startswith("Models"):
        assert_that_both_worlds_agree(tmp_path / "runs" / "mine")


def assert_that_both_worlds_agree(mine: Path) -> None:
    """They share acceptance and devices, and the run played back is the run: a busy host makes no difference."""
    measured = api.read_run(mine / "engine.parquet")
    ran, simulated = measured.run, api.read_run(mine / "sim.parquet").run
    model = simulated.header.fleet.acceptance
    assert isinstance(model, Recorded)
    recorded, accepted = mean_interval(model.sessions), mean_length_of(ran)
    assert recorded.low < accepted.high
    assert accepted.low < recorded.high
    assert sharing(simulated.header.fleet) == sharing(ran.header.fleet)
    assert simulated.header.profile_digest == ran.header.profile_digest
    rows = api.compare(api.play_back(measured, ["all"]), measured).rows
    assert [abs(row.error) < 0.005 for row in rows if row.quantity == "rounds_per_s"] == [True]
