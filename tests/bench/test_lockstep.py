"""Identical rows in lockstep: the computed time equals the simulated time of all rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.specdecode import Floats, Walks, prefills_s, rounds_s, walks_of
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.roofline import AttentionTime, Roofline
from specfleet.fleet.times.step_time import StepTime
from tests.bench.copies import copies, played, taken_s

DEPTH = 6
repeatable = settings(max_examples=40)
LINEAR = HardwareProfile(
    name="linear",
    draft=StepTime(0.02, per_token_s=0.003, per_context_token_s=1e-4, per_row_token_s=0.003, per_row_context_s=1e-4),
    verify=StepTime(0.05, per_token_s=0.01, per_context_token_s=2e-4, per_row_token_s=0.01, per_row_context_s=2e-4),
    draft_prefill=StepTime(0.01, per_token_s=0.001),
    verify_prefill=StepTime(0.03, per_token_s=0.002, per_row_token_s=0.002),
)
PASSES = Roofline(
    tokens=(1, 8, 64, 512), pass_s=(0.01, 0.012, 0.02, 0.15), attention=(AttentionTime(1e-5, 1e-7),), host_s=0.011
)
BY_ROOFLINE = HardwareProfile(
    name="roofline",
    draft=StepTime(0.001, roofline=Roofline(tokens=(1, 512), pass_s=(0.001, 0.03), in_turn=True)),
    verify=StepTime(0.002, per_row_s=0.0005, roofline=PASSES),
    verify_prefill=StepTime(0.004, roofline=PASSES),
)
text_of_places = st.lists(st.integers(0, DEPTH), min_size=1, max_size=12)


def computed_s(profile: HardwareProfile, walks: Walks, drafted: Floats, rows: int) -> float:
    """Time of the first request by `bench.specdecode`."""
    rounds = walks.of_requests(rounds_s(profile, walks.context, drafted, rows))
    return float((prefills_s(profile, walks.prompts, rows) + rounds)[0])


@repeatable
@given(text=text_of_places, depth=st.integers(0, DEPTH), prompt=st.integers(2, 40))
def test_a_round_begins_where_the_last_one_ended(text: list[int], depth: int, prompt: int) -> None:
    walks = walks_of([text], [prompt], depth)
    places = (walks.context - prompt - 1).astype(int)
    assert walks.accepted.tolist() == [min(text[place], depth) for place in places]
    ends = (places + walks.accepted + 1).tolist()
    assert [0, *ends[:-1]] == places.tolist()
    assert ends[-1] >= len(text)


@pytest.mark.parametrize("profile", [LINEAR, BY_ROOFLINE], ids=["linear times", "a roofline"])
@repeatable
@given(text=text_of_places, depth=st.integers(1, DEPTH), rows=st.integers(2, 5), prompt=st.integers(2, 40))
def test_copies_take_the_computed_time(
    profile: HardwareProfile, text: list[int], depth: int, rows: int, prompt: int
) -> None:
    walks = walks_of([text], [prompt], depth)
    drafted = np.full(len(walks.context), float(depth))
    rounds = [[(depth, k) for k in walks.accepted]] * rows
    simulated_s = taken_s(copies(profile, rows, text, prompt, depth), played(rounds))
    assert computed_s(profile, walks, drafted, rows) == pytest.approx(simulated_s, rel=1e-9)
