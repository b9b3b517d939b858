"""A log at a limited rate: repeated lines are counted, and lines and memory are bounded."""

import re

from hypothesis import given
from hypothesis import strategies as st

from engine.net.rates import BURST, LINES_PER_S, MAX_LINES, REPEAT_S, RateLimitedLog
from tests.helpers.stars import repeatable


def counted(line: str) -> int:
    """The repeat count of a line."""
    times = re.search(r" \((\d+) times\)$", line)
    return int(times[1]) if times else 1


def test_repeated_lines_are_logged_later_with_their_number() -> None:
    logged: list[str] = []
    log = RateLimitedLog(logged.append, 0.0)
    for knock in range(10_000):
        log.log("refused 192.0.2.9: its key is not in allowed", knock * 0.01)
        log.tick(knock * 0.01)
    assert logged == [
        "refused 192.0.2.9: its key is not in allowed",
        f"refused 192.0.2.9: its key is not in allowed ({round(REPEAT_S / 0.01)} times)",
    ]
    log.tick(10_000.0)
    log.tick(20_000.0)
    assert len(logged) == 3
    assert sum(map(counted, logged)) == 10_000
    assert log.dropped == 0


def test_different_lines_are_logged_at_once() -> None:
    logged: list[str] = []
    log = RateLimitedLog(logged.append, 0.0)
    lines = [f"target {number} joins" for number in range(10)]
    for line in lines:
        log.log(line, 0.0)
    assert logged == lines


@given(st.lists(st.tuples(st.integers(0, 500), st.floats(0, 5)), max_size=300))
@repeatable
def test_lines_and_memory_are_bounded_and_every_line_is_counted(
    events: list[tuple[int, float]],
) -> None:
    logged: list[str] = []
    log, now_s, happened = RateLimitedLog(logged.append, 0.0), 0.0, 0
    for stranger, later_s in events:
        now_s += later_s
        happened += 1
        log.log(f"refused {stranger}", now_s)
        log.tick(now_s)
        assert len(log.logged) <= MAX_LINES
    pending = sum(one.repeats for one in log.logged.values())
    assert len(logged) <= BURST + LINES_PER_S * now_s
    assert sum(map(counted, logged)) + pending + log.dropped == happened
