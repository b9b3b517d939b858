"""Laws of one decoding stream's state."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.fleet.stations.session import Session, advance, commit, extend

FRESH = Session(tag=0, request=0, epoch=1, base=11, goal=60)


@st.composite
def rounds(draw: st.DrawFn) -> tuple[Session, int, int]:
    """A session with a tail, how much of the tail is verified, and how much of that is accepted."""
    base = draw(st.integers(1, 50))
    goal = base + draw(st.integers(1, 20))
    tail = draw(st.integers(0, 8))
    verified = draw(st.integers(0, tail))
    accepted = draw(st.integers(0, verified))
    return Session(0, 0, draw(st.integers(0, 9)), base, goal, tail), verified, accepted


@given(rounds())
def test_commits_stop_at_the_goal_and_end_the_epoch(example: tuple[Session, int, int]) -> None:
    session, verified, accepted = example
    committed = commit(session, verified, accepted)
    assert committed.base == min(session.base + accepted + 1, session.goal)
    assert session.base < committed.base <= session.goal
    assert committed.epoch == session.epoch + 1
    assert committed.tail == 0
    assert committed.finished == (committed.base == committed.goal)


@pytest.mark.parametrize(("verified", "accepted"), [(5, 6), (6, 5), (3, 4), (5, -1)])
def test_more_cannot_be_accepted_than_verified_nor_verified_than_drafted(verified: int, accepted: int) -> None:
    with pytest.raises(ValueError, match="session 0"):
        commit(msgspec.structs.replace(FRESH, tail=5), verified, accepted)


@given(rounds(), st.integers(0, 9), st.integers(1, 60), st.integers(1, 8))
def test_a_draft_extends_the_tail_only_where_it_continues_it(
    example: tuple[Session, int, int], epoch: int, base: int, tokens: int
) -> None:
    session = example[0]
    extended = extend(session, epoch, base, tokens)
    if (epoch, base) == (session.epoch, session.base + session.tail):
        assert extended == msgspec.structs.replace(session, tail=session.tail + tokens)
    else:
        assert isinstance(extended, str)


@given(rounds(), st.integers(0, 12), st.integers(1, 80))
def test_the_drafter_follows_only_forward(example: tuple[Session, int, int], epoch: int, base: int) -> None:
    session = example[0]
    moved = advance(session, epoch, base)
    if epoch > session.epoch and base > session.base:
        behind = int(session.tail > 0 and base == session.base + session.tail + 1)  # all of its draft was accepted
        assert moved == msgspec.structs.replace(session, epoch=epoch, base=base, tail=0, behind=behind)
    else:
        assert isinstance(moved, str)


@given(rounds())
def test_the_drafter_follows_every_outcome_of_its_verifier(example: tuple[Session, int, int]) -> None:
    session, verified, accepted = example
    committed = commit(session, verified, accepted)
    followed = advance(session, committed.epoch, committed.base)
    assert isinstance(followed, Session)
    assert msgspec.structs.replace(followed, behind=0) == committed
