"""The line that lives while a run works: what it says, on a terminal and where there is none."""

import io
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from experiments.watching.line import MINUTE_S, duration_text, line_of, living_line, parts_of, tokens_of
from fleet.records.counts import Counts, OfStation, OfTarget
from fleet.records.rates import Lately, paces_between, rates_between
from fleet.records.tally import Tally
from fleet.scenario.settle import settle
from fleet.scenario.workload import streams_of
from sim.run import simulate
from tests.helpers.logs import log_of_run
from tests.helpers.stars import repeatable, star

WIDE = {"width": 160, "force_terminal": True, "legacy_windows": False}


def counts_at(time_s: float, rounds: int, busy_s: float = 0.0) -> Counts:
    """Counts of a target whose rounds draft 5 tokens and accept 3."""
    target = OfTarget(0, 1, 0, rounds, rounds, 5 * rounds, (0, 0, 0, rounds), 4 * rounds)
    drafter = OfStation("drafter", busy_s, {"draft": (rounds, busy_s)}, sessions=1, waiting=2)
    return Counts(time_s, (drafter,), (target,))


def said(before: Counts, now: Counts, tokens: int = 0, width: int | None = None) -> str:
    return line_of("star", parts_of(now, rates_between(before, now), tokens), width)


def test_the_line_says_rounds_of_how_many_the_time_left_pace_load_who_waits_and_acceptance() -> None:
    before, now = counts_at(10.0, 100, 2.0), counts_at(20.0, 200, 9.0)
    whole = "star: 200 of ~300 rounds, 0:10 left, 40 tokens/s, load 70%, 2 waiting, 60% accepted, 1 session"
    assert said(before, now, 1200) == whole
    assert said(before, now, 1200, width=len(whole)) == whole
    assert said(before, now, 1200, width=len(whole) - 1) == whole.removesuffix(", 1 session")
    assert said(before, now, 1200, width=1) == "star: 200 of ~300 rounds"


def test_a_run_without_drafts_tells_tokens_and_one_without_an_end_no_time_left() -> None:
    before, alone = Counts(0.0), Counts(4.0, (), (), (OfTarget(0, 1, committed=8),))
    assert said(before, alone, 16) == "star: 8 of 16 tokens, 0:04 left, 2 tokens/s, 1 session"
    assert said(before, alone) == "star: 8 tokens, 2 tokens/s, 1 session"
    assert said(before, before, 16) == "star: 0 of 16 tokens, 0 tokens/s, 0 sessions"


@given(st.integers(0, 10**6))
@repeatable
def test_a_duration_reads_back_as_it_was(seconds: int) -> None:
    parts = [int(part) for part in duration_text(seconds).split(":")]
    assert sum(part * 60**place for place, part in enumerate(reversed(parts))) == seconds
    assert all(part < 60 for part in parts[1:])


def test_tokens_of_a_run_are_those_of_its_targets() -> None:
    fleet = settle(star(workload={"requests": 11}))
    assert tokens_of(fleet) == sum(request.new_tokens for own in streams_of(fleet).values() for request in own)
    assert tokens_of(fleet) == sum(tokens_of(fleet, [target]) for target in range(fleet.verifiers.count))


def test_on_a_terminal_one_line_is_drawn_again_and_gone_at_the_end() -> None:
    stream = io.StringIO()
    console = Console(file=stream, **WIDE)  # type: ignore[arg-type]
    with living_line("star", 1200, console=console) as watch:
        watch(counts_at(10.0, 100, 2.0))
        watch(counts_at(20.0, 200, 9.0))
    drawn = stream.getvalue()
    assert "star: starting" in drawn
    assert "star: 200 of ~300 rounds" in drawn
    assert drawn.count("\n") <= 1  # one line, drawn over
    last = re.split(r"\x1b\[2K", drawn)[-1]
    assert "rounds" not in last  # erased


def test_a_narrow_terminal_has_one_line_all_the_same() -> None:
    stream = io.StringIO()
    with living_line("star", 1200, console=Console(file=stream, **WIDE | {"width": 30})) as watch:  # type: ignore[arg-type]
        watch(counts_at(20.0, 200, 9.0))
    assert all(
        len(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", part)) <= 30 for part in re.split(r"[\r\n]", stream.getvalue())
    )


def test_without_a_terminal_a_line_a_minute_is_written_and_none_for_what_is_shorter() -> None:
    now_s, stream = 0.0, io.StringIO()
    with living_line("star", console=Console(file=io.StringIO()), stream=stream, clock_s=lambda: now_s) as watch:
        said = []
        for half_second in range(1, 2 * 60 * 5 + 1):
            now_s = half_second / 2
            watch(counts_at(now_s, half_second))
            said.append(stream.getvalue().count("\n"))
    assert said[2 * int(MINUTE_S) - 2] == 0
    assert said[2 * int(MINUTE_S) - 1] == 1
    assert said[-1] == 5
    assert all(line.startswith("star: ") for line in stream.getvalue().splitlines())


def test_after_a_pause_no_line_is_made_up_for() -> None:
    now_s, stream = 0.0, io.StringIO()
    with living_line("star", console=Console(file=io.StringIO()), stream=stream, clock_s=lambda: now_s) as watch:
        for now_s in (1000.0, 1000.5, 1001.0):
            watch(counts_at(now_s, 5))
    assert stream.getvalue().count("\n") == 1


# --- rates ---


def test_rates_are_differences_over_the_last_seconds_and_add_up_to_the_whole() -> None:
    scenario = star()
    fleet, log = settle(scenario), log_of_run(simulate(scenario))
    tally, lately, pieces = Tally(fleet), Lately(window_s=0.0), []
    before_s = 0.0
    while True:
        more = tally.take(log, 40)
        time_s = float(log[26 * (tally.place - 1)])
        lately.add(tally.counts(time_s))
        rates = lately.rates()
        pieces.append((time_s - before_s, rates))
        before_s = time_s
        if not more:
            break
    committed = sum(seconds * rates.all.tokens_per_s for seconds, rates in pieces)
    assert committed == pytest.approx(tally.counts(before_s).committed)
    for seconds, rates in pieces:
        assert rates.seconds == pytest.approx(seconds) or seconds == 0
    begin, end = Counts(0.0), tally.counts(before_s)
    paces = paces_between(begin, end).values()
    assert sum(pace.tokens_per_s for pace in paces) == pytest.approx(rates_between(begin, end).all.tokens_per_s)


def test_the_window_is_as_long_as_it_says_once_there_is_so_much() -> None:
    lately = Lately(window_s=10.0)
    seconds = []
    for half in range(1, 60):
        lately.add(counts_at(half / 2, half))
        seconds.append(lately.rates().seconds)
    assert seconds[:20] == [half / 2 for half in range(1, 21)]
    assert set(seconds[20:]) == {10.0}
    assert len(lately.kept) <= 22


def test_what_did_not_happen_has_no_rate() -> None:
    rates = rates_between(Counts(0.0), Counts(5.0, (), (OfTarget(0),)))
    assert rates.all.tokens_per_s == 0.0
    assert math.isnan(rates.all.acceptance)
    assert math.isnan(rates.load)
    assert math.isnan(rates.draft_s)
