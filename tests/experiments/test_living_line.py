"""The line of a run while it works: what it says, on a terminal and without one."""

import io
import re
import time
from contextlib import redirect_stderr

import pytest
from rich.console import Console

from specfleet.experiments.console import printing
from specfleet.experiments.watching import MINUTE_S, line_of, living_line, parts_of, tokens_of
from specfleet.fleet.records.progress import Progress
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.workload import streams_of
from tests.helpers.stars import star

DRAFTED, ACCEPTED, COMMITTED, LOAD = 5, 3, 4, 0.7  # tokens of each round; load of the drafter


def progress_at(time_s: float, rounds: int) -> Progress:
    """After so many rounds of one target, evenly spread over its time; of two sessions one waits."""
    progress = Progress()
    progress.time_s, progress.rounds, progress.tokens = time_s, rounds, rounds * COMMITTED
    progress.goals = {("verifier.1", 0): 99, ("verifier.2", 1): 99}
    progress.drafters, progress.waiting = {"drafter"}, {("drafter", 1)}
    for number in range(1, rounds + 1):
        end_s, service_s = time_s * number / rounds, LOAD * time_s / rounds
        progress.commits.append((end_s, COMMITTED, DRAFTED, ACCEPTED))
        progress.steps.append((end_s, end_s - service_s))
    return progress


def said(progress: Progress, tokens: int = 0, width: int | None = None) -> str:
    return line_of("star", parts_of(progress, tokens), width)


def test_the_line_says_what_matters_most_first() -> None:
    now = progress_at(20.0, 200)
    whole = "star: 200 of ~300 rounds, 10 s left, 40 tokens/s, load 70%, 1 waiting, 60% accepted, 2 sessions"
    assert said(now, 1200) == whole
    assert said(now, 1200, width=len(whole)) == whole
    assert said(now, 1200, width=len(whole) - 1) == whole.removesuffix(", 2 sessions")
    assert said(now, 1200, width=1) == "star: 200 of ~300 rounds"


def test_a_run_without_drafts_counts_tokens() -> None:
    before, alone = Progress(), Progress()
    alone.time_s, alone.tokens = 4.0, 8
    alone.commits.append((3.0, 8, 0, 0))
    assert said(alone, 16) == "star: 8 of 16 tokens, 4 s left, 2 tokens/s, 0 sessions"
    assert said(alone) == "star: 8 tokens, 2 tokens/s, 0 sessions"
    assert said(before, 16) == "star: 0 of 16 tokens, 0 tokens/s, 0 sessions"


def test_a_drafter_alone_counts_drafts() -> None:
    drafter = Progress()
    drafter.time_s, drafter.drafts, drafter.drafters = 10.0, 7, {"drafter"}
    drafter.steps.append((9.0, 4.0))
    drafter.sessions = {("drafter", 3)}
    assert said(drafter) == "star: 7 drafts, load 50%, 0 waiting, 1 session"


def test_tokens_of_a_run_are_those_of_its_targets() -> None:
    fleet = resolve(star(workload={"requests": 11}))
    assert tokens_of(fleet) == sum(request.new_tokens for own in streams_of(fleet).values() for request in own)
    assert tokens_of(fleet) == sum(tokens_of(fleet, [target]) for target in range(fleet.verifiers.count))


@pytest.mark.parametrize("width", [30, 160])
def test_a_terminal_line_is_redrawn_and_removed(width: int) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=True, legacy_windows=False)
    with living_line("star", 1200, console=console) as watch:
        watch(progress_at(10.0, 100))
        watch(progress_at(20.0, 200))
    drawn = stream.getvalue()
    assert "star: starting" in drawn
    assert "star: 200 of ~300 rounds" in drawn
    assert drawn.count("\n") <= 1  # one line, drawn over
    assert all(len(part) <= width for part in re.split(r"\n|\r|\x1b\[[0-9;?]*[A-Za-z]", drawn))
    last = re.split(r"\x1b\[2K", drawn)[-1]
    assert "rounds" not in last  # erased


def test_progress_counts_what_was_not_foreseen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(printing, "LINE_S", 0.0)
    with printing.progress("calibration", 1) as advance:
        advance("links")
        advance("links again")
    assert [line.split(",")[1] for line in capsys.readouterr().err.splitlines()] == [" 1 of 1: links", " 2 of 2"]


def test_what_was_there_before_prints_no_line_and_takes_no_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock_s = iter([0.0, 0.1, 0.1, 10.0, 20.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock_s))
    with printing.progress("sweep", 5) as advance:
        for what in ("", "", "N=3", "N=4"):
            advance(what)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["sweep, 3 of 5: N=3", "sweep, 4 of 5, about 40 s left: N=4"]


def test_a_log_gets_one_line_each_minute() -> None:
    now_s, stream = 0.0, io.StringIO()
    shown = living_line("star", console=Console(file=io.StringIO()), clock_s=lambda: now_s)
    with redirect_stderr(stream), shown as watch:
        said = []
        for half_second in range(1, 2 * 60 * 5 + 1):
            now_s = half_second / 2
            watch(progress_at(now_s, half_second))
            said.append(stream.getvalue().count("\n"))
        for now_s in (1000.0, 1000.5, 1001.0):  # after a pause, no line is made up for
            watch(progress_at(now_s, 5))
    assert said[2 * int(MINUTE_S) - 2] == 0
    assert said[2 * int(MINUTE_S) - 1] == 1
    assert said[-1] == 5
    assert stream.getvalue().count("\n") == 6
    assert all(line.startswith("star: ") for line in stream.getvalue().splitlines())
