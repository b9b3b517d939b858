"""Estimated profiles from the command line and Python; their label in every table, header, note and figure."""

import json
from pathlib import Path

import msgspec
import pytest

import specfleet
from specfleet.fleet.times.profile import write_profile
from specfleet.meaning.shipped import profiles
from tests.helpers.cli import Say

WARNING = "step times estimated, not measured"
SMALL = {"workload.requests": 20}


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A star on an estimated profile."""
    folder = tmp_path_factory.mktemp("estimated")
    profile = specfleet.estimate("llama-3.1-70b@4xh100", "llama-3.2-1b@h100")
    write_profile(profile, folder / "pair.json")
    (folder / "star.toml").write_text(
        'name = "star"\nseed = 1\nprofile = "pair.json"\nacceptance = { model = "geometric", beta = 0.8 }\n'
        "[drafters]\ndepth = 4\n[verifiers]\ncount = 2\n"
        "[workload]\nrequests = 20\nprompt_tokens = 200\nnew_tokens = 32\n"
    )
    return folder / "star.toml"


def test_the_label_stands_in_every_table_header_and_note(scenario: Path, say: Say, tmp_path: Path) -> None:
    shown, simulated = say("show", scenario).out, say("simulate", scenario)
    assert "estimated; digest" in shown
    assert "(estimated:" in shown
    assert WARNING in " ".join(simulated.out.split("━")[0].split())  # above the table
    assert WARNING in simulated.err
    assert WARNING in say("analytic", scenario).err
    options = ("--vary", "verifiers.count=1,2", "--seeds", "1", "--jobs", "1", "-o", tmp_path / "swept")
    assert WARNING in " ".join(say("sweep", scenario, *options).out.split())


def test_the_label_stands_in_figures_and_frames(scenario: Path) -> None:
    result = specfleet.simulate(scenario)
    swept = specfleet.sweep(scenario, {"verifiers.count": [1, 2]}, seeds=1, jobs=1)
    assert set(swept.frame()["basis"]) == {"estimated"}
    for figure in (result.figure("timeline"), swept.figure()):
        assert any("estimated, not measured" in text.get_text().replace("\n", " ") for text in figure.texts)


def test_what_was_measured_or_stated_is_not_called_estimated() -> None:
    result = specfleet.simulate("star", SMALL)
    assert "estimated" not in result.title()
    assert not any("estimated" in note for note in result.notes)
    swept = specfleet.sweep("star", {"verifiers.count": [1]}, SMALL, seeds=1, jobs=1)
    assert set(swept.frame()["basis"]) == {"stated"}
    assert {basis for _, basis, _ in profiles()} == {"stated", "assumed"}


def test_weights_without_room_for_a_cache_are_said(say: Say, tmp_path: Path) -> None:
    full = "weights leave no memory for a KV cache; more devices"
    made = say("profile", "estimate", "--target", "qwen3-30b-a3b@jetson-orin", "-o", tmp_path / "full.json")
    assert made.status == 0
    assert f"warning: qwen3-30b-a3b@jetson-orin: {full}" in made.err
    planned = say("plan", "--target", "qwen3-30b-a3b@jetson-orin", "--in-flight", "4")
    assert planned.status == 2
    assert full in planned.err


def test_the_command_writes_what_python_returns(say: Say, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    named = ("--target", "llama-3.1-8b@2xl40s:fp8")
    out = say("profile", "estimate", *named, "-o", file).out
    assert "assumed" in out
    assert "NVIDIA L40S data sheet" in out
    written = json.loads(file.read_text())
    expected = specfleet.estimate("llama-3.1-8b@2xl40s:fp8")
    assert written == json.loads(msgspec.json.encode(expected))
    assert json.loads(say("profile", "estimate", *named, "--json").out) == written
