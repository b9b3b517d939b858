"""A target that drafts itself: target and drafter on one device, as in one serving engine.

After each step of the target its station starts one of the drafter: it reads what the target's step has fed, and drafts
for the rows that go on. Drafts and hidden states stay in this process.
"""

import torch

from engine.decoding.grow import check_draft
from engine.decoding.verify import Target
from engine.node.build import AnyDrafter, Streams
from engine.node.drafts import contents_of
from engine.node.executors import PROMPT, VerifyExecutor
from engine.node.pending import PendingDrafts
from fleet.policies.outcome import Outcome
from fleet.times.step import Member, Step


class ServingExecutor(VerifyExecutor):
    """Runs a target's steps, and those of the drafter beside it.

    A row that lost its cache loses the drafter's, too, when its prefill begins again.
    """

    def __init__(self, drafter: AnyDrafter, target: Target, streams: Streams, signals: bool = False) -> None:
        super().__init__(target, streams, PendingDrafts(), drafter.reads_hidden, signals, rejoins=True)
        self.drafter = drafter
        self.in_prompt: set[int] = set()  # tags whose last part of a step was of a prompt
        self.opened: set[int] = set()  # tags that the drafter knows

    def run(self, step: Step) -> tuple[Outcome, ...]:
        """Run a step of the target, or of the drafter."""
        if step.kind in ("draft", "draft_prefill"):
            return self._draft(step)
        for member in step.members:
            if step.kind_of(member) not in PROMPT:
                self.in_prompt.discard(member.tag)
                continue
            self.in_prompt.add(member.tag)
            if member.tag not in self.opened:
                self.streams.open(self.drafter, "drafter", self.open_requests[member.tag])
                self.opened.add(member.tag)
            elif not member.base:
                self.drafter.forget(member.tag)
        return super().run(step)

    def _draft(self, step: Step) -> tuple[Outcome, ...]:
        """Read the tokens of the target's step, prompts one after the other; then draft for all rows together."""
        for member in step.members:
            self._read(member)
        depths = {member.tag: member.tokens for member in step.members if member.tokens}
        drafted = dict.fromkeys([member.tag for member in step.members], 0)
        if depths:
            tags = self.drafter.in_order(list(depths))
            drafts = self.drafter.draft(tags, [depths[tag] for tag in tags])
            for tag, content, levels in zip(tags, contents_of(drafts), drafts.depths, strict=True):
                check_draft(content.tokens, content.nodes, drafts.drafter, tag, len(self.drafter.committed(tag)))
                self.pending.put(tag, content)
                drafted[tag] = levels
        return tuple([Outcome(drafted=levels) for levels in drafted.values()])

    def _read(self, member: Member) -> None:
        """Let the drafter follow a row's part of the target's step."""
        tag, text = member.tag, self.target.committed(member.tag)
        parts = self.states.pop(tag, [])
        states = torch.cat(parts) if parts else None
        if tag in self.in_prompt:
            fed = self.target.cache.lengths[tag]
            self.drafter.read(tag, text[: fed + 1], states)
            return
        known = len(self.drafter.committed(tag))
        self.drafter.advance(tag, self.verdicts[tag].path, text[known:], states)
        if not member.tokens:
            self.drafter.read(tag, text)

    def release(self, tag: int) -> None:
        """Keep the finished text, free both caches."""
        super().release(tag)
        self.drafter.release(tag)
        self.in_prompt.discard(tag)
        self.opened.discard(tag)
