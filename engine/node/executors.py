"""Executors of drafter and verifier stations run a station's steps on its model.

An executor takes the content of each accepted message, runs the steps that its station starts, and returns the content
of the messages that its station sends. It takes no decisions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from specfleet.engine.decoding.grow import Drafts, check_draft
from specfleet.engine.decoding.together import PromptPart, run_together
from specfleet.engine.decoding.verify import Target, Verdict
from specfleet.engine.net.content import NOTHING, Content, path_sent, states_sent
from specfleet.engine.node.build import AnyDrafter, Streams
from specfleet.engine.node.drafts import below, contents_of, cut_to, drafts_of, said_by
from specfleet.engine.node.pending import PendingDrafts
from specfleet.engine.node.worker import Executor
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.outcome import Outcome, Token
from specfleet.fleet.stations.messages import Draft, DraftRequest, Join, Message, StationEvent
from specfleet.fleet.times.step import Member, Step

PROMPT = frozenset({"prefill", "chunk"})  # kinds of parts of a prompt
Watch = Callable[[int, float], bool]
"""Whether the draft of a tag stops after a token; its distribution has that entropy, in nats."""


@dataclass(eq=False)
class DraftExecutor(Executor):
    """Runs a drafter station's steps on a draft model.

    `ahead`: whether it continues while its targets verify. Then it treats its own tokens as committed, and returns to
    the target's text at the next request. `say`: takes a line on hidden states that lead to no numbers; without it they
    are an InputError.
    """

    drafter: AnyDrafter
    streams: Streams
    ahead: bool = False
    say: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        self.drafts: dict[int, Content] = {}  # the last ones
        self.prefix_hidden: dict[int, torch.Tensor | None] = {}  # of prefixes that are not prefilled yet

    def receive(self, event: StationEvent, content: Content) -> None:
        """Open a stream with its prefix, or append the target's own token to it."""
        if isinstance(event, DraftRequest):
            if event.opening:
                sampling, seed = self.streams.sampling, 0
                if sampling.temperature:  # greedy drafts draw nothing
                    seed = self.streams.seed_of(event.request, "drafter", event.epoch)
                self.release(event.tag)  # a stream of the tag that is still open
                self.drafter.open(event.tag, list(content.tokens), sampling, seed)
                self.prefix_hidden[event.tag] = self._hidden(content)
            elif self.ahead:
                self.drafter.go_back(event.tag, event.base - len(content.tokens))
                self.drafter.advance(event.tag, [], list(content.tokens))
            else:
                path = self._path(event, content)
                tokens = [self.drafts[event.tag].tokens[node - 1] for node in path] + list(content.tokens)
                hidden, before = self._hidden(content), self.prefix_hidden.get(event.tag)
                if hidden is not None and before is not None:
                    self.prefix_hidden[event.tag] = torch.cat([before, hidden])
                self.drafter.advance(event.tag, path, tokens, hidden)

    def run(self, step: Step) -> tuple[Outcome, ...]:
        """Warm up, prefill or draft."""
        if step.kind == "draft":
            depths = {member.tag: member.tokens for member in step.members}
            tags = self.drafter.in_order(list(depths)) if len(depths) > 1 else list(depths)
            drafts = self.drafter.draft(tags, [depths[tag] for tag in tags])
            depths |= zip(tags, drafts.depths, strict=True)
            self.drafts.update(zip(tags, contents_of(drafts), strict=True))
            for tag in tags:
                content, length = self.drafts[tag], len(self.drafter.committed(tag))
                try:
                    check_draft(content.tokens, content.nodes, drafts.drafter, tag, length)
                except InputError as error:
                    if self.say is None or not self.drafter.reads_hidden:
                        raise
                    self.drafts[tag] = NOTHING  # the states of one target end no drafts for others
                    self.say(str(error))
                if self.ahead:
                    self.drafter.advance(tag, [1], list(content.tokens))
            return tuple([Outcome(drafted=levels) for levels in depths.values()])
        for member in step.members:
            if step.kind == "prefill":
                self.drafter.forget(member.tag)
                self.drafter.read(member.tag, hidden=self.prefix_hidden.pop(member.tag, None))
            elif step.kind == "warm_up":
                self.drafter.warm_up(member.tokens)
        return (Outcome(),) * len(step.members)

    def _hidden(self, content: Content) -> torch.Tensor | None:
        """The target's hidden states in the message, in the drafter's precision: (tokens, hidden)."""
        if content.hidden is None:
            return None
        model = self.drafter.model  # type: ignore[union-attr]  # a drafter that reads hidden states has a model
        states = torch.from_numpy(content.hidden.copy())
        return states.to(model.device, model.dtype)

    def _path(self, event: DraftRequest, content: Content) -> Sequence[int]:
        """Accepted nodes of the last draft: part of the message for a tree, implied by the new length for a chain."""
        if content.nodes is not None:
            return content.nodes
        return range(1, event.base - len(self.drafter.committed(event.tag)) - len(content.tokens) + 1)

    def content_of(self, message: Message) -> Content:
        """Return the draft tokens of a `Draft`; nothing for other messages."""
        if not isinstance(message, Draft) or message.tokens == 0:  # an empty grant makes a draft without a step
            return NOTHING
        return self.drafts[message.tag]

    def release(self, tag: int) -> None:
        """Free the cache of `tag`."""
        self.drafter.release(tag)
        for kept in (self.drafts, self.prefix_hidden):
            kept.pop(tag, None)


