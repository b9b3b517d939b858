"""Executors of drafter and verifier stations: they run a station's steps on its model.

An executor takes the content of each accepted message, runs the steps that its station starts, and returns the content
of the messages that its station sends. It takes no decisions.
"""

from collections.abc import Callable, Sequence

import torch

from engine.decoding.grow import check_draft
from engine.decoding.verify import Target, Verdict
from engine.net.content import NOTHING, Content, path_sent, states_sent
from engine.node.batch_executor import with_means
from engine.node.build import AnyDrafter, Streams
from engine.node.packing import contents_of, drafts_of
from engine.node.pending import PendingDrafts
from engine.node.worker import Executor
from fleet.errors import InputError
from fleet.policies.outcome import Outcome
from fleet.stations.messages import Draft, DraftRequest, Join, Message, StationEvent
from fleet.times.step import Step


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
    - `rejoins`: whether a lost drafter may get requests again within a text; then hidden states are kept until its end.
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
        """Open a stream with its prompt, or take draft tokens."""
        self.pending.receive(event, content)
        if isinstance(event, Join):
            self.streams.open(self.target, "target", event)
            self.open_requests[event.tag] = event

    def run(self, step: Step) -> tuple[Outcome, ...]:
        """Prefill, decode one token, or verify drafts."""
        tags = [member.tag for member in step.members]
        taken = [self.pending.take(tag) for tag in tags]
        if step.kind == "verify":
            drafts = drafts_of(taken, self.target.model.device)
            verdicts = self.target.verify(tags, drafts, signals=self.signals)
        else:
            verdicts = self.target.decode(tags)
        self.verdicts.update(zip(tags, verdicts, strict=True))
        if self.sends_hidden and self.rejoins:
            for tag, verdict in zip(tags, verdicts, strict=True):
                whole = tag not in self.states  # a prefill has those of the prompt
                self.states.setdefault(tag, []).append(verdict.hidden if whole else verdict.committed_hidden)
        return tuple([with_means(Outcome(verdict.accepted), verdict.signals) for verdict in verdicts])

    def resolved(self, step: Step, outcomes: tuple[Outcome, ...]) -> tuple[Outcome, ...]:
        """Mark outcomes after which the drafter has already continued with the target's own token."""
        if step.kind != "verify":
            return outcomes
        return tuple(
            [
                self.pending.resolved(member.tag, member.tokens, outcome, self.verdicts[member.tag].token)
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
        if not self.rejoins:
            return self.verdicts[opening.tag].hidden
        return torch.cat(self.states[opening.tag])[: opening.base - 1]

    def release(self, tag: int) -> None:
        """Keep the finished text, free the cache."""
        join = self.open_requests.pop(tag)
        committed = self.target.committed(tag)
        self.outputs[join.request] = committed[join.prompt_tokens : join.prompt_tokens + join.new_tokens]
        self.target.release(tag)
        self.pending.forget(tag)
        self.verdicts.pop(tag, None)
        self.states.pop(tag, None)
