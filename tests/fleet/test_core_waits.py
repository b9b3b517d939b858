"""Waits for cores are given to what they held up, and never more than it was late."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.records.core_waits import Held, starts_waited, ways_waited

MESSAGES = [("drafter", "DraftRequest", 0, 0, 1), ("verifier.1", "Draft", 0, 0, 1)]
seconds = st.floats(0, 10)
places = st.tuples(st.sampled_from(MESSAGES), st.integers(0, 3))


@given(
    st.lists(st.builds(Held, seconds, st.none() | places, st.lists(places, max_size=3).map(tuple)), max_size=20),
    st.fixed_dictionaries({message: st.lists(seconds, max_size=3) for message in MESSAGES}),
)
def test_no_message_waited_longer_than_it_was_on_its_way_nor_all_together_longer_than_threads_did(
    held: list[Held], ways_s: dict[tuple[str, str, int, int, int], list[float]]
) -> None:
    waited_s = ways_waited(held, ways_s)
    assert waited_s.keys() == ways_s.keys()
    for message, times_s in waited_s.items():
        assert all(0 <= wait_s <= way_s for wait_s, way_s in zip(times_s, ways_s[message], strict=True))
    most_s = sum(each.wait_s * max(len(each.left), 1) for each in held)  # all that left wait together
    assert sum(map(sum, waited_s.values())) <= most_s + 1e-9


def test_a_wait_longer_than_the_way_of_what_arrived_held_up_what_left_before() -> None:
    """Quick messages of a kind waited for nothing: here those that took 0.1 s."""
    request, draft = MESSAGES
    arrived, left = (request, 2), (draft, 2)
    ways_s = {request: [0.1, 0.1, 0.6], draft: [0.1, 0.1, 3.1]}
    assert ways_waited([Held(2.0, arrived, (left,))], ways_s) == {
        request: [0.0, 0.0, pytest.approx(0.5)],
        draft: [0.0, 0.0, pytest.approx(1.5)],
    }
    assert ways_waited([Held(2.0, left=(left,))], ways_s)[draft] == [0.0, 0.0, pytest.approx(2.0)]
    both = ways_waited([Held(2.0, left=((request, 2), left))], ways_s)
    assert (both[request][2], both[draft][2]) == (pytest.approx(0.5), pytest.approx(2.0))  # who sends them waits once


@given(st.lists(st.tuples(seconds, seconds), max_size=30))
def test_no_step_waited_longer_than_it_was_late_beyond_the_quick_ones(pairs: list[tuple[float, float]]) -> None:
    waits_s, lates_s = [wait_s for wait_s, _ in pairs], [late_s for _, late_s in pairs]
    quickest_s = min(lates_s, default=0.0)
    for wait_s, late_s, waited_s in zip(waits_s, lates_s, starts_waited(waits_s, lates_s), strict=True):
        assert 0 <= waited_s <= min(wait_s, late_s - quickest_s)
