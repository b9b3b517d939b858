"""What a station's steps do to models: the hands of the engine, one kind a role.

An executor takes the content that came with an accepted message, runs the steps that its station starts, and hands
out the content of the messages that its station sends. It decides nothing.
"""

from collections.abc import Sequence

import numpy as np

from engine.content import NOTHING, Content
from engine.draft import Drafter
from engine.verify import Target
from specfleet.messages import Draft, DraftRequest, Join, Message, Outcome, StationEvent
from specfleet.station import Step


class DraftExecutor:
    """Runs a drafter station's steps on a draft model."""

    def __init__(self, drafter: Drafter, seed: int) -> None:
        self.drafter = drafter
        self.seed = seed
        self.drafts: dict[int, Content] = {}

    def receive(self, event: StationEvent, content: Content) -> None:
        """Open a stream with its prefix, or append the target's own token to it."""
        if isinstance(event, DraftRequest):
            if event.opening:
                self.drafter.open(event.tag, list(content.tokens), stream_seed(self.seed, event.request, 0))
            else:
                self.drafter.advance(event.tag, event.base, content.tokens[0])

    def run(self, step: Step) -> tuple[Outcome, ...]:
        """Warm up, prefill or draft."""
        for member in step.members:
            if step.kind == "draft":
                draft = self.drafter.draft(member.tag, member.tokens)
                self.drafts[member.tag] = Content(draft.tokens, draft.distributions)
            elif step.kind == "prefill":
                self.drafter.prefill(member.tag)
            else:
                self.drafter.warm_up(member.tokens)
        return (Outcome(),) * len(step.members)

    def content_of(self, message: Message) -> Content:
        """Return the draft tokens of a `Draft`; nothing for other messages."""
        return self.drafts.pop(message.tag) if isinstance(message, Draft) else NOTHING

    def release(self, tag: int) -> None:
        """Free the cache of `tag`."""
        self.drafter.release(tag)
        self.drafts.pop(tag, None)


class VerifyExecutor:
    """Runs a verifier station's steps on a target model; keeps the finished outputs by request."""

    def __init__(self, target: Target, prompts: Sequence[Sequence[int]], seed: int) -> None:
        self.target = target
        self.prompts = prompts
        self.seed = seed
        self.drafts: dict[int, Content] = {}
        self.open_requests: dict[int, Join] = {}
        self.outputs: dict[int, list[int]] = {}

    def receive(self, event: StationEvent, content: Content) -> None:
        """Open a stream with its prompt, or take draft tokens."""
        if isinstance(event, Join):
            prompt = list(self.prompts[event.request])
            self.target.open(event.tag, prompt, stream_seed(self.seed, event.request, 1))
            self.open_requests[event.tag] = event
        elif isinstance(event, Draft):
            self.drafts[event.tag] = content

    def run(self, step: Step) -> tuple[Outcome, ...]:
        """Prefill, decode one token, or verify a draft."""
        return tuple([self._run_member(member.tag, step.kind) for member in step.members])

    def _run_member(self, tag: int, kind: str) -> Outcome:
        if kind != "verify":
            self.target.decode(tag)
            return Outcome()
        draft = self.drafts.pop(tag)
        accepted, _ = self.target.verify(tag, list(draft.tokens), draft.distributions)
        return Outcome(accepted)

    def content_of(self, message: Message) -> Content:
        """Return the prefix of a request that opens, the target's own token of a later one."""
        if not isinstance(message, DraftRequest):
            return NOTHING
        committed = self.target.committed(message.tag)
        return Content(committed if message.opening else committed[-1:])

    def release(self, tag: int) -> None:
        """Keep the finished text, free the cache."""
        join = self.open_requests.pop(tag)
        committed = self.target.committed(tag)
        self.outputs[join.request] = committed[join.prompt_tokens : join.prompt_tokens + join.new_tokens]
        self.target.release(tag)
        self.drafts.pop(tag, None)


def stream_seed(seed: int, request: int, side: int) -> int:
    """Return the seed of one request's random stream at the drafter (side 0) or the target (side 1)."""
    return int(np.random.SeedSequence([seed, request, side]).generate_state(1)[0])
