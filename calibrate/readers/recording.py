"""What a reader gives, whatever the format."""

import msgspec

from specfleet.calibration.readers.load import Load
from specfleet.fleet.acceptance.places import ByPlace, Text
from specfleet.fleet.scenario.scenario import Acceptance, DraftKind
from specfleet.fleet.times.profile import HardwareProfile


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """Acceptance as a file has it, and what else the file has.

    - `format`: the file's format, in words.
    - `acceptance`: None of a server that does not speculate.
    - `depth` (tokens): of its drafts.
    - `rounds`, `accepted`: verifications, and their accepted draft tokens, counted from the acceptance itself; for
      acceptance by place, from a walk over the texts at `depth`.
    - `stated` (tokens a round): the file's own mean, bonus included; None if it has none.
    - `lengths` (tokens): of the prompt and the answer of each request.
    - `answer_tokens`: mean of the answers, if the file has no prompts.
    - `texts`: accepted tokens by place, for a `ByPlace` model that is not written yet.
    - `drafts`: the drafting method.
    - `profile`: step times in the file.
    - `sources`: the source of each part: acceptance, lengths, times.
    - `load`: requests, rates and times of the server.
    - `notes`: warnings for the user.
    """

    format: str
    acceptance: Acceptance | None
    depth: int
    rounds: int = 0
    accepted: int = 0
    stated: float | None = None
    lengths: tuple[tuple[int, int], ...] = ()
    answer_tokens: int = 0
    texts: tuple[Text, ...] = ()
    drafts: DraftKind = "model"
    profile: HardwareProfile | None = None
    sources: dict[str, str] = {}
    load: Load | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert isinstance(self.acceptance, ByPlace) == bool(self.texts)

    @property
    def mean_accepted(self) -> float:
        """Accepted draft tokens a round, without the bonus token."""
        return self.accepted / self.rounds if self.rounds else 0.0
