"""report: one page of a plan, sweep, run or demo, to send around."""

from pathlib import Path

from experiments.report.make import page_of
from experiments.report.page import html_of
from fleet.files import check_writable, write_file
from specfleet.arguments import path_of


def report(results: str | Path, out: str | Path | None = None) -> str:
    """Return one self-contained HTML page of results, and write it to `out` if given.

    `results`: a run (Parquet), the folder of a sweep, of a plan or of a demo, or a plan (JSON). The page shows the
    answer first, figures, tables to sort, the settled scenario, and where every number comes from. It
    loads nothing and sends nothing, and is the same for the same results. Raises InputError for anything else, and
    OutputError where it cannot be written.

    >>> import specfleet, tempfile, pathlib
    >>> run = pathlib.Path(tempfile.mkdtemp()) / "run.parquet"
    >>> specfleet.simulate("star", workload={"requests": 20}).save(run)
    >>> specfleet.report(run).startswith("<!DOCTYPE html>")
    True
    """
    place = None if out is None else path_of(out, "out")
    if place is not None:
        check_writable(place)
    page = html_of(page_of(path_of(results, "results")))
    if place is not None:
        write_file(place, page)
    return page
