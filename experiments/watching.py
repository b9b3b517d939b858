"""Progress of a run as one line that is redrawn; without a terminal, a line a minute on standard error."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from specfleet.experiments.console.printing import minutes, remark
from specfleet.fleet.records.progress import Progress
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import streams_of

MINUTE_S = 60.0


def tokens_of(fleet: Fleet, targets: Sequence[int] | None = None) -> int:
    """Return how many tokens all requests of a fleet, or of some of its targets, ask for."""
    streams = streams_of(fleet)
    tags = [tag for tag in streams if targets is None or fleet.target_of(tag) in targets]
    return sum(request.new_tokens for tag in tags for request in streams[tag])


def parts_of(progress: Progress, tokens: int = 0) -> list[str]:
    """Return a run's progress, time left and speed, the most important part first.

    `tokens`: that it is to make; 0 for no end. Texts may end early, so the number of all rounds and the time left are
    estimates. A drafter alone knows its drafts.
    """
    per_s, acceptance, load = progress.recent()
    rounds, committed = progress.rounds, progress.tokens
    if rounds:
        whole = f" of ~{round(rounds * tokens / committed)}" if tokens and committed else ""
        parts = [f"{rounds}{whole} rounds"]
    elif progress.drafts:
        parts = [f"{progress.drafts} drafts"]
    else:
        parts = [f"{committed}{f' of {tokens}' if tokens else ''} tokens"]
    if tokens and per_s > 0:
        parts.append(f"{minutes(max(tokens - committed, 0) / per_s)} left")
    if rounds or not progress.drafts:
        parts.append(f"{per_s:.0f} tokens/s")
    if not math.isnan(load):
        parts += [f"load {load:.0%}", f"{len(progress.waiting)} waiting"]
    if not math.isnan(acceptance):
        parts.append(f"{acceptance:.0%} accepted")
    sessions = len(progress.goals if committed else progress.sessions)
    return [*parts, f"{sessions} session{'s' * (sessions != 1)}"]


def line_of(title: str, parts: Sequence[str], width: int | None = None) -> str:
    """Return a line of as many whole parts as fit into `width` columns, and of one at least."""
    line = f"{title}: {parts[0]}"
    for part in parts[1:]:
        if width is not None and len(line) + 2 + len(part) > width:
            break
        line += f", {part}"
    return line


@contextmanager
def living_line(
    title: str, tokens: int = 0, console: Console | None = None, clock_s: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[Progress], None]]:
    """Show a run's progress until the block ends; yield the function that takes its progress.

    `tokens`: as for `parts_of`. Other output to standard error meanwhile stands above the line.
    """
    screen = Console(stderr=True) if console is None else console
    due_s = clock_s() + MINUTE_S

    def show_minutely(progress: Progress) -> None:
        nonlocal due_s
        if clock_s() >= due_s:
            due_s += MINUTE_S * max(1, math.ceil((clock_s() - due_s) / MINUTE_S))
            remark(line_of(title, parts_of(progress, tokens)))

    if not screen.is_terminal:
        yield show_minutely
        return

    def drawn(*parts: str) -> Text:
        return Text(line_of(title, parts, screen.width), no_wrap=True, overflow="ellipsis")

    with Live(drawn("starting"), console=screen, transient=True, auto_refresh=False, redirect_stdout=False) as live:
        yield lambda progress: live.update(drawn(*parts_of(progress, tokens)), refresh=True)
