"""The rounds of a target as a state machine; it has the authoritative state of its sessions.

A session is one value (`session.py`). Between two events it is in one of these states:

| state | it waits for | told by | next |
|---|---|---|---|
| prompt | its prefill, which may take several chunks | work `prefill` | asked; here; owed; alone, without a drafter |
| asked | the draft of its epoch, from another device | `requested` = `epoch` | tail |
| here | a draft of the drafter on this device | `granted`, and nothing is requested | tail |
| tail | its verification | work `verify` | asked; here; tail, if the rest of its tail stays valid (AMUSD) |
| owed | the draft of a request that a preemption made stale | `requested` < `epoch` | asked, with `granted` |
| alone | its next token | `alone` | alone; asked, when its drafter answers again |

Events change the state from outside. A preemption, when the KV cache is full, leads from any state to prompt. A refusal
or a timeout (`verifier.py`) leads from asked, tail and owed to alone; a session whose text is not in the cache is then
prefilled first. With late = "decode" a session in asked or owed goes on by single tokens, and `passed` counts them: the
draft loses as many. A target of a drafter that drafts ahead sends a request only where an epoch begins, and is in tail
and asked at once. A session ends with its goal.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from specfleet.fleet.policies.blocks import CachedBlocks
from specfleet.fleet.policies.continuous import Schedule
from specfleet.fleet.policies.order import Fifo, Work
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.policies.overlap import Ahead
from specfleet.fleet.policies.shapes import reach
from specfleet.fleet.scenario.resolved import ResolvedVerifiers
from specfleet.fleet.stations.buffer import Tasks
from specfleet.fleet.stations.grants import Grants
from specfleet.fleet.stations.messages import (
    Draft,
    DraftRequest,
    Finished,
    Ignored,
    Instruction,
    Join,
    Leave,
    Released,
    StationEvent,
    StepDone,
)
from specfleet.fleet.stations.rows import Rows
from specfleet.fleet.stations.session import ERA, Session, commit, extend
from specfleet.fleet.stations.station import Station
from specfleet.fleet.stations.timeouts import Silence
from specfleet.fleet.times.step import Member, Step, StepKind


class TargetStation(Station):
    """M_p with a drafter that answers: prefills prompts, verifies drafts and commits tokens.

    Without a drafter (`alone`) it decodes one token in a step: the standalone baseline. With a rule in `allocate` it
    grants each draft its depth, after every verified round (GoodSpeed, step 5 of figure 1); `rng` is for random grants.
    A drafter that drafts ahead is granted the rest of the request, so that a tail ends with its request.

    Its running requests share each step: some prefill, others verify or decode (`rows.py`). Requests beyond the limits
    wait; a request that loses its KV cache is prefilled again, with the text that it has.
    """

    def __init__(self, name: str, verifiers: ResolvedVerifiers, rng: np.random.Generator | None = None) -> None:
        super().__init__(name, Fifo())
        self.waiting: Tasks = Tasks()  # type: ignore[assignment]
        batching, again = verifiers.batching, verifiers.drafts.again if verifiers.drafts else 0
        cache = CachedBlocks(batching.kv_blocks, batching.block_size, again) if verifiers.prefix_cache else None
        self.rows = Rows(batching, verifiers.late, cache)
        self.planned: Schedule | None = None
        self.is_planned = False  # whether `planned` holds for the present state
        self.ahead = verifiers.overlap if isinstance(verifiers.overlap, Ahead) else None
        self.grants = Grants(verifiers.allocate, rng, self.rows.waiting) if verifiers.allocate else None
        self.silence = Silence(verifiers.patience, verifiers.drafters)
        self.alone = not verifiers.speculates
        self.drafts = verifiers.drafts
        self.results: list[Instruction] = []  # of the step before a running draft
        self.reads_again = bool(verifiers.prefill and verifiers.prefill.draft_cache == "computed")
        self.unread: dict[int, int] = {}  # tokens of received texts that the drafter on this device has yet to read
        self._handlers |= {Join: self._join, Draft: self._draft}

    def handle(self, event: StationEvent, now_s: float) -> list[Instruction]:
        """Process an event at `now_s`; return the instructions that follow."""
        self.is_planned = False
        instructions = super().handle(event, now_s)
        if self.rows.ended:
            self.rows.settle()
        return instructions

    @property
    def ready(self) -> bool:
        """Whether `plan` would start a step now."""
        return self.running is None and (bool(self.program) or self._next_step() is not None)

    def _next_step(self) -> Schedule | None:
        if not self.is_planned:
            step = self.rows.next_step(self.sessions, self.waiting)
            self.planned = self.grants.chosen(step) if self.grants and step else step
            self.is_planned = True
        return self.planned

    def _plan_program(self) -> bool:
        step = self._next_step()
        if step is None:
            return False
        self.is_planned = False
        for row in step.preempted:
            self._preempted(row.tag)
        self.rows.begin(step, self.waiting)  # a preempted row may be admitted again
        for share in step.shares:
            if share.samples:
                self.waiting.drop(share.tag)
        kinds = {part.kind for part in self.rows.parts.values()}
        self.program.append((kinds.pop() if len(kinds) == 1 else "mixed", tuple(self.rows.parts)))
        return True

    def _preempted(self, tag: int) -> None:
        """Prefill a session anew, since its cache is lost; drafts on the way are stale."""
        session = self.sessions[tag]
        if session.has_asked:
            session = msgspec.structs.replace(session, epoch=session.epoch + 1, tail=0, granted=None)
            self.sessions[tag] = session
        self.silence.waits_no_more(tag)
        self.unread.pop(tag, None)
        if self.grants:
            self.grants.withdraw(tag)
        self.waiting.drop(tag)
        self.waiting.append(Work("prefill", tag, session.priority))

    def _join(self, event: Join, now_s: float) -> list[Instruction]:
        refused = super()._join(event, now_s)
        if not refused:
            self.rows.join(event)
            self._received(event)
            if self.grants and self.grants.by_client and len(self.grants.states) < self.rows.batching.max_num_seqs:
                self.grants.open(event.tag)  # its share waits for its prefill
        return refused

    def _received(self, event: Join) -> None:
        """Take over what a prefill server has computed and drafted."""
        if event.computed and self.reads_again and self.drafts and self.drafts.reads_prompts:
            self.unread[event.tag] = event.computed
        if event.drafted:
            session = self.sessions[event.tag]
            self.sessions[event.tag] = msgspec.structs.replace(session, epoch=session.epoch + 1, tail=event.drafted)
            self.waiting.drop(event.tag)
            self.waiting.append(Work("verify", event.tag, event.priority))

    def _forget(self, tag: int) -> None:
        super()._forget(tag)
        self.unread.pop(tag, None)
        self.rows.forget(tag)

    def _draft(self, event: Draft, now_s: float) -> list[Instruction]:
        if self.grants:
            self.grants.queued = event.queued
        session = self.sessions.get(event.tag)
        if session is None or session.request != event.request:
            return [Ignored(event, f"request {event.request} of tag {event.tag} is not open")]
        if session.alone:
            return self._answered(event, session, now_s)
        if session.requested == event.epoch != session.epoch:
            return self._came_after_all(event, session, now_s)
        extended = extend(session, event.epoch, event.base + session.passed, event.tokens)
        reason = extended if isinstance(extended, str) else self._unasked(event, session)
        if isinstance(extended, str) or reason:
            return [Ignored(event, reason)]
        self.sessions[event.tag] = extended
        self.silence.heard(event.tag)
        if session.passed:
            return self._drop(extended, session.passed, now_s)
        self._ask(extended, now_s)
        return []

    def _answered(self, event: Draft, session: Session, now_s: float) -> list[Instruction]:
        return [Ignored(event, f"request {event.request} of tag {event.tag} decodes alone")]

    def _came_after_all(self, event: Draft, session: Session, now_s: float) -> list[Instruction]:
        """Drop the draft of a session that was preempted meanwhile; now its drafter may get the next request."""
        tag, granted = event.tag, session.granted
        session = self.sessions[tag] = msgspec.structs.replace(session, requested=-1, granted=None, passed=0)
        self.silence.heard(tag)
        if granted is None:
            return [Ignored(event, f"the cache of tag {tag} was lost since its request")]
        return [self._request(session, False, granted, now_s)]

    def _drop(self, session: Session, tokens: int, now_s: float) -> list[Instruction]:
        """Drop the first tokens of a late draft, which the text has passed; ask again if no token is left."""
        tag = session.tag
        self.waiting.drop(tag)
        if session.tail > tokens:
            session = self.sessions[tag] = msgspec.structs.replace(session, tail=session.tail - tokens)
            self._ask(session, now_s)
            return []
        session = self.sessions[tag] = msgspec.structs.replace(session, tail=0, epoch=session.epoch + 1, passed=0)
        granted = -1
        if self.grants:
            self.grants.withdraw(tag)
            granted = self.grants.grant([tag])[tag]
        return [self._request(session, False, granted, now_s)]

    def _unasked(self, event: Draft, session: Session) -> str:
        """Return why no honest drafter sends this draft, which continues its session; empty if one may."""
        if not session.has_asked:
            return f"request {event.request} of tag {event.tag} has asked for no draft yet"
        decodes = self._runs(event.tag) and self.rows.parts[event.tag].kind == "decode" and not session.tail
        if event.tokens == 0 if self.ahead else self._under_way(event.tag) and not decodes:
            return f"the draft of epoch {event.epoch} of tag {event.tag} is empty, or came before"
        if self.ahead and session.base + session.tail + event.tokens > session.goal:
            return f"the tail of tag {event.tag} is complete"
        return ""

    def _request(self, session: Session, opening: bool, granted: int, now_s: float) -> DraftRequest:
        self.silence.waits(session.tag, now_s)
        if not self.ahead:
            self.sessions[session.tag] = msgspec.structs.replace(session, requested=session.epoch)
        tag, request, base = session.tag, session.request, session.base
        granted = session.goal - base if self.ahead else granted
        return DraftRequest(tag, request, session.epoch, base, opening, session.priority, granted)

    def _ask(self, session: Session, now_s: float) -> None:
        """Queue a verification of the tail, once it is long enough, unless one is queued or runs."""
        if self.ahead:
            if self._under_way(session.tag):
                return
            complete = session.base + session.tail >= session.goal  # the tail is complete
            if session.tail < self.ahead.least and not complete:
                self.silence.waits(session.tag, now_s)
                return
        self.waiting.append(Work("verify", session.tag, session.priority))

    def _under_way(self, tag: int) -> bool:
        """Return whether work for a session is queued or runs."""
        return self.waiting.holds(tag) or self._runs(tag)

    def _runs(self, tag: int) -> bool:
        return self.running is not None and any(member.tag == tag for member in self.running.members)

    def _ended(self, step: Step, event: StepDone, now_s: float) -> list[Instruction]:
        parts = list(zip(step.members, event.outcomes, strict=True))
        if step.kind in ("draft", "draft_prefill"):
            self._drafted(parts)
            results, self.results = self.results, []
            return results
        for member, outcome in parts:
            self.rows.end(member.tag, outcome.accepted)
        parts = [part for part in parts if step.kind_of(part[0]) != "chunk"]
        grants = self._learn(step, parts) if self.grants else {}
        followed: list[Instruction] = []
        for member, outcome in parts:
            followed += self._commit(step.kind_of(member), member, outcome, grants.get(member.tag, -1), now_s)
        if self.drafts and self._draft_next(step):
            self.results = followed  # they leave after the draft
            return []
        return followed

    def _draft_next(self, step: Step) -> bool:
        """Let the drafter on this device read what a step has fed, and draft for rows that go on; False if neither."""
        assert self.drafts is not None
        tags = tuple([member.tag for member in step.members if member.tag in self.sessions])
        if not self.drafts.reads_prompts:
            tags = tuple([tag for tag in tags if self.sessions[tag].granted is not None])
        drafts = any(self.sessions[tag].granted for tag in tags)
        if tags and (drafts or self.drafts.reads_prompts):
            self.program.append(("draft" if drafts else "draft_prefill", tags))
            return True
        self._drafted([(self._bind("draft", self.sessions[tag]), Outcome()) for tag in tags])
        return False

    def _drafted(self, parts: Sequence[tuple[Member, Outcome]]) -> None:
        """Append the drafts of a step to their sessions, and queue their verification."""
        for member, outcome in parts:
            session = self.sessions[member.tag]
            if session.granted is not None:
                drafted = member.tokens if outcome.drafted < 0 else outcome.drafted
                self.sessions[member.tag] = msgspec.structs.replace(session, tail=drafted, granted=None)
                self.waiting.append(Work("verify", member.tag, session.priority))
                if self.grants:
                    self.grants.drew(member.tag, outcome.entropies)

    def _learn(self, step: Step, parts: Sequence[tuple[Member, Outcome]]) -> dict[int, int]:
        """Update the allocation with the outcomes, and get the lengths of the next drafts."""
        assert self.grants is not None
        for member, outcome in parts:
            session = self.sessions[member.tag]
            if session.alone or step.kind_of(member) == "decode":
                continue
            if step.kind_of(member) == "prefill":
                self.grants.open(member.tag)
            else:
                self.grants.verified(member.tag, member.tokens, outcome)
            if session.base + outcome.accepted + 1 >= session.goal:
                self.grants.close(member.tag)
        return self.grants.grant([member.tag for member, _ in parts if step.kind_of(member) != "decode"])

    def _commit(
        self, kind: StepKind, member: Member, outcome: Outcome, granted: int, now_s: float
    ) -> list[Instruction]:
        verified = member.tokens if kind == "verify" else 0
        before = self.sessions[member.tag]
        if kind == "decode" and not before.alone and before.base + 1 < before.goal:
            return self._went_on(before, now_s)
        session = commit(before, verified, outcome.accepted, outcome.matches)
        self.sessions[member.tag] = session
        if session.finished:
            return self._finish(kind, before, session)
        return self._next_round(before, session, granted, now_s)

    def _next_round(self, before: Session, session: Session, granted: int, now_s: float) -> list[Instruction]:
        """Queue a session's next step, or get its next draft. `before`: the session before its last step."""
        if session.alone:
            self.waiting.append(Work("decode", session.tag, session.priority))
            return []
        if session.epoch == before.epoch:  # the rest of the tail stays valid, and the drafter needs no message
            self._ask(session, now_s)
            return []
        if self.drafts:
            granted = granted if granted >= 0 else self.drafts.depth
            self.sessions[session.tag] = msgspec.structs.replace(session, granted=granted)
            return []
        opening = not before.has_asked
        if self.ahead and self.ahead.busy and not opening:
            self.waiting.append(Work("verify", session.tag, session.priority))  # of an empty tail: one token alone
        if session.requested >= 0:  # a drafter gets one request of a session at a time
            self.silence.waits(session.tag, now_s)
            self.sessions[session.tag] = msgspec.structs.replace(session, granted=granted)
            return []
        return [self._request(session, opening, granted, now_s)]

    def _went_on(self, before: Session, now_s: float) -> list[Instruction]:
        """Commit a token of a session with a late draft; one that came meanwhile, perhaps empty, loses its first."""
        session = msgspec.structs.replace(before, base=before.base + 1, passed=before.passed + 1)
        self.sessions[session.tag] = session
        return [] if session.requested >= 0 else self._drop(session, 1, now_s)

    def _finish(self, kind: StepKind, before: Session, session: Session) -> list[Instruction]:
        """Release a complete request. `before`: its session before its last step."""
        tag, request = session.tag, session.request
        self._forget(tag)
        self.silence.forget(tag)
        if self.grants:
            self.grants.close(tag)
        # A drafter has the request only if a draft was requested: not after a first prefill, nor a refusal.
        known = kind == "verify" or (before.has_asked and not before.alone)
        known |= session.epoch - self.first_epoch >= ERA
        leave: list[Instruction] = [Leave(tag, request)] if known and not self.drafts else []
        return [*leave, Released(tag, request), Finished(tag, request)]

    def _bind(self, kind: StepKind, session: Session) -> Member:
        tag = session.tag
        if kind in ("draft", "draft_prefill"):
            assert self.drafts is not None
            depth = reach(session.granted or 0, session.base, self.drafts.positions)
            fed = self.rows.parts[tag].share
            read = fed.tokens + self.unread.pop(tag, 0)
            of_prompt = read > fed.drafts + 1  # else a draft and the token before it
            return Member(tag, session.request, session.epoch, session.base, depth, read, of_prompt=of_prompt)
        part, share = self.rows.parts[tag]
        base = share.computed if part in ("prefill", "chunk") else session.base
        tokens = share.drafts if part == "verify" else share.tokens
        behind = session.passed if part == "verify" else 0
        return Member(tag, session.request, session.epoch, base, tokens, behind, part if kind == "mixed" else "")
