"""Terminal output: results on standard output, progress and warnings on standard error.

Texts may hold names of users: they are shown as `printable` writes them, so that no name commands the terminal.
rich draws tables and bars. It is imported with the first one, so that other commands start quickly.
"""

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from specfleet.fleet.interrupts import Interrupted
from specfleet.fleet.shown import ends, number, printable, with_ends

if TYPE_CHECKING:
    from rich.console import Console

    from specfleet.experiments.compare.compare import Comparison, PredictionError
    from specfleet.fleet.records.metrics.window import Metric  # it needs pandas, which takes a while to import

LINE_S, SHARE, RARELY_S = 2.0, 0.2, 60.0  # time between two lines of progress without a terminal: least, and most
PIPED_WIDTH = 140  # columns of a table that no terminal limits
MEANT = {
    "mechanism": "the error that stays where the simulation takes the run's own step times and acceptance",
    "host": "how far the run and its reruns are apart",
}
UNSTEADY = ", unsteady host"  # where the differences of reruns hide a prediction's error


def say(text: str) -> None:
    """Print lines on standard output."""
    print(printable(text))


def remark(text: str) -> None:
    """Print one line on standard error."""
    print(printable(text), file=sys.stderr)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes on a result on standard error, a line each."""
    for note in notes:
        remark(f"note: {note}")


@contextmanager
def busy(text: str) -> Iterator[None]:
    """Show a progress bar of unknown length on standard error."""
    screen = _screen()
    with screen.status(printable(text)) if screen.is_terminal else nullcontext():
        yield


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[str], None]]:
    """Show a progress bar on standard error, or a line now and then where that is no terminal.

    The yielded function advances it by one and says what comes next.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    what_it_is = TextColumn("{task.description}", markup=False)
    columns = (what_it_is, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    screen = _screen()
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(title, total=total)
        begun_s, printed_s, done, at_once, said = time.monotonic(), -LINE_S, 0, 0, ""

        def advance(what: str) -> None:
            nonlocal printed_s, done, total, at_once, said
            passed_s, done, said = time.monotonic() - begun_s, done + 1, what
            at_once += not what and at_once == done - 1  # was there before, and took no time
            total, past = total and max(total, done), done - 1 - at_once  # what is measured again was not foreseen
            left = f", about {minutes(passed_s * (total - done + 1) / past)} left" if total and past > 0 else ""
            bar.update(task, advance=1, total=total, description=printable(f"{title}{left}{': ' * bool(what)}{what}"))
            if not screen.is_terminal and what and passed_s - printed_s >= min(max(LINE_S, passed_s * SHARE), RARELY_S):
                printed_s = passed_s
                remark(f"{title}, {f'{done} of {total}' if total else f'{done} done'}{left}: {what}")

        try:
            yield advance
        except Interrupted as stop:
            stop.kept = "" if total else said
            raise


def minutes(time_s: float) -> str:
    """Say a time in seconds, or in minutes where it is long."""
    return f"{time_s / 60:.0f} min" if time_s >= 90 else f"{max(time_s, 1):.0f} s"


def _screen() -> "Console":
    from rich.console import Console

    return Console(stderr=True)


def print_json(value: Any) -> None:
    """Print one JSON object."""
    import msgspec

    text = msgspec.json.encode(with_ends(value)).decode()
    print(text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text))


def print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> None:
    """Print a table on standard output; its first `texts` columns are words, the others numbers."""
    from rich.console import Console
    from rich.table import Table

    grid = Table(title=printable(title), title_justify="left")
    for column, heading in enumerate(headings):
        grid.add_column(printable(heading), justify="left" if column < texts else "right", overflow="fold")
    for row in rows:
        grid.add_row(*map(printable, row))
    # Cells are plain text: "[r]" is a term of a fit, not a style.
    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, markup=False, emoji=False)
    with console.capture() as drawn:
        console.print(grid)
    print(drawn.get(), end="")  # rich handles a closed pipe in a way of its own


