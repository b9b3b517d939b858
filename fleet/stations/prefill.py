"""A prefill server: a target that computes prompts, and hands each over with its first token, over a link."""

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np

from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.scenario.prefill import Prefill
from specfleet.fleet.scenario.resolved import ResolvedVerifiers
from specfleet.fleet.stations.messages import Instruction, StepDone
from specfleet.fleet.stations.session import Session
from specfleet.fleet.stations.verifier import VerifierStation
from specfleet.fleet.times.durations import ratios
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


class KvLink:
    """The link of a prefill server, over which the KV caches of its prompts leave one after the other."""

    def __init__(self, prefill: Prefill, rng: np.random.Generator) -> None:
        self.prefill, self.jitter, self.free_s = prefill, ratios(prefill.link.spread, rng), 0.0

    def way_s(self, size_bytes: int, now_s: float, computing_s: float) -> float:
        """Return how long after its end, which is now, a prompt of `computing_s` seconds of steps has arrived."""
        self.free_s = self.prefill.sent_s(size_bytes, now_s, computing_s, self.free_s)
        return self.free_s - now_s + self.prefill.link.latency_s * next(self.jitter)
