"""The line of a run while it works: what it says, on a terminal and without one."""

import io
import math
import re
from collections import Counter
from contextlib import redirect_stderr

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from specfleet.experiments.watching.line import MINUTE_S, duration_text, line_of, living_line, parts_of, tokens_of
from specfleet.fleet.records.metrics.counters import Counters, OpenText, TargetCounters
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.workload import streams_of
from tests.helpers.stars import star

FLEET = resolve(star())
DRAFTED, ACCEPTED, COMMITTED, LOAD = 5, 3, 4, 0.7  # tokens of each round; load of the drafter


def counters_at(time_s: float, rounds: int) -> Counters:
    """Of a drafter, after so many rounds of one target, evenly spread over its time; of two sessions one waits."""
    counters = Counters(FLEET)
    counters.time_s = time_s
    counters.drafting[0] = TargetCounters(
        rounds, rounds * DRAFTED, Counter({ACCEPTED: rounds}), rounds * COMMITTED, requests={0, 1}
    )
    tags = [tag for tag in range(100) if FLEET.target_of(tag) == 0][:2]
    waits = OpenText(1, 0.0, math.nan), OpenText(1, 0.0, time_s)
    counters.stations["drafter"].texts.update(zip(tags, waits, strict=True))
    for number in range(1, rounds + 1):
        end_s, service_s = time_s * number / rounds, LOAD * time_s / rounds
        counters.recent_learned.append((end_s, COMMITTED, DRAFTED, ACCEPTED))
        counters.recent_steps.append((end_s, end_s - service_s))
    return counters


def said(counters: Counters, tokens: int = 0, width: int | None = None) -> str:
    return line_of("star", parts_of(counters, tokens), width)


def test_the_line_says_what_matters_most_first() -> None:
    now = counters_at(20.0, 200)
    whole = "star: 200 of ~300 rounds, 0:10 left, 40 tokens/s, load 70%, 1 waiting, 60% accepted, 2 sessions"
    assert said(now, 1200) == whole
    assert said(now, 1200, width=len(whole)) == whole
    assert said(now, 1200, width=len(whole) - 1) == whole.removesuffix(", 2 sessions")
    assert said(now, 1200, width=1) == "star: 200 of ~300 rounds"


def test_a_run_without_drafts_counts_tokens() -> None:
    before, alone = Counters(FLEET), Counters(FLEET)
    alone.time_s = 4.0
    alone.verifying[0].committed = 8
    alone.recent_rounds.append((3.0, 8, 0, 0))
    assert said(alone, 16) == "star: 8 of 16 tokens, 0:04 left, 2 tokens/s, 0 sessions"
    assert said(alone) == "star: 8 tokens, 2 tokens/s, 0 sessions"
    assert said(before, 16) == "star: 0 of 16 tokens, 0 tokens/s, 0 sessions"


@given(st.integers(0, 10**6))
def test_a_duration_reads_back_as_it_was(seconds: int) -> None:
    parts = [int(part) for part in duration_text(seconds).split(":")]
    assert sum(part * 60**place for place, part in enumerate(reversed(parts))) == seconds
    assert all(part < 60 for part in parts[1:])


def test_tokens_of_a_run_are_those_of_its_targets() -> None:
    fleet = resolve(star(workload={"requests": 11}))
    assert tokens_of(fleet) == sum(request.new_tokens for own in streams_of(fleet).values() for request in own)
    assert tokens_of(fleet) == sum(tokens_of(fleet, [target]) for target in range(fleet.verifiers.count))


@pytest.mark.parametrize("width", [30, 160])
def test_a_terminal_line_is_redrawn_and_removed(width: int) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=True, legacy_windows=False)
    with living_line("star", 1200, console=console) as watch:
        watch(counters_at(10.0, 100))
        watch(counters_at(20.0, 200))
    drawn = stream.getvalue()
    assert "star: starting" in drawn
    assert "star: 200 of ~300 rounds" in drawn
    assert drawn.count("\n") <= 1  # one line, drawn over
    assert all(len(part) <= width for part in re.split(r"\n|\r|\x1b\[[0-9;?]*[A-Za-z]", drawn))
    last = re.split(r"\x1b\[2K", drawn)[-1]
    assert "rounds" not in last  # erased


def test_a_log_gets_one_line_each_minute() -> None:
    now_s, stream = 0.0, io.StringIO()
    shown = living_line("star", console=Console(file=io.StringIO()), clock_s=lambda: now_s)
    with redirect_stderr(stream), shown as watch:
        said = []
        for half_second in range(1, 2 * 60 * 5 + 1):
            now_s = half_second / 2
            watch(counters_at(now_s, half_second))
            said.append(stream.getvalue().count("\n"))
        for now_s in (1000.0, 1000.5, 1001.0):  # after a pause, no line is made up for
            watch(counters_at(now_s, 5))
    assert said[2 * int(MINUTE_S) - 2] == 0
    assert said[2 * int(MINUTE_S) - 1] == 1
    assert said[-1] == 5
    assert stream.getvalue().count("\n") == 6
    assert all(line.startswith("star: ") for line in stream.getvalue().splitlines())
