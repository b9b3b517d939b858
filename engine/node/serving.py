"""A target that drafts itself: target and drafter on one device, as in one serving engine.

After each step of the target its station starts one of the drafter: it reads what the target's step has fed, and drafts
for the rows that go on. Drafts and hidden states stay in this process.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from specfleet.engine.decoding.grow import Drafts, check_draft, entropies
from specfleet.engine.decoding.verify import Target, Verdict
from specfleet.engine.net.content import Content
from specfleet.engine.node.build import AnyDrafter, Streams
from specfleet.engine.node.drafts import contents_of
from specfleet.engine.node.executors import PROMPT, VerifyExecutor, Watch, note_signals
from specfleet.engine.node.pending import PendingDrafts
from specfleet.fleet.policies.outcome import Outcome, Token
from specfleet.fleet.times.step import Member, Step


class ServingExecutor(VerifyExecutor):
    """Runs a target's steps, and those of the drafter beside it.

    A row that lost its cache loses the drafter's, too, when its prefill begins again.

    - `watch`: the length rule's test after every drafted token; None for rules without such a test.
    - `signals`: whether outcomes have acceptance probability, divergence and entropy of every drafted token.
    """

    chooses = False  # whether the length rule chooses the verified tokens by the entropies of a draft

    def __init__(
        self, drafter: AnyDrafter, target: Target, streams: Streams, watch: Watch | None = None, signals: bool = False
    ) -> None:
        super().__init__(target, streams, PendingDrafts(), drafter.reads_hidden, signals, rejoins=True)
        self.drafter = drafter
        self.watch = watch
        self.logits: dict[int, torch.Tensor] = {}  # (levels, V) of each draft, for its signals
        self.recorded: dict[int, list[Token]] = {}
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
                self.streams.open(self.drafter, "drafter", self.texts[member.tag].join)
                self.opened.add(member.tag)
            elif not member.base:
                self.drafter.forget(member.tag)
        return super().run(step)

    def _draft(self, step: Step) -> tuple[Outcome, ...]:
        """Read the tokens of the target's step, prompts one after the other; then draft for all rows together."""
        for member in step.members:
            self._read(member)
        depths = {member.tag: member.tokens for member in step.members if member.tokens}
        drafted = dict.fromkeys([member.tag for member in step.members], Outcome(drafted=0))
        if depths:
            tags, watch = self.drafter.in_order(list(depths)), self.watch
            stops = None if watch is None else lambda row, nats: watch(tags[row], nats)
            drafts = self.drafter.draft(tags, [depths[tag] for tag in tags], stops, self.signals)
            nats: list[list[float]] = [[]] * len(tags)
            if drafts.logits is not None:
                self.logits.update(zip(tags, drafts.logits, strict=True))
                if self.chooses:
                    nats = entropies(drafts.logits).tolist()
            for tag, content, levels, of_row in zip(tags, contents_of(drafts), drafts.depths, nats, strict=True):
                check_draft(content.tokens, content.nodes, drafts.drafter, tag, len(self.drafter.committed(tag)))
                self.pending.put(tag, content)
                drafted[tag] = Outcome(drafted=levels, entropies=tuple(of_row[:levels]))
        return tuple(drafted.values())

    def _drafts(self, tags: Sequence[int], contents: Sequence[Content]) -> Drafts:
        drafts = super()._drafts(tags, contents)
        if not self.signals or not drafts.tree.nodes or not self.logits:
            return drafts
        blank = next(iter(self.logits.values()))[:0]
        rows = [self.logits.get(tag, blank)[: drafts.tree.nodes] for tag in tags]
        return replace(drafts, logits=torch.nn.utils.rnn.pad_sequence(rows, batch_first=True))

    def _committed(self, tag: int, verdict: Verdict) -> None:
        super()._committed(tag, verdict)
        if self.signals:
            note_signals(self.recorded, self.texts[tag].join, len(self.target.committed(tag)), verdict)

    def _read(self, member: Member) -> None:
        """Let the drafter follow a row's part of the target's step."""
        tag, text = member.tag, self.target.committed(member.tag)
        parts, self.texts[tag].states = self.texts[tag].states, []
        states = torch.cat(parts) if parts else None
        if tag in self.in_prompt:
            fed = self.target.cache.lengths[tag]
            self.drafter.read(tag, text[: fed + 1], states)
            return
        known = len(self.drafter.committed(tag))
        self.drafter.advance(tag, self.texts[tag].said.path, text[known:], states)
        if not member.tokens:
            self.drafter.read(tag, text)

    def release(self, tag: int) -> None:
        """Keep the finished text, free both caches."""
        super().release(tag)
        self.drafter.release(tag)
        self.in_prompt.discard(tag)
        self.opened.discard(tag)
        self.logits.pop(tag, None)
