"""One harness for all studies: cases run to rows, rows become tables, aims are met or missed.

A study is a module of this folder with `add_options(parser)` and `study(options)`, which returns a `Report`.
The harness needs no package beside the standard library: `laws` runs on machines that have torch and little else.
"""

import argparse
import importlib
import json
import math
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.console.exits import keeping
from fleet.files import check_folder, write_file

Row = dict[str, Any]
"""One row of a table: values by column. The unit of a column is part of its name; "%" stands for hundredths."""


@dataclass(frozen=True)
class Case:
    """A named piece of work that returns one row."""

    name: str
    work: Callable[[], Row]


@dataclass(frozen=True)
class Aim:
    """An upper bound for a measured value.

    Keys:
        name: What is bounded, with its unit.
        value: The measured value.
        most: The bound.
        low: Lower end of the value's 95 % interval, if it has one.
        high: Upper end of that interval.
    """

    name: str
    value: float
    most: float
    low: float = math.nan
    high: float = math.nan

    @property
    def verdict(self) -> str:
        """Return "met", "missed", or "open" where the interval holds the bound; a value of NaN is "missed"."""
        low, high = (self.value, self.value) if math.isnan(self.low) else (self.low, self.high)
        if high <= self.most:
            return "met"
        return "open" if low <= self.most else "missed"


@dataclass(frozen=True)
class Report:
    """What a study found: tables by title, and aims."""

    tables: Mapping[str, Sequence[Row]]
    aims: Sequence[Aim] = field(default=())


def main(name: str, arguments: Sequence[str]) -> int:
    """Run a study by its command line; print its tables and aims and write them as JSON.

    Returns the exit status: 1 where an aim is missed.
    """
    module = importlib.import_module(f"bench.{name}")
    parser = argparse.ArgumentParser(prog=f"python -m bench {name}", description=module.__doc__)
    parser.add_argument("-o", "--out", type=Path, default=Path("runs") / name, help="folder of the results")
    module.add_options(parser)
    options = parser.parse_args(arguments)
    check_folder(options.out)
    with keeping(options.out):
        report = module.study(options)
        for title, rows in report.tables.items():
            print_table(title, rows)
        aims = [
            {"aim": aim.name, "value": aim.value, "at most": aim.most, "verdict": aim.verdict} for aim in report.aims
        ]
        print_table("aims", aims)
        content = {
            "study": name,
            "host": platform.processor() or platform.machine(),
            "python": platform.python_version(),
        }
        written = json.dumps(finite(content | {"tables": report.tables, "aims": aims}), indent=1, default=str)
        write_file(options.out / f"{name}.json", written + "\n")
    return int(any(aim.verdict == "missed" for aim in report.aims))


def run(cases: Iterable[Case], repetitions: int = 1, cold: int = 0) -> dict[str, list[Row]]:
    """Run every case once before any case a second time, so that a slow moment of the host falls on all of them.

    Args:
        cases: What to run; names are unique.
        repetitions: Runs of each case that count.
        cold: Runs of each case before, which do not count.

    Returns:
        The rows by the case's name.
    """
    listed = list(cases)
    rows: dict[str, list[Row]] = {case.name: [] for case in listed}
    for number in range(-cold, repetitions):
        for place, case in enumerate(listed, start=1):
            say(f"{case.name} ({place} of {len(listed)}, run {number + 1} of {repetitions})")
            row = case.work()
            if number >= 0:
                rows[case.name].append(row)
    return rows


def first_rows(cases: Iterable[Case]) -> list[Row]:
    """Run every case once; return a row each, in order."""
    return [row for rows in run(cases).values() for row in rows]


def say(text: str) -> None:
    """Write one line of progress to standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def print_table(title: str, rows: Sequence[Row]) -> None:
    """Print rows below a title, columns in the order of their first appearance; nothing for no rows."""
    if not rows:
        return
    columns = list(dict.fromkeys(column for row in rows for column in row))
    cells = [columns, *([text_of(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]
    are_words = [all(isinstance(row.get(column), str) for row in rows) for column in columns]
    lines = [
        "  ".join(
            text.ljust(width) if is_word else text.rjust(width)
            for text, width, is_word in zip(line, widths, are_words, strict=True)
        ).rstrip()
        for line in cells
    ]
    sys.stdout.write("\n".join(["", title, "", *lines, "\n"]))


def text_of(value: Any) -> str:
    """Return a value as a table shows it: four digits of a number, a dash for none."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def finite(value: Any) -> Any:
    """Return a value as JSON can hold it: None for each number that is not finite."""
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