def print_values(title: str, headings: Sequence[str], rows: Iterable[Sequence[Any]], texts: int = 1) -> None:
    """Print a table of values of any kind; a dash where there is none."""
    cells = [["-" if value is None else value_text(value) for value in row] for row in rows]
    print_table(title, headings, cells, texts)


def value_text(value: Any) -> str:
    """A value of any kind on one line."""
    return number(value) if isinstance(value, float) else str(value)


def interval(metric: "Metric") -> str:
    """The 95 % interval, wide ones with a hint; for too short a run what it would need; a dash for one of no width."""
    if math.isinf(metric.times_longer):
        return "no steady state"
    if metric.drifting:
        return "still changing"
    if metric.times_longer > 1:
        return f"rough: an interval needs {math.ceil(10 * metric.times_longer) / 10:g} times as many requests"
    low, high = number(metric.low), number(metric.high)
    if metric.low == 0 < metric.value and metric.unit.endswith("/s"):  # clipped: only the upper end says something
        return f"up to {high}; needs more requests"
    return "-" if low == high else f"{low} .. {high}{'; needs more requests' * (metric.high > 2 * metric.low > 0)}"


def case_text(case: Mapping[str, Any]) -> str:
    """Return a case's keys and values on one line."""
    return ", ".join(f"{key}={value_label(value)}" for key, value in case.items())


def value_label(value: Any) -> str:
    """Return a key's value in few words: a rule by its name and its numbers, such as "halve, most 6"."""
    names = ("policy", "model", "kind", "process")
    parts = value.items() if isinstance(value, dict) else ()
    text = ", ".join(f"{key} " * (key not in names) + value_label(part) for key, part in parts) or str(value)
    return text.lower() if isinstance(value, bool) else text


def print_comparison(title: str, comparison: "Comparison") -> None:
    """Print the verdict, the runs' differences, then a comparison's rows and its mean absolute errors.

    Where the runs were rerun or played back, the three errors stand side by side.
    """
    apart = (f"not shared: {line}" for line in comparison.differences)
    for line in filter(None, (comparison.verdict, *apart, *comparison.notes)):
        say(line)
    rows, cases = comparison.rows, [case_text(row.case) for row in comparison.rows]
    several, twice = len(set(cases)) > 1, any(row.parameters and len(row.parameters.values) == 2 for row in rows)
    columns = {
        "quantity": [row.quantity for row in rows],
        "case": cases if several else [],
        "sim": [number(row.sim) for row in rows],
        "engine": [number(row.engine) for row in rows],
        f"error{' of either run' * twice}": [
            "-" if math.isnan(row.error) else _percent(row.error, row.parameters) for row in rows
        ],
        "mechanism": [_percent(row.mechanism.value, row.mechanism) if row.mechanism else "" for row in rows],
        "host": ["" if row.host is None else f"{row.host.value:.1%}{'' if row.steady else UNSTEADY}" for row in rows],
    }
    filled = {heading: cells for heading, cells in columns.items() if any(cells)}
    title = f"{title}, {cases[0]}" if len(set(cases)) == 1 else title
    print_table(title, list(filled), list(zip(*filled.values(), strict=True)), texts=1 + several)
    for heading in filter(filled.get, MEANT):
        say(f"{heading}: {MEANT[heading]}")
    if several:
        print("mean absolute error: " + ", ".join(f"{name} {value:.1%}" for name, value in comparison.mape.items()))


def _percent(value: float, error: "PredictionError | None") -> str:
    """Return an error in per cent, with half of its interval where it has one; of two runs the error of each."""
    if error is not None and len(error.values) == 2:
        return ", ".join(f"{off:+.1%}" for off in error.values)
    low, high = (math.nan, math.nan) if error is None else ends(error.value, error.low, error.high)
    half = (high - low) / 2
    return f"{value:+.1%}" + ("" if math.isnan(half) else f" +- {half:.1%}" if half <= 1 else " +- over 100%")
