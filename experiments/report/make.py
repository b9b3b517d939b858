"""Which kind of results a path holds, and its page."""

from pathlib import Path

from specfleet.experiments.draw import read_plan
from specfleet.experiments.report.page import ReportPage, html_of
from specfleet.experiments.report.pages import run_page, sweep_page
from specfleet.experiments.report.plans import plan_page
from specfleet.experiments.sweep.sweep import RECORD, read_sweep
from specfleet.fleet.errors import InputError
from specfleet.fleet.files import check_writable, write_file
from specfleet.fleet.inputs.text import is_file
from specfleet.fleet.records.run import read_run

PLAN = "plan.json"
ALLOWED = "allowed: a run (Parquet), the folder of a sweep (sweep.json) or of a plan (plan.json)"


def report(results: str | Path, out: str | Path | None = None) -> str:
    """Return one self-contained HTML page of results, and write it to `out` if given.

    `results`: a run (Parquet), the folder of a sweep or of a plan, or a plan (JSON). The page shows the answer first,
    figures, tables to sort, the resolved scenario, and where every number comes from. It loads nothing and sends
    nothing, and is the same for the same results. Raises InputError for anything else, and OutputError where it cannot
    be written.

    >>> import specfleet, tempfile, pathlib
    >>> run = pathlib.Path(tempfile.mkdtemp()) / "run.parquet"
    >>> specfleet.simulate("star", workload={"requests": 20}).save(run)
    >>> specfleet.report(run).startswith("<!DOCTYPE html>")
    True
    """
    if out is not None:
        check_writable(Path(out))
    page = html_of(page_of(Path(results)))
    if out is not None:
        write_file(Path(out), page)
    return page


def page_of(path: Path) -> ReportPage:
    """Return the page of the results at a path; InputError where they are of no known kind, or damaged."""
    if is_file(path):
        return plan_page(read_plan(path)) if path.suffix == ".json" else run_page(read_run(path))
    if not path.is_dir():
        raise InputError(f"{path}: is neither file nor folder; {ALLOWED}")
    if is_file(path / PLAN):
        return plan_page(read_plan(path / PLAN))
    if is_file(path / RECORD):
        return sweep_page(path.resolve().name, *read_sweep(path))
    raise InputError(f"{path}: holds no results; {ALLOWED}")
