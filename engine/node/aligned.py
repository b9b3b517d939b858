"""A target with aligned rows, and the drafter on its device: both keep their caches in rectangles.

The station decides which requests join and share a round, when rows are realigned, and how long each draft is; the
executor runs that on both models (`engine/decoding/aligned.py`).
"""

from collections.abc import Sequence

import torch

from specfleet.engine.decoding.grow import Drafts
from specfleet.engine.decoding.verify import Target
from specfleet.engine.node.build import AnyDrafter, Streams
from specfleet.engine.node.executors import Watch, note_signals
from specfleet.engine.node.serving import ServingExecutor
from specfleet.fleet.policies.aligned import AlignedRule
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.times.step import Step


class AlignedExecutor(ServingExecutor):
    """Runs an aligned station's steps on both models."""

    def __init__(
        self, drafter: AnyDrafter, target: Target, streams: Streams, rule: AlignedRule, watch: Watch | None = None,
        signals: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(drafter, target, streams, watch, signals)
        self.rule = rule
        self.ballast: list[int] = []  # tags of finished rows that a fixed batch keeps
        self.drafted: Drafts | None = None
        self.hidden: dict[int, torch.Tensor] = {}  # of prompts that the drafter has yet to read

    def release(self, tag: int) -> None:
        """Keep the finished text; free the caches, unless the row stays in its batch until that ends."""
        join = self.texts.pop(tag).join
        committed = self.target.committed(tag)
        self.outputs[join.request] = committed[join.prompt_tokens : join.prompt_tokens + join.new_tokens]
        if self.rule.together:
            if tag in self.hidden:  # complete with its first token: the drafter drafts for rows that stay as well
                self._draft_prefill(tag)
            self.ballast.append(tag)
        else:
            self.hidden.pop(tag, None)
            self._close(tag)

    def run(self, step: Step) -> tuple[Outcome, ...]:
        """Prefill, realign, draft or verify."""
        tags = [member.tag for member in step.members]
        if not step.ballast:
            while self.ballast:
                self._close(self.ballast.pop())
        match step.kind:
            case "prefill":
                return tuple([self._prefill(tag) for tag in tags])
            case "draft_prefill":
                for tag in tags:
                    self._draft_prefill(tag)
            case "realign":
                self.target.cache.realign(self._together(tags))
                self.drafter.realign(self._together(tags))
            case "draft":
                return self._draft(step)
            case "verify":
                return self._verify(tags)
        return (Outcome(),) * len(tags)

    def _prefill(self, tag: int) -> Outcome:
        join = self.texts[tag].join
        self.streams.open(self.target, "target", join)
        self.streams.open(self.drafter, "drafter", join)
        first = self.target.prefill(tag)
        self.hidden[tag] = first.hidden
        return Outcome()

    def _draft_prefill(self, tag: int) -> None:
        self.drafter.read(tag, self.target.committed(tag), self.hidden.pop(tag))

    def _close(self, tag: int) -> None:
        self.target.release(tag)
        self.drafter.release(tag)

    def _together(self, tags: Sequence[int]) -> list[int]:
        """Return the rows of a step and its finished rows, in the order of both models."""
        return self.target.cache.in_order([*tags, *self.ballast])

    def _draft(self, step: Step) -> tuple[Outcome, ...]:
        depth_of = {member.tag: member.tokens for member in step.members}
        rows, watch = self._together(list(depth_of)), self.watch
        stops = None if watch is None else lambda index, nats: rows[index] not in depth_of or watch(rows[index], nats)
        lengths = [depth_of.get(tag, max(depth_of.values())) for tag in rows]
        self.drafted = self.drafter.draft(rows, lengths, stops, self.signals)
        levels = dict(zip(rows, self.drafted.depths, strict=True))
        return tuple([Outcome(drafted=levels[tag]) for tag in depth_of])

    def _verify(self, tags: list[int]) -> tuple[Outcome, ...]:
        rows = self._together(tags)
        assert self.drafted is not None
        verdicts = self.target.verify(rows, self.drafted, self.rule.kept, self.signals)
        outcomes = {}
        for tag, verdict in zip(rows, verdicts, strict=True):
            hidden = verdict.committed_hidden if self.drafter.reads_hidden else None
            self.drafter.advance(tag, verdict.path, verdict.tokens, hidden)
            if tag in self.texts:  # else a finished row that stays
                self.texts[tag].verdict = verdict
                note_signals(self.recorded, self.texts[tag].join, len(self.target.committed(tag)), verdict)
                outcomes[tag] = Outcome(verdict.accepted).with_signals(verdict.signals)
        return tuple([outcomes[tag] for tag in tags])
