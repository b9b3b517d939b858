"""A log at a limited rate: repeated lines are dropped for a while, and lines and memory are bounded."""

from hypothesis import given
from hypothesis import strategies as st

from specfleet.engine.net.socket_thread import BURST, LINES_PER_S, MAX_LINES, REPEAT_S, RateLimitedLog


@given(st.lists(st.tuples(st.integers(0, 500), st.floats(0, 5)), max_size=300))
def test_lines_and_memory_are_bounded_and_every_line_is_counted(events: list[tuple[int, float]]) -> None:
    logged: list[str] = []
    log, now_s = RateLimitedLog(logged.append, 0.0), 0.0
    for number in range(10):  # different lines are logged at once
        log.log(f"target {number} joins", now_s)
    assert len(logged) == 10
    for stranger, later_s in events:
        now_s += later_s
        log.log(f"refused {stranger}", now_s)
        assert len(log.logged_s) <= MAX_LINES
    assert len(logged) <= BURST + LINES_PER_S * now_s
    assert len(logged) + log.dropped == 10 + len(events)


def test_a_repeated_line_is_logged_again_later() -> None:
    logged: list[str] = []
    log = RateLimitedLog(logged.append, 0.0)
    for knock in range(round(2.5 * REPEAT_S / 0.01)):
        log.log("refused 192.0.2.9: its key is not in allowed", knock * 0.01)
    assert logged == ["refused 192.0.2.9: its key is not in allowed"] * 3
