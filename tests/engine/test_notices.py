"""What is said of who comes and goes: once, then with its number; whatever strangers do, in few lines."""

import re

from hypothesis import given
from hypothesis import strategies as st

from engine.net.notices import AGAIN_S, DIFFERENT, LINES, LINES_PER_S, Notices
from tests.helpers.stars import repeatable


def counted(line: str) -> int:
    """For how many a line stands."""
    times = re.search(r" \((\d+) times\)$", line)
    return int(times[1]) if times else 1


def test_what_happens_again_is_said_after_a_while_with_its_number() -> None:
    said: list[str] = []
    notices = Notices(said.append, 0.0)
    for knock in range(10_000):
        notices.take("refused 192.0.2.9: its key is not in allowed", knock * 0.01)
        notices.tick(knock * 0.01)
    assert said == [
        "refused 192.0.2.9: its key is not in allowed",
        f"refused 192.0.2.9: its key is not in allowed ({round(AGAIN_S / 0.01)} times)",
    ]
    notices.tick(10_000.0)
    notices.tick(20_000.0)
    assert len(said) == 3
    assert sum(map(counted, said)) == 10_000
    assert notices.unsaid == 0


def test_different_lines_are_said_at_once() -> None:
    said: list[str] = []
    notices = Notices(said.append, 0.0)
    lines = [f"target {number} joins" for number in range(10)]
    for line in lines:
        notices.take(line, 0.0)
    assert said == lines


@given(st.lists(st.tuples(st.integers(0, 500), st.floats(0, 5), st.integers(1, 50)), max_size=300))
@repeatable
def test_whatever_happens_lines_and_memory_are_bounded_and_every_time_is_counted_once(
    events: list[tuple[int, float, int]],
) -> None:
    said: list[str] = []
    notices, now_s, happened = Notices(said.append, 0.0), 0.0, 0
    for stranger, later_s, times in events:
        now_s += later_s
        happened += times
        notices.take(f"refused {stranger}", now_s, times)
        notices.tick(now_s)
        assert len(notices.said) <= DIFFERENT
    pending = sum(one.again for one in notices.said.values())
    assert len(said) <= LINES + LINES_PER_S * now_s
    assert sum(map(counted, said)) + pending + notices.unsaid == happened
