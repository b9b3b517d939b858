"""What people see in a terminal: results on standard output, progress and remarks on standard error."""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from fleet.records.window import Metric  # it needs pandas, which takes a while to import

screen = Console(stderr=True)


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[str], None]]:
    """Show a progress bar on standard error; the yielded function advances it by one and says what comes next."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task(title, total=total)

        def advance(what: str) -> None:
            bar.update(task, description=f"{title}: {what}" if what else title)
            bar.advance(task)

        yield advance


def print_json(value: Any) -> None:
    """Print one JSON object."""
    print(msgspec.json.encode(value).decode())


def print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on standard output."""
    grid = Table(title=title, title_justify="left")
    for number, heading in enumerate(headings):
        grid.add_column(heading, justify="left" if number == 0 else "right")
    for row in rows:
        grid.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 140).print(grid)


def number(value: float) -> str:
    """Four significant digits; what only rounding left of a zero is a zero."""
    return f"{0.0 if abs(value) < 1e-12 else value:.4g}"


def interval(metric: "Metric") -> str:
    """The 95 % interval, or a dash where a quantity has none."""
    return "-" if math.isnan(metric.low) else f"{number(metric.low)} .. {number(metric.high)}"


def print_comparison(title: str, comparison: Any) -> None:
    """Print a comparison's rows and its mean absolute errors."""
    rows = [
        (
            row.quantity,
            ", ".join(f"{key}={value}" for key, value in row.case.items()),
            number(row.sim),
            number(row.engine),
            f"{row.error:+.1%}",
        )
        for row in comparison.rows
    ]
    print_table(title, ("quantity", "case", "sim", "engine", "error"), rows)
    print("mean absolute error: " + ", ".join(f"{name} {value:.1%}" for name, value in comparison.mape.items()))


def flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the leaves of nested content as (dotted name, text)."""
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", number(value) if isinstance(value, float) else str(value)
