"""Checks of a server: honest messages pass, and no message can break a model or a station."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from specfleet.engine.net.content import NOTHING, Content, states_sent
from specfleet.engine.net.limits import (
    REPEATED,
    MessageLimits,
    Sessions,
    SessionState,
    bounds_of,
    draft_refused,
    request_refused,
)
from specfleet.fleet.policies.shapes import tree
from specfleet.fleet.stations.messages import Draft, DraftRequest, Leave
from tests.helpers.toys import toy_fleet

VOCABULARY, STATES = 50, 3
CHAIN = MessageLimits(requests=10, longest_text=40, longest_draft=4, vocabulary=VOCABULARY)
TREE = replace(CHAIN, shape=tree(2))
EAGLE = replace(CHAIN, state_numbers=STATES)
SAMPLED = replace(CHAIN, sampled=True)
SEQUOIA = replace(SAMPLED, shape=tree(2), rule="without-replacement")
AHEAD = replace(CHAIN, longest_draft=30, in_turn=False)
SESSION = SessionState(request=2, epoch=3, base=12, waits=False, nodes=4)
BRANCHED = replace(SESSION, nodes=6, parents=[0, 0, 1, 1, 2, 2])
OPENING, LATER = DraftRequest(0, 2, 1, 9, opening=True), DraftRequest(0, 2, 4, 15)


def states(rows: int, numbers: int = STATES, fill: float = 1.0) -> np.ndarray:
    return np.full((rows, numbers), fill, np.float16)


@pytest.mark.parametrize(
    ("what", "message", "content", "session", "bounds"),
    [
        ("", OPENING, Content([1] * 9), None, CHAIN),
        ("", replace(OPENING, tokens=0), Content([1] * 9), None, CHAIN),
        ("", LATER, Content([7]), SESSION, CHAIN),
        ("", replace(LATER, base=13), Content([7]), SESSION, CHAIN),
        ("", LATER, Content([7], [2, 5]), BRANCHED, TREE),
        ("", OPENING, Content([1] * 9, hidden=states(8)), None, EAGLE),
        ("", LATER, Content([7], hidden=states(3)), SESSION, EAGLE),
        (
            "",
            LATER,
            Content([7], hidden=states_sent(np.full((3, STATES), -1e30, np.float32))),
            SESSION,
            EAGLE,
        ),  # bfloat16
        ("beyond the workload", replace(OPENING, request=10), Content([1] * 9), None, CHAIN),
        ("base beyond", replace(OPENING, base=41), Content([1] * 41), None, CHAIN),
        ("base without", replace(OPENING, base=0), Content(), None, CHAIN),
        ("base without", replace(OPENING, base=1), Content([1]), None, CHAIN),  # nothing to prefill
        ("grant", replace(LATER, tokens=5), Content([7]), SESSION, CHAIN),
        ("", replace(LATER, tokens=25), Content([7]), SESSION, AHEAD),
        ("grant", replace(LATER, tokens=26), Content([7]), SESSION, AHEAD),  # it would draft beyond the text
        ("grant", LATER, Content([7]), SESSION, AHEAD),  # it would draft without end
        ("before its answer", LATER, Content([7]), replace(SESSION, waits=True), CHAIN),
        ("not open", LATER, Content([7]), None, CHAIN),
        ("number of tokens", OPENING, Content([1] * 8), None, CHAIN),
        ("number of tokens", LATER, Content([7, 7]), SESSION, CHAIN),
        ("vocabulary", LATER, Content([VOCABULARY]), SESSION, CHAIN),
        ("vocabulary", OPENING, Content([1] * 8 + [-1]), None, CHAIN),
        ("distributions", LATER, Content([7], rule="rejection"), SESSION, CHAIN),
        ("distributions", LATER, Content([7], distributions=states(1)), SESSION, CHAIN),
        ("more accepted", replace(LATER, base=18), Content([7]), SESSION, CHAIN),
        ("more accepted", replace(LATER, base=12), Content([7]), SESSION, CHAIN),
        ("path", OPENING, Content([1] * 9, [1]), None, CHAIN),
        ("path", LATER, Content([7], [2]), BRANCHED, TREE),
        ("path", LATER, Content([7], [2, 3]), BRANCHED, TREE),
        ("path", LATER, Content([7], [3, 1]), BRANCHED, TREE),
        ("path", LATER, Content([7], [0, 1]), BRANCHED, TREE),
        ("path", LATER, Content([7], [2, 7]), BRANCHED, TREE),
        ("hidden", OPENING, Content([1] * 9), None, EAGLE),
        ("hidden", OPENING, Content([1] * 9, hidden=states(9)), None, EAGLE),
        ("hidden", OPENING, Content([1] * 9, hidden=states(8, STATES + 1)), None, EAGLE),
        ("hidden", LATER, Content([7], hidden=states(3, fill=np.nan)), SESSION, EAGLE),
        ("hidden", LATER, Content([7], hidden=states(3)), SESSION, CHAIN),
    ],
)
def test_only_requests_of_honest_targets_are_admissible(
    what: str, message: Any, content: Any, session: Any, bounds: Any
) -> None:
    refused = request_refused(message, content, session, bounds)
    assert what in refused
    assert bool(what) == bool(refused)


DRAFT = Draft(0, 2, 4, 15, 2)


@pytest.mark.parametrize(
    ("what", "message", "content", "bounds"),
    [
        ("", DRAFT, Content([1, 2]), CHAIN),
        ("", DRAFT, Content([1]), CHAIN),  # as when prompt lookup finds less
        ("", replace(DRAFT, tokens=0), Content(), CHAIN),
        ("", DRAFT, Content([1] * 6, [0, 0, 1, 1, 2, 2]), TREE),
        ("", DRAFT, Content([1, 2], None, states(2, VOCABULARY), rule="rejection"), SAMPLED),
        ("longer", replace(DRAFT, tokens=5), Content([1, 2]), CHAIN),
        ("longer", replace(DRAFT, tokens=30), Content([1], [0]), TREE),
        ("number of tokens", DRAFT, Content([1, 2, 3]), CHAIN),
        ("", DRAFT, Content([1, 2]), replace(CHAIN, positions=17)),
        ("positions", DRAFT, Content([1, 2]), replace(CHAIN, positions=16)),
        ("vocabulary", DRAFT, Content([1, VOCABULARY]), CHAIN),
        ("vocabulary", DRAFT, Content([1, -1]), CHAIN),
        ("", DRAFT, Content([1, -1], [0, 0], states(1, VOCABULARY), rule="without-replacement"), SEQUOIA),
        ("vocabulary", DRAFT, Content([1, -2], [0, 0], states(1, VOCABULARY), rule="without-replacement"), SEQUOIA),
        ("nodes", DRAFT, Content([1, 2], [0, 2]), TREE),
        ("nodes", DRAFT, Content([1, 2], [0]), TREE),
        ("nodes", DRAFT, Content([1, 2, 3], [0, 1, 2]), TREE),
        ("chain", DRAFT, Content([1, 2], [0, 0]), CHAIN),
        ("hidden", DRAFT, Content([1, 2], hidden=states(2)), CHAIN),
        ("rule", DRAFT, Content([1, 2], None, states(2, VOCABULARY)), SAMPLED),
        ("rule", DRAFT, Content([1, 2], None, states(2, VOCABULARY), rule="without-replacement"), SAMPLED),
        ("greedy", DRAFT, Content([1, 2], None, states(2, VOCABULARY), rule="rejection"), CHAIN),
        ("no distributions", DRAFT, Content([1, 2]), SAMPLED),  # beside others that have them
        ("distributions", DRAFT, Content([1, 2], None, states(1, VOCABULARY), rule="rejection"), SAMPLED),
        ("", DRAFT, Content([1, 2], None, states(2, VOCABULARY - 1), rule="rejection"), SAMPLED),  # padded differently
        ("", DRAFT, Content([1, 2], None, states(2, 2 * VOCABULARY), rule="rejection"), SAMPLED),
        ("distributions", DRAFT, Content([1, 2], None, states(2, 2), rule="rejection"), SAMPLED),  # of 0 and 1 alone
        ("distributions", DRAFT, Content([1, 2], None, states(2, 2 * VOCABULARY + 1), rule="rejection"), SAMPLED),
        ("distributions", DRAFT, Content([1, 2], None, states(2, VOCABULARY, -1.0), rule="rejection"), SAMPLED),
        ("distributions", DRAFT, Content([1, 2], None, states(2, VOCABULARY, 0.0), rule="rejection"), SAMPLED),
        ("distributions", DRAFT, Content([1, 2], None, states(2, VOCABULARY, np.inf), rule="rejection"), SAMPLED),
    ],
)
def test_a_draft_is_admissible_if_a_target_could_verify_it(what: str, message: Any, content: Any, bounds: Any) -> None:
    refused = draft_refused(message, content, bounds)
    assert what in refused
    assert bool(what) == bool(refused)


def test_no_request_reaches_beyond_the_longest_text() -> None:
    fleet = toy_fleet()
    assert bounds_of(fleet).longest_text == 8 + 24 < fleet.room.longest_row


def test_a_repeated_draft_has_no_more_nodes() -> None:
    """A link may repeat it; more nodes than parents would be a path to nowhere."""
    sessions = Sessions(TREE)
    sessions.judge(OPENING, Content([1] * 9))
    for _ in range(2):
        sessions.sent(Draft(0, 2, 1, 9, 2), Content([1, 2], [0, 0]))
    assert sessions.judge(replace(LATER, epoch=2, base=11), Content([1], [4])) == ([], "path")


def test_a_session_has_one_open_request_and_repeats_change_nothing() -> None:
    sessions = Sessions(replace(CHAIN, vocabulary=VOCABULARY))
    assert sessions.judge(OPENING, Content([1] * 9)) == ([], "")
    assert sessions.judge(OPENING, Content([1] * 9)) == ([], REPEATED)
    assert sessions.judge(replace(LATER, epoch=2, base=10), Content([1])) == ([], "request before its answer")
    sessions.sent(Draft(0, 2, 1, 9, 4), Content([1] * 4))
    assert sessions.judge(replace(LATER, epoch=2, base=14), Content([1])) == ([], "")
    assert sessions.judge(replace(OPENING, request=3), Content([1] * 9)) == ([Leave(0, 2, 2)], "")
    assert sessions.judge(Leave(0, 2), NOTHING) == ([], REPEATED)
    assert sessions.judge(Leave(0, 3), NOTHING) == ([], "")
