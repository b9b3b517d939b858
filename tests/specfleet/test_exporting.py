"""`specfleet export`: settings that force the scenario's mean acceptance length elsewhere."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import specfleet
from specfleet.fleet.acceptance.models import committed_closed_form


@settings(max_examples=30)
@given(beta=st.floats(0, 1), depth=st.integers(1, 12))
def test_every_line_asks_for_the_mean_length_of_the_scenario(beta: float, depth: int) -> None:
    changes = {"drafters.depth": depth}
    lines = specfleet.export("star", changes, acceptance={"model": "geometric", "beta": beta})
    mean = committed_closed_form(beta, depth)
    config = json.loads(lines["vllm"].removeprefix("--speculative-config '").removesuffix("'"))
    assert config["num_speculative_tokens"] == depth
    assert config["synthetic_acceptance_length"] == pytest.approx(mean, abs=5e-5)
    options = {
        engine: float(re.findall(r"[= ]([0-9.e-]+)(?: |$)", lines[engine])[0]) for engine in lines if engine != "vllm"
    }
    assert options["tensorrt-llm"] == pytest.approx(mean - 1, abs=1.1e-4)
    for engine in ("sglang", "atom"):
        assert options[engine] == pytest.approx(mean, abs=1.1e-4)


@pytest.mark.parametrize(
    ("scenario", "changes", "says"),
    [
        ("tree", {}, "one mean length of chains"),
        ("star", {"drafters.count": 0}, "one mean length of chains"),
        ("star", {"verifiers.allocate": {"policy": "random-share", "budget": 9}}, "one mean length of chains"),
        ("amusd", {}, "drafting ahead out"),
        (
            "star",
            {"acceptance": {"model": "agreement", "sessions": ["101"], "unknown": 0.5}},
            "'agreement' knows single tokens",
        ),
    ],
)
def test_what_has_no_such_mean_is_refused(scenario: str, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(specfleet.InputError, match=says):
        specfleet.export(scenario, changes)
