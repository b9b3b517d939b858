"""A reproduction by its name, or all at once: how far off predictions are, by paper and over all papers."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec

from specfleet.experiments.reproduce import REPRODUCTIONS
from specfleet.experiments.reproduce.rows import Inputs, PaperRow, Reproduction, in_parts
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.text import shortened

EVERY = "all"  # the name under which they run
PAPERS = {
    "starsd": "StarSD",
    "goodspeed": "GoodSpeed",
    "dsde": "DSDE",
    "batch": "Batch Speculative Decoding",
    "amusd": "AMUSD",
    "added": "numbers of these papers that were added after 2026-11-27",
    "specdecode": "SpecDecode-Bench",
    "estimates": "what others measured (estimates)",
    "serving": "serving engines (estimates)",
    "published": "threads of serving engines (estimates)",
}
NEEDS_TRACE, NEEDS_DATA = ("amusd-a100",), ("specdecode-fig10", "specdecode-fig1", "serving")
NEEDS_ENGINE = ("batch-table1",)


def reproduce(
    name: str,
    *,
    trace: str | Path | None = None,
    data: str | Path | None = None,
    report: Callable[[str], None] = lambda _name: None,
) -> Reproduction:
    """Reproduce a paper's table or figure, or "all" of them: the paper's number, ours and the error, row by row.

    `trace`: a run file of the authors (amusd-a100). `data`: a folder with measurements that others published
    (estimates, specdecode-fig10, specdecode-fig1, serving). `report` is called with each name before it runs. Raises
    InputError, which lists the names, for an unknown one.

    >>> import specfleet
    >>> specfleet.reproduce("starsd-fig6").frame().columns[0]
    'quantity'
    """
    inputs = Inputs(None if trace is None else str(trace), None if data is None else str(data))
    if name == EVERY:
        return every(inputs, report)
    if name not in REPRODUCTIONS:
        allowed = ", ".join((*REPRODUCTIONS, EVERY))
        raise InputError(f"reproduce {shortened(name, quoted=False)}: unknown; allowed: {allowed}")
    report(name)
    return REPRODUCTIONS[name](inputs)


def every(inputs: Inputs, report: Callable[[str], None] = lambda _name: None) -> Reproduction:
    """Run every reproduction, as far as the inputs allow; `parts` are the papers, `report` is as in `reproduce`."""
    by_paper: dict[str, list[PaperRow]] = {}
    for name in names(inputs):
        report(name)
        rows = REPRODUCTIONS[name](inputs).rows
        prefix = name.partition("-")[0]
        by_paper.setdefault(PAPERS.get(prefix, prefix), []).extend(
            msgspec.structs.replace(row, case={"of": name, **row.case}) for row in rows
        )
    notes = ["what each reproduction assumes stands beside its own rows: specfleet reproduce NAME"]
    notes += [f"left out without {need}: {', '.join(these)}" for need, these in lacking(inputs).items()]
    return in_parts(EVERY, by_paper, notes)


def names(inputs: Inputs) -> Iterator[str]:
    """Yield the reproductions that can run with these inputs."""
    left_out = {name for these in lacking(inputs).values() for name in these}
    return (name for name in REPRODUCTIONS if name not in left_out)


def lacking(inputs: Inputs) -> dict[str, tuple[str, ...]]:
    """Return what is missing here, with the reproductions that cannot run without it."""
    needs = {
        "--trace FILE": (inputs.trace is not None, NEEDS_TRACE),
        "--data FOLDER": (inputs.data is not None, NEEDS_DATA),
        "specfleet[engine]": (has_engine(), NEEDS_ENGINE),
    }
    return {need: these for need, (is_there, these) in needs.items() if not is_there}


def has_engine() -> bool:
    """Whether the engine's packages are installed."""
    return find_spec("torch") is not None
