"""A reproduction by its name, or all at once: how far off predictions are, by paper and over all papers."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import msgspec

from specfleet.experiments.jobs import kept_file, read_shard, side_by_side
from specfleet.experiments.reproduce import REPRODUCTIONS
from specfleet.experiments.reproduce.rows import PaperRow, Reproduction, in_parts, score_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.text import shortened

EVERY = "all"  # the name under which they run
ADDED, FIRST = "added", "all papers without numbers that were added"
PAPERS = {
    "starsd": "StarSD",
    "goodspeed": "GoodSpeed",
    "dsde": "DSDE",
    "batch": "Batch Speculative Decoding",
    "amusd": "AMUSD",
    ADDED: "numbers of these papers that were added after 2026-11-27",
}
NEEDS_TRACE, NEEDS_ENGINE = "amusd-a100", "batch-table1"


def reproduce(
    name: str,
    *,
    trace: str | Path | None = None,
    report: Callable[[str], None] = lambda _name: None,
    out: str | Path | None = None,
    cluster: str = "",
    shard: str = "",
) -> Reproduction:
    """Reproduce a paper's table or figure, or "all" of them: the paper's number, ours and the error, row by row.

    `trace`: a run file of AMUSD's authors (amusd-a100). `report` is called with each name when it is done. Of "all":
    `out`, a folder that keeps each, where a rerun of the same code finds it; `cluster` as of `sweep`; `shard`, a share
    of them, such as "1/4". Raises InputError, which lists the names, for an unknown one.

    >>> import specfleet
    >>> specfleet.reproduce("starsd-fig6").frame().columns[0]
    'quantity'
    """
    if name not in (allowed := (*REPRODUCTIONS, EVERY)):
        raise InputError(f"reproduce {shortened(name, quoted=False)}: unknown; allowed: {', '.join(allowed)}")
    if name != EVERY:
        if out or cluster or shard:
            raise InputError(f"reproduce {name}: only {EVERY} has --out, --cluster and --shard")
        return made(name, trace)
    by_paper: dict[str, list[PaperRow]] = {}
    chosen = list(names(trace))[read_shard(shard, out)]
    read = sha256(Path(trace).read_bytes()).hexdigest() if trace else ""
    files = [kept_file(Path(out), f"{name} {read}") for name in chosen] if out else []
    made_ones = side_by_side(made, [(name, trace) for name in chosen], cluster or 1, files, Reproduction)
    for title, reproduction in zip(chosen, made_ones, strict=True):
        report(title)
        rows = [msgspec.structs.replace(row, case={"of": title, **row.case}) for row in reproduction.rows]
        by_paper.setdefault(PAPERS[title.partition("-")[0]], []).extend(rows)
    notes = ["what each reproduction assumes stands beside its own rows: specfleet reproduce NAME"]
    notes += [f"left out without {need}: {name}" for name, need in lacking(trace).items()]
    whole = in_parts(EVERY, by_paper, notes)
    counted = [row for row in whole.rows if not row.case["of"].startswith(ADDED)]
    return msgspec.structs.replace(whole, parts=whole.parts | {FIRST: score_of(counted)})


def made(name: str, trace: str | Path | None = None) -> Reproduction:
    """Make a reproduction; InputError where it needs a run file and has none."""
    if name != NEEDS_TRACE:
        return REPRODUCTIONS[name]()
    if trace is None:
        raise InputError(f"reproduce {NEEDS_TRACE}: give the authors' run file, --trace FILE (JSON)")
    return REPRODUCTIONS[name](Path(trace))


def names(trace: str | Path | None = None) -> Iterator[str]:
    """Yield the reproductions that can run with these inputs."""
    return (name for name in REPRODUCTIONS if name not in lacking(trace))


def lacking(trace: str | Path | None = None) -> dict[str, str]:
    """Return the reproductions that cannot run here, with what they need."""
    has_engine = find_spec("torch") is not None
    needs = {NEEDS_TRACE: ("--trace FILE", trace is not None), NEEDS_ENGINE: ("specfleet[engine]", has_engine)}
    return {name: need for name, (need, is_there) in needs.items() if not is_there}
