"""What a reader gives, whatever the format."""

import msgspec

from fleet.acceptance.places import ByPlace, Text
from fleet.scenario.scenario import Acceptance, DraftKind
from fleet.times.profile import HardwareProfile


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """Acceptance as a file has it, and what else the file has.

    `format`: what the file is, in words. `depth`: at which its drafts were made, in tokens. `rounds` and `accepted`:
    verifications, and the draft tokens that they accepted, counted from the acceptance itself; for acceptance by place,
    those of a walk over the texts at `depth`. `told`: the mean tokens a round, bonus included, in the file's own words;
    None where it says nothing. `lengths`: tokens of the prompt and the answer of each request; `answer_tokens`: the
    mean of the answers, where the file has no prompts. `texts`: accepted tokens by place, for a model of the kind
    `ByPlace`, whose file is yet to be written. `drafts`: what drafted. `profile`: step times that the file has.
    `sources`: where each part comes from: acceptance, lengths, times. `notes`: what else a user must know.
    """

    format: str
    acceptance: Acceptance
    depth: int
    rounds: int
    accepted: int
    told: float | None = None
    lengths: tuple[tuple[int, int], ...] = ()
    answer_tokens: int = 0
    texts: tuple[Text, ...] = ()
    drafts: DraftKind = "model"
    profile: HardwareProfile | None = None
    sources: dict[str, str] = {}
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert isinstance(self.acceptance, ByPlace) == bool(self.texts)

    @property
    def mean_accepted(self) -> float:
        """Accepted draft tokens a round, without the bonus token."""
        return self.accepted / self.rounds
