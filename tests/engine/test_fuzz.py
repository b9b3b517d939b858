"""Thousands of frames of broken peers at a drafter with sound targets: what is malformed is dropped."""

import pytest

from tests.fuzz.broken import check, serve_beside_broken
from tests.helpers.marks import slow


@pytest.mark.parametrize("seed", [1, *(slow(seed) for seed in range(2, 6))])
def test_broken_peers_change_no_text_of_others(seed: int) -> None:
    found = serve_beside_broken(20_000, seed)
    check(found)
    counted = {what for what, count in found.counts.items() if count}
    assert counted >= {"malformed", "repeated", "out of place", "denied"}
