"""One harness for all studies: works run to rows, rows become tables, aims are met or missed.

A study is a module of this folder with `OPTIONS` and `study(options)`, which returns a `Report`. One that
only holds data of others against ours has the names of their files, `DATA`, and `reproduce(folder)` instead.
"""

import argparse
import importlib
import math
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from specfleet.cli.study import print_judgement, print_paper_rows
from specfleet.experiments.console.exits import keeping
from specfleet.experiments.console.printing import print_table, remark, value_text
from specfleet.experiments.reproduce.rows import Reproduction
from specfleet.fleet.errors import InputError
from specfleet.fleet.files import check_folder, write_json
from specfleet.fleet.records.metrics.intervals import student_t_interval

T = TypeVar("T")
SINGLE = "row"  # in the case of a row of a large file: written, and not printed
Row = dict[str, Any]
"""One row of a table: values by column. The unit of a column is part of its name; "%" stands for hundredths."""
Options = Mapping[str, Mapping[str, Any]]
"""Options of a study by their names: what argparse takes for each."""


class Aim(msgspec.Struct, frozen=True):
    """An upper bound, `most`, for a measured value, which may have a 95 % interval; the name holds the unit."""

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


class Report(msgspec.Struct, frozen=True):
    """What a study found: tables by title, aims, and measurements of others against ours, row by row."""

    tables: Mapping[str, Sequence[Row]] = {}
    aims: Sequence[Aim] = ()
    reproduced: Sequence[Reproduction] = ()


def main(name: str, arguments: Sequence[str]) -> int:
    """Run a study by its command line; print its tables and aims and write them as JSON.

    Returns the exit status: 1 where an aim is missed.
    """
    module = importlib.import_module(f"bench.{name}")
    parser = argparse.ArgumentParser(prog=f"python -m bench {name}", description=module.__doc__)
    parser.add_argument("-o", "--out", type=Path, default=Path("runs") / name, help="folder of the results")
    holds_data = hasattr(module, "DATA")
    add_options(parser, data_option(*module.DATA) if holds_data else module.OPTIONS)
    options = parser.parse_args(arguments)
    check_folder(options.out)
    with keeping(options.out):
        report = Report(reproduced=[module.reproduce(options.data)]) if holds_data else module.study(options)
        aims = [
            {"aim": aim.name, "value": aim.value, "at most": aim.most, "verdict": aim.verdict} for aim in report.aims
        ]
        for title, rows in {**report.tables, "aims": aims}.items():
            print_rows(title, rows)
        for reproduction in report.reproduced:
            print_paper_rows(reproduction.name, [row for row in reproduction.rows if SINGLE not in row.case])
            print_judgement(reproduction)
        content = {
            "study": name, "host": platform.processor() or platform.machine(), "python": platform.python_version(),
            "tables": report.tables, "aims": aims, "reproduced": report.reproduced,
        }  # fmt: skip
        write_json(content, options.out / f"{name}.json")
    return int(any(aim.verdict == "missed" for aim in report.aims))


def add_options(parser: argparse.ArgumentParser, options: Options) -> None:
    """Add the options of a study."""
    for name, option in options.items():
        parser.add_argument(name, **option)


def data_option(*files: str) -> Options:
    """Return the option for a folder with data of others, which holds those files."""
    held = ", ".join(files) or "nothing that is needed"
    return {"--data": {"metavar": "FOLDER", "type": Path, "help": f"a folder that holds {held}"}}


def data_file(folder: Path | None, file: str) -> Path:
    """Return the place of a file with data of others; InputError where the folder or the file is missing."""
    if folder is None:
        raise InputError(f"give --data FOLDER, which holds {file}")
    if not (folder / file).is_file():
        raise InputError(f"--data {folder}: has no {file}")
    return folder / file


def off_by(errors: Iterable[float | None], digits: int = 1) -> str:
    """Say how far off rows are, in the mean and at worst; those without an error do not count."""
    sizes = [abs(error) for error in errors if error is not None]
    return f"mean absolute error {sum(sizes) / len(sizes):.{digits}%}, worst {max(sizes):.{digits}%}"


def run(works: Mapping[str, Callable[[], T]], repetitions: int = 1, cold: int = 0) -> dict[str, list[T]]:
    """Do every work once before any a second time, so that a slow moment of the host falls on all of them.

    The first `cold` runs of each do not count. Returns what came of each, by its name.
    """
    results: dict[str, list[T]] = {name: [] for name in works}
    for number in range(-cold, repetitions):
        for place, (name, work) in enumerate(works.items(), start=1):
            remark(f"{name} ({place} of {len(works)}, run {number + 1} of {repetitions})")
            result = work()
            if isinstance(result, dict):  # for the log of a study that is cut off
                remark(", ".join(f"{column} {value_text(value)}" for column, value in result.items()))
            if number >= 0:
                results[name].append(result)
    return results


def first_rows(works: Mapping[str, Callable[[], Row]]) -> list[Row]:
    """Do every work once; return a row each, in order."""
    return [row for rows in run(works).values() for row in rows]


def compared(rows: Mapping[str, Sequence[Row]], unit: str, base: str) -> list[Row]:
    """Return a row for each contestant: mean rate, mean ratio to `base` taken run by run, means of other columns.

    `rows`: what each one's runs gave, in their order, as from `run`. `unit`: the column that is compared, a rate.
    """
    table = []
    for name, own in rows.items():
        rates = np.array([row[unit] for row in own])
        ratios = rates / [row[unit] for row in rows[base]]
        (low, high), (ratio_low, ratio_high) = student_t_interval(rates), student_t_interval(ratios)
        others = {column: float(np.mean([row[column] for row in own])) for column in own[0] if column != unit}
        table.append(
            {
                "contestant": name, unit: float(rates.mean()), "from": low, "to": high,
                f"times {base}": float(ratios.mean()), "ratio from": ratio_low, "ratio to": ratio_high, **others,
            }
        )  # fmt: skip
    return table


def print_rows(title: str, rows: Sequence[Row]) -> None:
    """Print rows below a title, columns in the order of their first appearance; nothing for no rows."""
    if rows:
        columns = list(dict.fromkeys(column for row in rows for column in row))
        known = ([row.get(column) for column in columns] for row in rows)
        print_table(title, columns, [["-" if each is None else value_text(each) for each in own] for own in known])
