"""Running servers as the engine of a calibration: one for each draft length, since a server keeps its own."""

import re
from collections.abc import Mapping, Sequence

from engine.outside.answers import run_on_server
from fleet.errors import InputError
from fleet.records.run import Run
from fleet.scenario.scenario import Scenario

STATED = re.compile(r"(\d{1,4})=(.+)", re.DOTALL)


def servers_of(stated: Sequence[str], scenario: Scenario) -> dict[int, str]:
    """Return the address of the server for each draft length in tokens; 0 is plain decoding.

    - `stated`: "LENGTH=URL", or "URL" for the scenario's own length.

    Raises InputError for two servers of one length, and where none has the scenario's.
    """
    own = scenario.drafters.depth if scenario.drafters.count else 0
    found: dict[int, str] = {}
    for one in stated:
        named = STATED.fullmatch(one)
        depth, url = (int(named[1]), named[2]) if named else (own, one)
        if depth in found:
            raise InputError(f"--server {one}: {found[depth]} drafts {depth} tokens, too; name one of them")
        if depth > own:
            raise InputError(f"--server {one}: drafts more than the scenario's drafters.depth = {own}; raise it")
        found[depth] = url
    if own not in found:
        raise InputError(f"--server {stated[0]}: none drafts the scenario's {own} tokens; add --server {own}=URL")
    return found


class Servers:
    """Sends loops to the server of their draft length; `notes` has what did not add up."""

    def __init__(self, urls: Mapping[int, str]) -> None:
        self.urls = urls
        self.notes: list[str] = []

    def run(self, loop: Scenario) -> Run:
        """Run a loop; InputError as `run_on_server`."""
        return run_on_server(loop, self.urls[loop.drafters.depth if loop.drafters.count else 0], self._note)

    def _note(self, line: str) -> None:
        if line.startswith("note"):
            self.notes.append(line.removeprefix("note: "))
