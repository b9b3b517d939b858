"""Engines of others that a calibration runs on; of running servers one for each draft length, which a server keeps."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from specfleet.calibration.serving import Elsewhere
from specfleet.engine.outside.answers import run_on_server
from specfleet.engine.outside.engines import OutsideEngine, packages_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.names import Engine
from specfleet.fleet.scenario.scenario import Scenario

STATED = re.compile(r"(\d{1,4})=(.+)", re.DOTALL)


def servers_of(stated: Sequence[str], scenario: Scenario) -> dict[int, str]:
    """Return the address of the server for each draft length in tokens; 0 is plain decoding.

    - `stated`: "LENGTH=URL", or "URL" for the scenario's own length.

    Raises InputError for two servers of one length, and where none has the scenario's.
    """
    planned = scenario.drafters.depth if scenario.drafters.count else 0
    urls: dict[int, str] = {}
    for text in stated:
        named = STATED.fullmatch(text)
        depth, url = (int(named[1]), named[2]) if named else (planned, text)
        if depth in urls:
            raise InputError(f"--server {text}: {urls[depth]} drafts {depth} tokens, too; name one of them")
        if depth > planned:
            raise InputError(f"--server {text}: drafts more than the scenario's drafters.depth = {planned}; raise it")
        urls[depth] = url
    if planned not in urls:
        lacks = f"none drafts the scenario's {planned} tokens; add --server {planned}=URL"
        raise InputError(f"--server {stated[0]}: {lacks}")
    return urls


@contextmanager
def other_engine(engine: Engine | None, urls: Mapping[int, str]) -> Iterator[Elsewhere | None]:
    """Yield what runs the loops of a calibration: an engine of others, or servers by their draft lengths; else None."""
    notes = list[str]()

    def report(line: str) -> None:
        if line.startswith("note: "):  # other lines are of progress
            notes.append(line.removeprefix("note: "))

    def run(loop: Scenario) -> Run:
        return run_on_server(loop, urls[loop.drafters.depth if loop.drafters.count else 0], report)

    if urls:
        yield Elsewhere(run, " ".join(urls.values()), tuple(urls), notes)
    elif engine is not None:
        with OutsideEngine(engine, report) as outside:
            yield Elsewhere(outside.run, packages_of(engine), notes=notes)
    else:
        yield None
