"""Outcomes of replayed targets: from recorded continuations of real text, or drawn as in the simulation."""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from engine.decoding.greedy import path_in_text
from engine.net.content import Content, path_sent
from fleet.policies.outcome import Outcome
from fleet.stations.messages import DraftRequest
from fleet.stations.outcomes import Outcomes
from fleet.stations.station import Station
from fleet.times.step import Member, Step


class Continuation(msgspec.Struct, frozen=True):
    """The target's greedy continuation of a prompt, as token ids; one round longer than the longest request.

    `hidden` (prompt + tokens - 1, hidden): the target's last hidden states at all tokens but the last, prompt included,
    as float16; None unless a drafter reads them.
    """

    prompt: list[int]
    tokens: list[int]
    hidden: np.ndarray | None = None


class Continued:
    """Compares real drafts with the continuations of the prompts."""

    def __init__(self, continuations: Sequence[Continuation]) -> None:
        self.continuations = continuations
        self.paths: dict[int, list[int]] = {}  # accepted nodes of the last drafts, by tag

    def outcomes(self, step: Step, drafts: Sequence[Content]) -> tuple[Outcome, ...]:
        """Compare drafts with continuations."""
        return tuple([self._outcome(step, *pair) for pair in zip(step.members, drafts, strict=True)])

    def _outcome(self, step: Step, member: Member, draft: Content) -> Outcome:
        continuation, accepted = self.continuations[member.request], 0
        position = (member.base or member.tokens) - len(continuation.prompt)  # the tokens of a prefill are the prompt
        if step.kind == "verify":
            path = path_in_text(draft.tokens, continuation.tokens[position:], draft.nodes)
            self.paths[member.tag], accepted = path, len(path)
        return Outcome(accepted)

    def content_of(self, request: DraftRequest) -> Content:
        """Return the prefix of an opening request, the target's own token of a later one."""
        continuation, base = self.continuations[request.request], request.base
        text = [*continuation.prompt, *continuation.tokens][:base]
        path = self.paths.get(request.tag, [])
        count = 1 if request.opening else base - len(path) - 1  # of each new token, the state before it
        hidden = None if continuation.hidden is None else continuation.hidden[count - 1 : base - 1]
        if request.opening:
            return Content(text, hidden=hidden)
        return Content(text[-1:], path_sent(path), hidden=hidden)


class Drawn:
    """Draws outcomes for replayed drafters, with the code and the random numbers of the simulation.

    `outcomes`: of the whole fleet; targets of one process may share them. Texts are zeros of the right length.
    """

    def __init__(self, outcomes: Outcomes, station: Station) -> None:
        self.draw: Callable[[Step], tuple[Outcome, ...]] = outcomes.at(station)

    def outcomes(self, step: Step, drafts: Sequence[Content]) -> tuple[Outcome, ...]:
        """Draw outcomes; the content of drafts is not used."""
        return self.draw(step)

    def content_of(self, request: DraftRequest) -> Content:
        """Return a prefix, or a token, of zeros."""
        return Content([0] * request.base) if request.opening else Content([0])


ReplayedOutcomes = Continued | Drawn
"""Returns the outcomes of one target's finished steps, one a member, and the content of its requests."""
