"""What a reader gives, whatever the format: counts of rounds, and the load, each by itself."""

import msgspec

from specfleet.calibration.readers.load import Load
from specfleet.fleet.policies.shapes import CHAIN, Shape
from specfleet.fleet.scenario.scenario import Acceptance


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Rounds as a file counts them.

    - `acceptance`: the model that plays them back. `depth` (tokens): of their drafts.
    - `rounds`, `accepted`: verifications, and their accepted draft tokens, counted from the acceptance itself.
    - `source`: what was counted. `stated` (tokens a round): the file's own mean, bonus included; None if it has none.
    - `notes`: warnings for the user.
    """

    acceptance: Acceptance
    depth: int
    rounds: int
    accepted: int
    source: str
    stated: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def mean_length(self) -> float:
        """Tokens a round, with the bonus token."""
        return 1 + self.accepted / self.rounds if self.rounds else 1.0

    def noting(self, *notes: str) -> "Counts":
        """Return the same with more warnings."""
        return msgspec.structs.replace(self, notes=(*self.notes, *notes))


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of a server.

    - `source`: the format, in words.
    - `counts`: None of a server that does not speculate. `load`: None of records without times.
    - `lengths` (tokens): of the prompt and the answer of each request; `lengths_from`: what has them.
    - `shape`: of the drafts, by the server's settings. `model`: its name there, if it is known.
    - `notes`: warnings for the user, beside those of counts and load.
    """

    source: str
    counts: Counts | None = None
    load: Load | None = None
    lengths: tuple[tuple[int, int], ...] = ()
    lengths_from: str = ""
    shape: Shape = CHAIN
    model: str = ""
    notes: tuple[str, ...] = ()

    @property
    def format(self) -> str:
        """The format, and whether its server speculates, in words."""
        return self.source if self.counts else f"{self.source}, without speculation"
