"""What a run is doing, as one line that lives on a terminal; a line a minute on standard error where there is none."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from fleet.records.counts import Counts
from fleet.records.rates import Lately, Rates
from fleet.scenario.settled import Fleet
from fleet.scenario.workload import streams_of

MINUTE_S = 60.0


def tokens_of(fleet: Fleet, targets: Sequence[int] | None = None) -> int:
    """Return how many tokens all requests of a fleet, or of some of its targets, ask for."""
    streams = streams_of(fleet)
    own = [tag for tag in streams if targets is None or fleet.target_of(tag) in targets]
    return sum(request.new_tokens for tag in own for request in streams[tag])


def parts_of(counts: Counts, rates: Rates, tokens: int = 0) -> list[str]:
    """Say what a run has done, how long it will take, and how fast it goes: what matters most first.

    `tokens`: that it is to make; 0 for no end. Texts may end before they are as long as was asked for, so the number of
    all rounds and the time left are estimates.
    """
    rounds, committed = sum(one.rounds for one in counts.known), counts.committed
    if rounds:
        whole = f" of ~{round(rounds * tokens / committed)}" if tokens and committed else ""
        parts = [f"{rounds}{whole} rounds"]
    else:
        parts = [f"{committed}{f' of {tokens}' if tokens else ''} tokens"]
    if tokens and rates.all.tokens_per_s > 0:
        parts.append(f"{duration_text(max(tokens - committed, 0) / rates.all.tokens_per_s)} left")
    parts.append(f"{rates.all.tokens_per_s:.0f} tokens/s")
    if not math.isnan(rates.load):
        parts.append(f"load {rates.load:.0%}")
    if counts.drafters:
        parts.append(f"{sum(one.waiting for one in counts.drafters)} waiting")
    if not math.isnan(rates.all.acceptance):
        parts.append(f"{rates.all.acceptance:.0%} accepted")
    sessions = sum(one.sessions for one in counts.known)
    return [*parts, f"{sessions} session{'s' * (sessions != 1)}"]


def line_of(title: str, parts: Sequence[str], width: int | None = None) -> str:
    """Return a line of as many whole parts as fit into `width` columns, and of one at least."""
    line = f"{title}: {parts[0]}"
    for part in parts[1:]:
        if width is not None and len(line) + 2 + len(part) > width:
            break
        line += f", {part}"
    return line


def duration_text(seconds: float) -> str:
    """Return a duration as 0:07, 12:30 or 3:05:00."""
    minutes, left = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


@contextmanager
def living_line(
    title: str,
    tokens: int = 0,
    console: Console | None = None,
    stream: TextIO | None = None,
    clock_s: Callable[[], float] = time.monotonic,
) -> Iterator[Callable[[Counts], None]]:
    """Show what a run is doing, until the block ends; the yielded function takes its counts, from any thread.

    `tokens`: as for `parts_of`. What else is written to standard error meanwhile stands above the line.
    """
    lately = Lately()
    screen = Console(stderr=True) if console is None else console
    if not screen.is_terminal:
        yield _minutely(title, tokens, lately, stream, clock_s)
        return

    def drawn(*parts: str) -> Text:
        return Text(line_of(title, parts, screen.width), no_wrap=True, overflow="ellipsis")

    with Live(drawn("starting"), console=screen, transient=True, auto_refresh=False, redirect_stdout=False) as live:

        def show(counts: Counts) -> None:
            lately.add(counts)
            live.update(drawn(*parts_of(counts, lately.rates(), tokens)), refresh=True)

        yield show


def _minutely(
    title: str, tokens: int, lately: Lately, stream: TextIO | None, clock_s: Callable[[], float]
) -> Callable[[Counts], None]:
    """Return what writes a line a minute."""
    due_s = clock_s() + MINUTE_S

    def show(counts: Counts) -> None:
        nonlocal due_s
        lately.add(counts)
        if clock_s() >= due_s:
            due_s += MINUTE_S * max(1, math.ceil((clock_s() - due_s) / MINUTE_S))
            print(line_of(title, parts_of(counts, lately.rates(), tokens)), file=stream or sys.stderr, flush=True)

    return show
