"""Executors of drafter and verifier stations run a station's steps on its model; drafts as messages and as tensors.

An executor takes the content of each accepted message, runs the steps that its station starts, and returns the content
of the messages that its station sends. It takes no decisions.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from engine.decoding.grow import Drafts, check_draft
from engine.decoding.placing import placed
from engine.decoding.trees import static_tree, tree_of
from engine.decoding.verify import Target, Verdict
from engine.net.content import NOTHING, Content, path_sent, states_sent
from engine.node.build import AnyDrafter, Streams
from engine.node.pending import PendingDrafts
from engine.node.worker import Executor
from fleet.acceptance.token import Token
from fleet.errors import InputError
from fleet.policies.outcome import Outcome
from fleet.policies.shapes import depths_of
from fleet.stations.messages import Draft, DraftRequest, Join, Message, StationEvent
from fleet.times.step import Member, Step

PROMPT = frozenset({"prefill", "chunk"})  # kinds of parts of a prompt


class DraftExecutor(Executor):
    """Runs a drafter station's steps on a draft model.

    `ahead`: whether it continues while its targets verify. Then it treats its own tokens as committed, and returns to
    the target's text at the next request. `say`: takes a line on hidden states that lead to no numbers; without it they
    are an InputError.
    """

    def __init__(
        self, drafter: AnyDrafter, streams: Streams, ahead: bool = False, say: Callable[[str], None] | None = None
    ) -> None:
        self.drafter = drafter
        self.streams = streams
        self.ahead = ahead
        self.say = say
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
            tags = [member.tag for member in step.members]
            drafts = self.drafter.draft(tags, [member.tokens for member in step.members])
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
        for member in step.members:
            if step.kind == "prefill":
                self.drafter.prefill(member.tag, hidden=self.prefix_hidden.pop(member.tag, None))
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
        return range(1, event.base - len(self.drafter.committed(event.tag)))

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


class VerifyExecutor(Executor):
    """Runs a verifier station's steps on a target model; keeps the finished outputs by request.

    - `sends_hidden`: whether the drafter reads the target's hidden states.
    - `signals`: whether outcomes have the acceptance probabilities of draft tokens, for length rules.
    - `rejoins`: whether a lost drafter may get requests again within a text; then hidden states are kept until its end,
      else until the first request.
    """

    def __init__(
        self,
        target: Target,
        streams: Streams,
        pending: PendingDrafts,
        sends_hidden: bool = False,
        signals: bool = False,
        rejoins: bool = False,
    ) -> None:
        self.target = target
        self.streams = streams
        self.sends_hidden = sends_hidden
        self.signals = signals
        self.rejoins = rejoins
        self.verdicts: dict[int, Verdict] = {}
        self.states: dict[int, list[torch.Tensor]] = {}  # hidden states of all committed tokens but the last, in parts
        self.pending = pending
        self.open_requests: dict[int, Join] = {}
        self.outputs: dict[int, list[int]] = {}

    def receive(self, event: StationEvent, content: Content) -> None:
        """Note a request, or take draft tokens. The request's cache opens with its prefill."""
        self.pending.receive(event, content)
        if isinstance(event, Join):
            self.open_requests[event.tag] = event

    def run(self, step: Step) -> tuple[Outcome, ...]:
        """Feed parts of prompts, then verify drafts and decode tokens together."""
        outcomes: dict[int, Outcome] = {}
        together = []
        for member in step.members:
            if step.kind_of(member) in PROMPT:
                outcomes[member.tag] = self._feed_prompt(member, step.kind_of(member) == "prefill")
            else:
                together.append(member)
        if together:
            kept = {member.tag: member.tokens if step.kind_of(member) == "verify" else 0 for member in together}
            tags = self.target.cache.in_order(list(kept))
            taken = [cut_to(self.pending.take(tag), kept[tag]) for tag in tags]
            drafts = drafts_of(taken, self.target.model.device)
            for tag, verdict in zip(tags, self.target.verify(tags, drafts, signals=self.signals), strict=True):
                self.verdicts[tag] = verdict
                if self.sends_hidden and self.rejoins:
                    self.states.setdefault(tag, []).append(verdict.committed_hidden)
                outcomes[tag] = with_means(Outcome(verdict.accepted), verdict.signals)
        return tuple([outcomes[member.tag] for member in step.members])

    def _feed_prompt(self, member: Member, is_last: bool) -> Outcome:
        """Feed a part of a text, and commit the token after its last part; a first part begins anew."""
        tag = member.tag
        self.pending.take(tag)  # of a text that lost its cache
        if tag not in self.target.streams:
            self.streams.open(self.target, "target", self.open_requests[tag])
        elif not member.base:
            self.target.forget(tag)
            self.states.pop(tag, None)
        if is_last:
            verdict = self.target.prefill(tag)
            hidden = verdict.hidden
            self.verdicts[tag] = replace(verdict, hidden=hidden[-1:])
        else:
            hidden = self.target.feed_part(tag, member.tokens)
        if self.sends_hidden:
            self.states.setdefault(tag, []).append(hidden)
        return Outcome()

    def resolved(self, step: Step, outcomes: tuple[Outcome, ...]) -> tuple[Outcome, ...]:
        """Mark outcomes after which the drafter has already continued with the target's own token."""
        return tuple(
            [
                self.pending.resolved(member.tag, member.tokens, outcome, self.verdicts[member.tag].token)
                if step.kind_of(member) == "verify"
                else outcome
                for member, outcome in zip(step.members, outcomes, strict=True)
            ]
        )

    def content_of(self, message: Message) -> Content:
        """Return the content of a request: the prefix if it opens, else the new token and the accepted nodes."""
        if not isinstance(message, DraftRequest):
            return NOTHING
        verdict, committed = self.verdicts[message.tag], self.target.committed(message.tag)
        said = self.pending.tokens_sent(message)
        hidden = None
        if self.sends_hidden:
            states = self._states_before(message) if message.opening else verdict.committed_hidden
            hidden = states_sent(states.float().cpu().numpy())
        if message.opening:  # a step that has just ended is not recorded yet
            return Content(committed[: message.base], hidden=hidden)
        if said > 1:
            return Content(committed[message.base - said : message.base])
        return Content([verdict.token], path_sent(verdict.path), hidden=hidden)

    def _states_before(self, opening: DraftRequest) -> torch.Tensor:
        """The hidden states of all tokens but the last that open a session."""
        parts = self.states[opening.tag]
        if not self.rejoins:
            del self.states[opening.tag]
        return torch.cat(parts)[: opening.base - 1]

    def release(self, tag: int) -> None:
        """Keep the finished text, free the cache."""
        join = self.open_requests.pop(tag)
        committed = self.target.committed(tag)
        self.outputs[join.request] = committed[join.prompt_tokens : join.prompt_tokens + join.new_tokens]
        self.target.release(tag)
        self.pending.forget(tag)
        self.verdicts.pop(tag, None)
        self.states.pop(tag, None)


