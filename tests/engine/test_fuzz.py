"""A hundred thousand messages of strangers and of dishonest peers, at a server with honest targets."""

import pytest

from specfleet.engine.net import server
from tests.fuzz.attack import attack, check
from tests.helpers.marks import slow
from tests.helpers.toys import STEP_S


def test_strangers_change_no_log() -> None:
    quiet, loud = attack(0, 0, dishonest=False, seed=0), attack(60_000, 6, dishonest=False, seed=0)
    check(loud)
    assert loud.sent == 60_000
    assert loud.outputs == quiet.outputs
    assert loud.ends_s == quiet.ends_s
    assert loud.log == quiet.log
    assert {"malformed", "of strangers", "denied", "cut"} <= {what for what, count in loud.counts.items() if count}
    early, late = loud.weights[: len(loud.weights) // 4], loud.weights[len(loud.weights) // 4 :]
    assert max(late) <= 1.2 * max(early)


@pytest.mark.parametrize("patient", [False, True])
@pytest.mark.parametrize("seed", [1, *(slow(seed) for seed in range(2, 8))])
def test_dishonest_peers_change_no_text_and_cost_only_their_drafts(
    seed: int, patient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A patient server cuts no peer, so that every message reaches the checks behind its limits."""
    if patient:
        for limit in ("MAX_BAD", "IDLE", "JOINS"):
            monkeypatch.setattr(server, limit, 1 << 40)
    quiet, loud = attack(0, 0, dishonest=False, seed=seed), attack(20_000, 2, dishonest=True, seed=seed)
    check(loud)
    for end_s, alone_s in zip(loud.ends_s, quiet.ends_s, strict=True):
        assert end_s <= alone_s + loud.spent_s + STEP_S["prefill"]
    found = {what for what, count in loud.counts.items() if count}
    assert found >= {"inadmissible", "repeated", "malformed", "of strangers"}
    assert ("too many" in found) != patient
    assert loud.spent_s > (2.0 if patient else 0.1), "dishonest peers are served, too"