@dataclass(slots=True, eq=False)
class Text:
    """A request's text at its target.

    - `verdict`: the newest one. `path`: accepted nodes of the last draft.
    - `known`: tokens that its drafter knows. `unsent`: hidden states before the tokens after these, in parts.
    - `states`: hidden states of all committed tokens but the last, in parts, for a drafter that has read none of them.
    """

    join: Join
    verdict: Verdict | None = None
    path: list[int] = field(default_factory=list)
    known: int = 0
    unsent: list[torch.Tensor] = field(default_factory=list)
    states: list[torch.Tensor] = field(default_factory=list)

    @property
    def goal(self) -> int:
        """Its length at the end."""
        return self.join.prompt_tokens + self.join.new_tokens

    @property
    def said(self) -> Verdict:
        """The newest verdict, of a text that has one."""
        assert self.verdict is not None
        return self.verdict


@dataclass(eq=False)
class VerifyExecutor(Executor):
    """Runs a verifier station's steps on a target model; keeps the finished outputs by request.

    A text may go on while its draft is on its way. Of a late draft only the part after the text counts, and nothing if
    the text went on otherwise. The next request contains what the drafter does not know: the tokens after the accepted
    nodes of its last draft.

    - `in_turn`: whether the drafter waits for its requests.
    - `sends_hidden`: whether the drafter reads the target's hidden states.
    - `signals`: whether outcomes have the acceptance probabilities of draft tokens, for length rules.
    - `rejoins`: whether a lost drafter may get requests again within a text; then hidden states are kept until its end,
      else until the first request.
    """

    target: Target
    streams: Streams
    pending: PendingDrafts
    sends_hidden: bool = False
    signals: bool = False
    rejoins: bool = False
    in_turn: bool = True

    def __post_init__(self) -> None:
        self.texts: dict[int, Text] = {}
        self.outputs: dict[int, list[int]] = {}

    def receive(self, event: StationEvent, content: Content) -> None:
        """Note a request, or take draft tokens. The request's cache opens with its prefill."""
        self.pending.receive(event, content)
        if isinstance(event, Join):
            self.texts[event.tag] = Text(event)

    def run(self, step: Step) -> tuple[Outcome, ...]:
        """Feed parts of prompts, verify drafts and decode tokens."""
        kinds = {member.tag: step.kind_of(member) for member in step.members}
        parts, taken = [], {}
        for member in sorted(step.members, key=lambda member: member.base):  # what one finds, an earlier one computes
            tag, kind = member.tag, kinds[member.tag]
            if kind in PROMPT:
                self._begin_part(member)
                parts.append(PromptPart(tag, member.tokens, kind == "prefill"))
            else:
                taken[tag] = self._take(member, kind == "verify")
        tags = self.target.cache.in_order(list(taken))
        drafts = self._drafts(tags, [taken[tag][0] for tag in tags])
        states, verdicts = run_together(self.target, parts, tags, drafts, self.signals)
        for part in parts:
            self._end_part(part, states[part.tag], verdicts.get(part.tag))
        for tag in tags:
            verdict, (_, passed, numbers) = verdicts[tag], taken[tag]
            self.texts[tag].path = passed + [numbers[node] if numbers else node for node in verdict.path]
            self._committed(tag, verdict)
        return tuple(
            [
                Outcome() if tag not in taken else Outcome(verdicts[tag].accepted).with_signals(verdicts[tag].signals)
                for tag in kinds
            ]
        )

    def _drafts(self, _tags: Sequence[int], contents: Sequence[Content]) -> Drafts:
        """Put the drafts of rows together for their verification."""
        return drafts_of(contents, self.target.model.device)

    def _take(self, member: Member, verifies: bool) -> tuple[Content, list[int], list[int]]:
        """Return what a row verifies, the nodes of its draft that the text has passed, and the numbers that the others
        had before, if there are such."""
        content, passed = self.pending.take(member.tag), member.behind
        if not verifies:
            return NOTHING, [], []
        if not passed:
            return cut_to(content, member.tokens), [], []
        path = said_by(content, self.target.committed(member.tag)[member.base - passed : member.base])
        if len(path) < passed:  # the text went on otherwise
            return NOTHING, path, []
        rest, numbers = below(content, path[-1])
        return cut_to(rest, member.tokens), path, numbers

    def _committed(self, tag: int, verdict: Verdict) -> None:
        """Note what a row has committed, and the states of the token before each new one."""
        text = self.texts[tag]
        text.verdict = verdict
        if self.sends_hidden and self.rejoins:
            text.states.append(verdict.committed_hidden)
        if self.sends_hidden and text.known:
            text.unsent.append(verdict.committed_hidden)

    def _begin_part(self, member: Member) -> None:
        """Prepare a part of a text; a first part begins anew, behind what a prefix cache has."""
        tag, text = member.tag, self.texts[member.tag]
        self.pending.take(tag)  # of a text that lost its cache
        if tag not in self.target.streams:
            self.streams.open(self.target, "target", text.join)
        if member.base != self.target.cache.lengths[tag]:
            self.target.forget(tag, member.base)
            text.states = []
        text.path = []

    def _end_part(self, part: PromptPart, hidden: torch.Tensor, verdict: Verdict | None) -> None:
        """Keep the states of a part of a text, and the token after its last part."""
        text = self.texts[part.tag]
        if verdict is not None:
            text.verdict = replace(verdict, hidden=hidden[-1:])
            if self.sends_hidden and text.known:  # it had a cache before
                text.unsent.append(hidden[-1:])
        if self.sends_hidden and (self.rejoins or not text.known):
            text.states.append(hidden)

    def resolved(self, step: Step, outcomes: tuple[Outcome, ...]) -> tuple[Outcome, ...]:
        """Mark outcomes after which the drafter has already continued with the target's own token."""
        return tuple(
            [
                self.pending.resolved(member.tag, member.tokens, outcome, self.texts[member.tag].said.token)
                if step.kind_of(member) == "verify"
                else outcome
                for member, outcome in zip(step.members, outcomes, strict=True)
            ]
        )

    def content_of(self, message: Message) -> Content:
        """Return the content of a request: the prefix if it opens, else the accepted nodes and the tokens after them.

        A step that has just ended is not recorded yet: the text may be longer than the request says.
        """
        if not isinstance(message, DraftRequest):
            return NOTHING
        tag, base, committed = message.tag, message.base, self.target.committed(message.tag)
        said = self.pending.tokens_sent(message)
        if not (message.opening or self.in_turn):
            return Content(committed[base - said : base])
        text = self.texts[tag]
        known, text.known = 0 if message.opening else text.known, base
        path, text.path, passed = text.path, [], self.pending.take(tag)
        if passed.tokens:  # a draft that the text has passed
            path = said_by(passed, committed[known : base - 1])
        hidden = self._unsent(text, known, base) if self.sends_hidden else None
        if message.opening:
            return Content(committed[:base], hidden=hidden)
        return Content(committed[known + len(path) : base], path_sent(path), hidden=hidden)

    def _unsent(self, text: Text, known: int, base: int) -> np.ndarray:
        """Return the hidden states of the tokens before each one between these lengths of a text, as they are sent."""
        if known:
            count, states = base - known, torch.cat(text.unsent)
        else:
            count, states = base - 1, torch.cat(text.states)
            if not self.rejoins:
                text.states = []
        text.unsent = [states[count:].clone()] if len(states) > count else []
        return states_sent(states[:count].float().cpu().numpy())

    def release(self, tag: int) -> None:
        """Keep the finished text, free the cache."""
        text = self.texts.pop(tag)
        whole = self.target.committed(tag)[: text.goal]
        self.outputs[text.join.request] = whole[text.join.prompt_tokens :]
        if self.streams.said is not None:
            self.streams.said[tag] = whole
        self.target.release(tag)
        self.pending.forget(tag)


def note_signals(recorded: dict[int, list[Token]], join: Join, committed: int, verdict: Verdict) -> None:
    """Append a verdict's signals to those of its request, by their place in the generated text.

    A place without a draft, of a first token or a bonus token, counts as the one beside it.

    - `recorded`: signals by request, up to the first rejection.
    - `committed`: length of the text after the verdict.
    """
    if not verdict.signals:
        return
    earlier = recorded.setdefault(join.request, [])
    signals = list(verdict.signals[: len(verdict.path) + 1])
    begin = committed - join.prompt_tokens - len(verdict.path) - 1
    earlier += [earlier[-1] if earlier else signals[0]] * (begin - len(earlier)) + signals
