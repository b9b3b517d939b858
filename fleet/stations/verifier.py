"""The target's side of the network as a state machine; it has the authoritative state of its sessions."""

from collections.abc import Sequence

import msgspec
import numpy as np

from fleet.policies.order import Fifo
from fleet.policies.outcome import Outcome
from fleet.policies.overlap import Ahead
from fleet.scenario.resolved import ResolvedVerifiers
from fleet.stations.buffer import Work
from fleet.stations.grants import Grants
from fleet.stations.messages import (
    Draft,
    DraftRequest,
    Finished,
    Ignored,
    Instruction,
    Join,
    Leave,
    Overdue,
    Refusal,
    Released,
    Restarted,
    Retry,
    StationEvent,
    StepDone,
)
from fleet.stations.session import ERA, INCARNATION, Session, commit, era_of, extend, new_era
from fleet.stations.station import Station
from fleet.stations.timeouts import Silence
from fleet.times.step import Member, Step, StepKind


class VerifierStation(Station):
    """M_p: prefills prompts, verifies drafts and commits tokens.

    Without a drafter (`alone`), or after a refusal, it decodes one token in a step: the standalone
    baseline. With a rule in `allocate` it grants each draft its depth, after every verified round (GoodSpeed, step 5
    of figure 1); `rng` is for random grants. A drafter that drafts ahead is granted the rest of the request, so that
    a tail ends with its request.

    A drafter that times out is given up: the session decodes alone in a new era, and from time to time requests an
    empty draft. When that arrives, the drafter is back, and the session opens there again.
    """

    def __init__(self, name: str, verifiers: ResolvedVerifiers, rng: np.random.Generator | None = None) -> None:
        super().__init__(name, Fifo(), verifiers.group)
        self.ahead = verifiers.overlap if isinstance(verifiers.overlap, Ahead) else None
        self.grants = Grants(verifiers.allocate, rng) if verifiers.allocate else None
        self.silence = Silence(verifiers.patience, verifiers.drafters)
        self.alone = not verifiers.speculates
        self._handlers |= {
            Join: self._join,
            Draft: self._draft,
            Refusal: self._refused,
            Overdue: self._overdue,
            Retry: self._retry,
            Restarted: self._restarted,
        }

    def alarm_s(self) -> float:
        """Time of the next draft timeout or retry."""
        return self.silence.alarm_s()

    def due(self, now_s: float) -> list[StationEvent]:
        """Return the draft timeouts and retries due at `now_s`."""
        overdue = [self.sessions[tag] for tag in self.silence.overdue(now_s)]
        retries = [self.sessions[tag] for tag in self.silence.retries(now_s)]
        return [
            *(Overdue(session.tag, session.request, session.epoch) for session in overdue),
            *(Retry(session.tag, session.request) for session in retries),
        ]

    def _restarted(self, event: Restarted, now_s: float) -> list[Instruction]:
        self.first_epoch = event.incarnation * INCARNATION
        return []

    def _draft(self, event: Draft, now_s: float) -> list[Instruction]:
        session = self.sessions.get(event.tag)
        if session is None or session.request != event.request:
            return [Ignored(event, f"request {event.request} of tag {event.tag} is not open")]
        if session.alone:
            return self._answered(event, session, now_s)
        extended = extend(session, event.epoch, event.base, event.tokens)
        if isinstance(extended, str):
            return [Ignored(event, extended)]
        if reason := self._unasked(event, session):
            return [Ignored(event, reason)]
        self.sessions[event.tag] = extended
        self.silence.heard(event.tag)
        self._ask(extended, now_s)
        return []

    def _unasked(self, event: Draft, session: Session) -> str:
        """Return why no honest drafter sends this draft, which continues its session; empty if one may."""
        if _has_not_asked(session):
            return f"request {event.request} of tag {event.tag} has asked for no draft yet"
        if event.tokens == 0 if self.ahead else self._under_way(event.tag):
            return f"the draft of epoch {event.epoch} of tag {event.tag} is empty, or came before"
        if self.ahead and session.base + session.tail + event.tokens > session.goal:
            return f"the tail of tag {event.tag} is complete"
        return ""

    def _answered(self, event: Draft, session: Session, now_s: float) -> list[Instruction]:
        """Return to a drafter that was given up, after the running step, if this empty draft is its answer."""
        tag = event.tag
        retried = tag in self.silence.retry_s and era_of(event.epoch) == era_of(session.epoch)
        if event.tokens or not retried:
            return [Ignored(event, f"request {event.request} of tag {tag} decodes alone")]
        self.silence.heard(tag)
        if not self._runs(tag):
            self.waiting.drop(tag)
            return [self._go_back(tag, now_s)]
        self.silence.goes_back(tag)
        return []

    def _go_back(self, tag: int, now_s: float) -> DraftRequest:
        """Request drafts again, from the session's present state, in a new era."""
        self.silence.forget(tag)
        epoch = new_era(self.sessions[tag].epoch) + 1
        session = msgspec.structs.replace(self.sessions[tag], alone=False, epoch=epoch, tail=0)
        self.sessions[tag] = session
        granted = -1
        if self.grants:
            self.grants.open(tag)
            granted = self.grants.grant([tag])[tag]
        return self._request(session, True, granted, now_s)

    def _request(self, session: Session, opening: bool, granted: int, now_s: float) -> DraftRequest:
        """Request a draft, and start its timeout."""
        self.silence.waits(session.tag, now_s)
        tag, request, base = session.tag, session.request, session.base
        granted = session.goal - base if self.ahead else granted
        return DraftRequest(tag, request, session.epoch, base, opening, session.priority, granted)

    def _overdue(self, event: Overdue, now_s: float) -> list[Instruction]:
        session, tag = self.sessions.get(event.tag), event.tag
        if session is None or (session.request, session.epoch) != (event.request, event.epoch) or session.alone:
            return [Ignored(event, f"request {event.request} of tag {tag} waits for no draft of epoch {event.epoch}")]
        self.silence.give_up(tag, now_s)
        self.sessions[tag] = msgspec.structs.replace(session, alone=True, epoch=new_era(session.epoch))
        if self.grants:
            self.grants.close(tag)
        self._decode_alone(session)
        return [Leave(tag, event.request, event.epoch)]

    def _retry(self, event: Retry, now_s: float) -> list[Instruction]:
        """Request an empty draft, which costs a drafter nothing; decoding continues meanwhile."""
        session, tag = self.sessions.get(event.tag), event.tag
        waits = session is not None and session.request == event.request and tag in self.silence.retry_s
        if session is None or not waits:
            return [Ignored(event, f"request {event.request} of tag {tag} has given up no drafter")]
        self.silence.asks_again(tag, now_s)
        session = self.sessions[tag] = msgspec.structs.replace(session, epoch=new_era(session.epoch) + 1)
        return [DraftRequest(tag, event.request, session.epoch, session.base, True, session.priority, 0)]

    def _members(self) -> int:
        return sum(not session.alone for session in self.sessions.values())

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
        return self.waiting.holds(tag) > 0 or self._runs(tag)

    def _runs(self, tag: int) -> bool:
        """Return whether a step for a session runs."""
        return self.running is not None and any(member.tag == tag for member in self.running.members)

    def _refused(self, event: Refusal, now_s: float) -> list[Instruction]:
        session = self.sessions.get(event.tag)
        if session is None or session.request != event.request or session.alone or _has_not_asked(session):
            return [Ignored(event, f"request {event.request} of tag {event.tag} waits for no drafter")]
        if era_of(session.epoch) != event.epoch:
            return [Ignored(event, f"epoch {event.epoch} of tag {event.tag} is over")]
        self.sessions[event.tag] = msgspec.structs.replace(session, alone=True)
        self.silence.forget(event.tag)
        if self.grants:
            self.grants.close(event.tag)
        self._decode_alone(session)
        return []

    def _decode_alone(self, session: Session) -> None:
        """Queue plain decoding instead of a verification; a running step queues it at its end."""
        if not self._runs(session.tag):
            self.waiting.drop(session.tag)
            self.waiting.append(Work("decode", session.tag, session.priority))

    def _ended(self, step: Step, event: StepDone, now_s: float) -> list[Instruction]:
        if self.silence.silent_s and step.kind == "prefill":
            for tag in [member.tag for member in step.members if not self.sessions[member.tag].alone]:
                alone = self.silence.begins_alone(tag)
                self.sessions[tag] = msgspec.structs.replace(self.sessions[tag], alone=alone)
        grants = self._learn(step, event.outcomes) if self.grants else {}
        followed: list[Instruction] = []
        for member, outcome in zip(step.members, event.outcomes, strict=True):
            followed += self._commit(step.kind, member, outcome, grants.get(member.tag, -1), now_s)
        return followed

    def _learn(self, step: Step, outcomes: Sequence[Outcome]) -> dict[int, int]:
        """Update the allocation with the outcomes, and get the lengths of the next drafts."""
        assert self.grants is not None
        for member, outcome in zip(step.members, outcomes, strict=True):
            session = self.sessions[member.tag]
            if session.alone:
                continue
            if step.kind == "prefill":
                self.grants.open(member.tag)
            else:
                self.grants.verified(member.tag, member.tokens, outcome)
            if session.base + outcome.accepted + 1 >= session.goal:
                self.grants.close(member.tag)
        return self.grants.grant([member.tag for member in step.members])

    def _commit(
        self, kind: StepKind, member: Member, outcome: Outcome, granted: int, now_s: float
    ) -> list[Instruction]:
        """Commit a session's tokens, and start its next round."""
        verified = member.tokens if kind == "verify" else 0
        before = self.sessions[member.tag]
        session = commit(before, verified, outcome.accepted, outcome.matches)
        self.sessions[member.tag] = session
        if session.finished:
            self._forget(session.tag)
            self.silence.forget(session.tag)
            finished: list[Instruction] = [
                Released(session.tag, session.request),
                Finished(session.tag, session.request),
            ]
            # The drafter has the request only if a draft was requested: not after a prefill, not after a refusal.
            known = kind == "verify" or session.epoch - self.first_epoch >= ERA
            return [Leave(session.tag, session.request), *finished] if known else finished
        if session.tag in self.silence.returning:
            return [self._go_back(session.tag, now_s)]
        if session.alone:
            self.waiting.append(Work("decode", session.tag, session.priority))
            return []
        if session.epoch == before.epoch:  # the rest of the tail stays valid, and the drafter needs no message
            self._ask(session, now_s)
            return []
        opening = kind == "prefill"
        if self.ahead and self.ahead.busy and not opening:
            self.waiting.append(Work("verify", session.tag, session.priority))  # of an empty tail: one token alone
        return [self._request(session, opening, granted, now_s)]

    def _bind(self, kind: StepKind, session: Session) -> Member:
        tokens = {"prefill": session.base, "verify": session.tail, "decode": 1}[kind]
        base = 0 if kind == "prefill" else session.base
        return Member(session.tag, session.request, session.epoch, base, tokens)


def _has_not_asked(session: Session) -> bool:
    """Whether a session has asked for no draft since it began: it has not ended its prefill."""
    return session.epoch % ERA == 0
