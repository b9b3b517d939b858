"""A target that drafts itself: target and drafter on one device, as in one serving engine.

After each step of the target its station starts one of the drafter: it reads what the target's step has fed, and drafts
for the rows that go on. Drafts and hidden states stay in this process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from specfleet.engine.decoding.grow import Drafts, check_draft, entropies
from specfleet.engine.decoding.lookup import LookupDrafter
from specfleet.engine.decoding.verify import Target, Verdict
from specfleet.engine.net.content import Content
from specfleet.engine.node.build import AnyDrafter, Streams
from specfleet.engine.node.drafts import contents_of
from specfleet.engine.node.executors import PROMPT, VerifyExecutor, Watch, note_signals
from specfleet.engine.node.pending import PendingDrafts
from specfleet.fleet.policies.outcome import Outcome, Token
from specfleet.fleet.scenario.scenario import FindFirst
from specfleet.fleet.times.step import Step


class ServingExecutor(VerifyExecutor):
    """Runs a target's steps, and those of the drafter beside it.

    A row that lost its cache loses the drafter's, too, when its prefill begins again. With a prefix cache the drafter
    has the target's blocks, and reads all that the target computes: a found block has the drafter's part, too.

    - `watch`: the length rule's test after every drafted token; None for rules without such a test.
    - `signals`: whether outcomes have acceptance probability, divergence and entropy of every drafted token.
    """

    chooses = False  # whether the length rule chooses the verified tokens by the entropies of a draft
    finder: LookupDrafter | None = None  # of drafts that are found before the drafter makes others
    first = FindFirst()  # which of them are taken
    drawn = ""  # the rule that the drafter draws for, if it does

    def __init__(
        self, drafter: AnyDrafter, target: Target, streams: Streams, watch: Watch | None = None, signals: bool = False
    ) -> None:
        super().__init__(target, streams, PendingDrafts(), drafter.reads_hidden, signals, rejoins=True)
        self.drafter = drafter
        self.watch = watch
        self.logits: dict[int, torch.Tensor] = {}  # (levels, V) of each draft, for its signals
        self.recorded: dict[int, list[Token]] = {}
        self.in_prompt: dict[int, int] = {}  # tags whose last part of a step was of a prompt: the tokens before it
        self.opened: set[int] = set()  # tags that the drafter knows

    def run(self, step: Step) -> tuple[Outcome, ...]:
        """Run a step of the target, or of the drafter."""
        if step.kind in ("draft", "draft_prefill"):
            return self._draft(step)
        for member in step.members:
            if step.kind_of(member) not in PROMPT:
                self.in_prompt.pop(member.tag, None)
                continue
            goes_on = member.tag in self.in_prompt and member.base == self.target.cache.lengths.get(member.tag, 0)
            self.in_prompt[member.tag] = member.base
            if member.tag not in self.opened:
                for drafter in [self.drafter, *([self.finder] if self.finder else [])]:
                    self.streams.open(drafter, "drafter", self.texts[member.tag].join)
                self.opened.add(member.tag)
            if not goes_on:  # it is new, or was preempted, and may have other blocks for as many tokens
                self.drafter.forget(member.tag, member.base)
        outcomes = super().run(step)
        if self.target.cache.shares:
            self._read_last(step)
        return outcomes

    def _read_last(self, step: Step) -> None:
        """Let the drafter read what others may find of rows that end with this step, after the step's prompts."""
        tags = sorted((member.tag for member in step.members), key=lambda tag: self.in_prompt.get(tag, -1))
        found = tags if self.streams.said is not None else [tag for tag in tags if tag in self.in_prompt]
        ends = {tag for tag in found if len(self.target.committed(tag)) >= self.texts[tag].goal}
        for tag in tags:
            if tag in ends or (ends and tag in self.in_prompt):
                self._read(tag, drafts=False)

    def _draft(self, step: Step) -> tuple[Outcome, ...]:
        """Read the tokens of the target's step, prompts one after the other; then draft for all rows together."""
        depths = {member.tag: member.tokens for member in step.members if member.tokens}
        found = self._found(depths)
        left_out = found if self.first.drafter == "rest" else {}
        for member in sorted(step.members, key=lambda member: self.in_prompt.get(member.tag, -1)):
            # A row that is left out is read with the next draft of it, unless others may find its blocks.
            reads_on = member.tag in depths and not (member.tag in left_out and self.target.cache.shares)
            self._read(member.tag, drafts=reads_on)
        drafted = dict.fromkeys([member.tag for member in step.members], Outcome(drafted=0))
        if self.finder:
            depths = {tag: self.first.of_head(most) for tag, most in depths.items() if tag not in left_out}
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
                if tag in found:
                    continue
                check_draft(content.tokens, content.nodes, drafts.drafter, tag, len(self.drafter.committed(tag)))
                self.pending.put(tag, content)
                drafted[tag] = Outcome(drafted=levels, entropies=tuple(of_row[:levels]))
        for tag, content in found.items():
            self.logits.pop(tag, None)
            self.pending.put(tag, content)
            drafted[tag] = Outcome(drafted=len(content.tokens), found=True)
        return tuple(drafted.values())

    def _found(self, depths: Mapping[int, int]) -> dict[int, Content]:
        """Return what is found for rows with drafts of up to `depths` tokens, where it is enough."""
        if self.finder is None:
            return {}
        made = {tag: find(self.finder, tag, self.target.committed(tag), depths[tag], self.drawn) for tag in depths}
        return {tag: made[tag] for tag in made if len(made[tag].tokens) >= self.first.of_head(depths[tag])}

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

    def _read(self, tag: int, drafts: bool) -> None:
        """Let the drafter follow a row's part of the target's step; `drafts`: whether it reads on when it drafts."""
        text = self.target.committed(tag)
        parts, self.texts[tag].states = self.texts[tag].states, []
        states = torch.cat(parts) if parts else None
        if tag in self.in_prompt:
            fed = self.target.cache.lengths[tag]
            self.drafter.read(tag, text[: fed + 1], states)
            return
        known = len(self.drafter.committed(tag))
        self.drafter.advance(tag, self.texts[tag].said.path, text[known:], states)
        if not drafts:
            self.drafter.read(tag, text)

    def release(self, tag: int) -> None:
        """Keep the finished text, free both caches."""
        super().release(tag)
        self.drafter.release(tag)
        if self.finder:
            self.finder.release(tag)
        self.in_prompt.pop(tag, None)
        self.opened.discard(tag)
        self.logits.pop(tag, None)


def find(finder: LookupDrafter, tag: int, text: list[int], most: int, rule: str) -> Content:
    """Return what is found for a text, up to `most` tokens; among drafts drawn for a rule, with probability 1."""
    finder.texts[tag] = text  # the target's own list, which grows
    tokens, q = finder.continuation(tag, most), None
    if rule and tokens:
        q = np.zeros((len(tokens), max(tokens) + 1), dtype=np.float16)
        q[range(len(tokens)), tokens] = 1.0
    return Content(tokens, distributions=q, rule=rule)
