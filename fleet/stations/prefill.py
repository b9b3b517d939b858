"""A prefill server: a target that computes prompts, and hands each over with its first token."""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.scenario.resolved import ResolvedVerifiers
from specfleet.fleet.stations.messages import Instruction, StepDone
from specfleet.fleet.stations.session import Session
from specfleet.fleet.stations.verifier import VerifierStation
from specfleet.fleet.times.step import Member, Step


class PrefillStation(VerifierStation):
    """A target that ends its part of a request with the first token, or with the draft after it.

    The drafter on its device reads prompts where its cache is sent, and where it drafts for the first round.
    """

    def __init__(self, name: str, verifiers: ResolvedVerifiers) -> None:
        super().__init__(name, verifiers)
        prefill, drafts = verifiers.prefill, self.drafts
        assert prefill is not None
        self.alone, self.grants = True, None
        self.computing_s: dict[int, float] = defaultdict(float)  # time of the steps of each prompt, by tag
        self.depth = drafts.depth if drafts and prefill.first_round_drafts else 0
        if not self.depth and prefill.draft_cache == "computed":
            self.drafts = None

    def _ended(self, step: Step, event: StepDone, now_s: float) -> list[Instruction]:
        for member in step.members:
            self.computing_s[member.tag] += event.duration_s
        return super()._ended(step, event, now_s)

    def _next_round(self, before: Session, session: Session, granted: int, now_s: float) -> list[Instruction]:
        if self.drafts is None:
            return self._finish("prefill", before, session)
        self.sessions[session.tag] = msgspec.structs.replace(session, granted=self.depth)
        return []

    def _drafted(self, parts: Sequence[tuple[Member, Outcome]]) -> None:
        for session in [self.sessions[member.tag] for member, _ in parts]:
            if session.granted is not None:  # else of a chunk
                self.results += self._finish("prefill", session, session)
