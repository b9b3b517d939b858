"""The pair of real shapes with random weights: its acceptance is the assumed one, and its star runs."""

import argparse
from pathlib import Path

import pytest
import torch

from bench import pair
from bench.harness import add_options
from bench.speculative import decode_speculatively
from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.models import load_model
from specfleet.engine.decoding.verify import Target
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.profile import HardwareProfile, write_profile


def test_each_token_has_one_that_comes_before_it() -> None:
    for right in (1.0, 0.7, 0.25):
        following = pair.next_tokens(1000, right)
        assert following.sort().values.tolist() == list(range(1000))
        assert (following == (torch.arange(1000) + 1) % 1000).sum() == 1000 * right


def test_drafts_are_accepted_as_assumed(tmp_path: Path) -> None:
    """After 5 prompts, a text walks over half of the 128 tokens or more: their right ones are counted."""
    pair.write_pair(tmp_path, True, torch.float32)
    target, drafter = (load_model(str(tmp_path / role), role, device="cpu") for role in pair.SHAPES)
    right = (pair.next_tokens(128, pair.ACCEPTED) == (torch.arange(128) + 1) % 128).tolist()
    for start in (0, 31, 62, 93, 124):
        text, accepted = decode_speculatively(Target(target), Drafter(drafter), [7, start], 100, pair.DEPTH)
        assert text == [(start + 1 + place) % 128 for place in range(100)]
        place = start + 1  # the prefill says the first token
        for found in accepted:
            ends = [number for number in range(pair.DEPTH) if not right[(place + number) % 128]]
            assert found == min([*ends, pair.DEPTH])
            place += found + 1


@pytest.mark.slow
def test_the_tiny_star_runs_and_goes_on_after_kept_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real drafter, replayed targets; a profile with stated times takes the place of a calibration."""
    stated = {"name": "stated", "draft": {"base_s": 0.002, "per_token_s": 0.002}, "verify": {"base_s": 0.02}}

    def calibrate(_scenario: Scenario, _prompts: str, file: Path) -> None:
        profile = make_scenario({"name": "stated", "profile": stated}).profile
        assert isinstance(profile, HardwareProfile)
        write_profile(profile, file)

    monkeypatch.setattr(pair, "calibrate", calibrate)
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    add_options(parser, pair.OPTIONS)
    options = parser.parse_args(["--tiny", "--precision", "float32", "--counts", "1", "--out", str(tmp_path)])
    (first,) = next(iter(pair.study(options).tables.values()))
    assert first["acceptance"] == "0.7, assumed"
    assert first["accepted"] == pytest.approx(pair.ACCEPTED, abs=0.15)
    assert first["throughput"] > 0
    kept = pair.runs_of(1, options)[0].read_bytes()
    monkeypatch.delattr(pair, "write_pair")  # a finished star needs no models
    (again,) = next(iter(pair.study(options).tables.values()))
    assert pair.runs_of(1, options)[0].read_bytes() == kept
    assert again == first


def test_small_stars_and_precisions_are_kept_apart(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=tmp_path)
    add_options(parser, pair.OPTIONS)
    asked = ([], ["--tiny"], ["--precision", "float32"], ["--precision", "float32", "--tiny"])
    assert len({pair.runs_of(1, parser.parse_args(words))[0] for words in asked}) == 4
