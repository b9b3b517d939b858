"""report: one page of a plan, sweep or run."""

from pathlib import Path
from typing import Annotated

import typer

from experiments.console.exits import keeping
from experiments.console.printing import remark
from specfleet.cli.options import file_option


def report(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="A run (Parquet), or the folder of a sweep or a plan.")
    ],
    out: Annotated[Path, file_option("-o", "--out", metavar="FILE", help="The page (HTML).")],
) -> None:
    """Write one page of results to send around: answer, figures, tables to sort, where every number is from.

    It holds all that it shows, and no request leaves it.
    """
    from specfleet import report

    with keeping(out):
        page = report(results, out)
    remark(f"report: {out}, {len(page.encode()) / 1000:.0f} kB")