def cut_to(content: Content, tokens: int) -> Content:
    """Return the first tokens of a draft: a step with little room verifies no more. Drafts of trees are never cut."""
    if len(content.tokens) <= tokens or content.nodes is not None:
        return content
    own = None if content.distributions is None else content.distributions[:tokens]
    return Content(content.tokens[:tokens], distributions=own, rule=content.rule)


def with_means(outcome: Outcome, tokens: Sequence[Token]) -> Outcome:
    """Return the outcome of a verification with the means of its tokens' signals, and the largest divergence."""
    if not tokens:
        return outcome
    klds = [token.kld for token in tokens]
    ratio = sum(token.ratio for token in tokens) / len(tokens)
    return Outcome(outcome.accepted, outcome.matches, outcome.drafted, ratio, sum(klds) / len(klds), max(klds))


def contents_of(drafts: Drafts) -> list[Content]:
    """Return each row of `drafts` as the content of its message."""
    tree, n = drafts.tree, drafts.tree.nodes
    copied = drafts.tokens if tree.is_chain else torch.cat([drafts.tokens, tree.parents.expand_as(drafts.tokens)], 1)
    weights = None if drafts.q is None else drafts.q.cpu().numpy()
    contents = []
    for index, (row, count) in enumerate(zip(copied.tolist(), drafts.counts, strict=True)):
        nodes = None if tree.is_chain else row[n : n + count]
        inner = count if nodes is None else max(nodes, default=-1) + 1
        own = None if weights is None else weights[index, :inner]
        contents.append(Content(row[:count], nodes, own, rule=drafts.rule or ""))
    return contents


def drafts_of(contents: Sequence[Content], device: torch.device) -> Drafts:
    """Put the contents of messages together as one batch, for verification.

    InputError if drafts were drawn for different rules, which no target can verify together.
    """
    rules = {content.rule for content in contents if content.tokens}
    if len(rules) > 1:
        drawn = " and ".join(sorted(rule or "nothing drawn" for rule in rules))
        raise InputError(f"drafts of one verification are drawn for different rules: {drawn}; allowed: the target's")
    counts = [len(content.tokens) for content in contents]
    n = max(counts)
    tokens = placed([[*c.tokens, *[-1] * (n - len(c.tokens))] for c in contents], device, torch.long)
    if all(content.nodes is None for content in contents):
        tree, depths, fans = static_tree((1,) * n, device), counts, [1] * len(contents)
    else:
        rows = [list(range(len(c.tokens))) if c.nodes is None else list(c.nodes) for c in contents]
        depths = [max(depths_of(row), default=0) for row in rows]
        fans = [int(np.bincount(row).max()) if row else 1 for row in rows]
        # Shorter rows get a chain below their last node; its tokens are -1 and never accepted.
        parents = np.array([[*row, *range(len(row), n)] for row in rows])
        tree = tree_of(placed(parents, device), max(depths), max(fans))
    q = _stacked([content.distributions for content in contents if content.tokens], counts, device)
    rule: Any = next(iter(rules), "") or None
    return Drafts(tree, tokens, counts, depths, q, fans=fans, rule=rule)


def _stacked(weights: Sequence[np.ndarray | None], counts: Sequence[int], device: torch.device) -> torch.Tensor | None:
    """Stack distributions (inner nodes, V) of rows with a draft, padded to the longest; None without distributions.

    `counts`: nodes of all rows; rows without a draft get zeros.
    """
    present = [rows for rows in weights if rows is not None]
    if not present:
        return None
    inner, own = max(len(rows) for rows in present), iter(present)
    nothing = np.zeros((0, present[0].shape[1]), dtype=present[0].dtype)
    every = [next(own) if count else nothing for count in counts]
    return placed(np.stack([np.pad(rows, ((0, inner - len(rows)), (0, 0))) for rows in every]), device)
