"""The target's side of the network as a state machine: it owns the truth about its sessions."""

import math
from collections import deque
from collections.abc import Sequence

import msgspec
import numpy as np

from fleet.policies.order import Fifo
from fleet.policies.outcome import Outcome
from fleet.policies.overlap import Ahead
from fleet.scenario.settled import SettledVerifiers
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
from fleet.stations.station import Station, Work
from fleet.times.step import Member, Step, StepKind


class VerifierStation(Station):
    """M_p: prefills prompts, verifies drafts and owns the truth about its sessions.

    Without a drafter (`speculates` is False), or when refused by one, it decodes one token a step: the standalone
    baseline. With a rule in `allocate` it grants each draft its depth, after every round that it verified
    (GoodSpeed, step 5 of figure 1); `rng` is for random grants. Who drafts ahead is granted what the request still
    lacks, so that a tail ends with its request.

    A drafter that does not answer in time is given up: the session decodes alone in a new era, and asks for an empty
    draft from time to time. When that comes, the drafter is back, and the session opens there anew.
    """

    def __init__(self, name: str, verifiers: SettledVerifiers, rng: np.random.Generator | None = None) -> None:
        super().__init__(name, Fifo(), verifiers.group)
        self.speculates = verifiers.speculates
        self.ahead = verifiers.overlap if isinstance(verifiers.overlap, Ahead) else None
        self.grants = Grants(verifiers.allocate, rng) if verifiers.allocate else None
        self.patience = verifiers.patience
        self.drafters = verifiers.drafters
        self.first_epoch = 0
        self.asked_s: dict[int, float] = {}  # since when a session waits for a draft, by tag
        self.retry_s: dict[int, float] = {}  # when a session whose drafter was given up asks again, by tag
        self.silent_s: dict[int, float] = {}  # the same by drafter, until one of its drafts comes
        self._handlers = {
            Join: self._join,
            Draft: self._draft,
            Refusal: self._refused,
            Overdue: self._overdue,
            Retry: self._retry,
            Restarted: self._restarted,
            StepDone: self._done,
        }

    def alarm_s(self) -> float:
        """When a draft is overdue, or a silent drafter is to be asked again."""
        overdue_s = self.patience.overdue_s(min(self.asked_s.values(), default=math.inf))
        return min(overdue_s, *self.retry_s.values(), math.inf)

    def due(self, now_s: float) -> list[StationEvent]:
        """Return what is overdue, and what is to be tried again, at `now_s`."""
        overdue = [tag for tag, asked_s in self.asked_s.items() if self.patience.overdue_s(asked_s) <= now_s]
        retries = [tag for tag, retry_s in self.retry_s.items() if retry_s <= now_s]
        sessions = self.sessions
        return [
            *(Overdue(tag, sessions[tag].request, sessions[tag].epoch) for tag in overdue),
            *(Retry(tag, sessions[tag].request) for tag in retries),
        ]

    def _join(self, event: Join, now_s: float) -> list[Instruction]:
        return self._joins(event, alone=not self.speculates, epoch=self.first_epoch)

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
        if event.tokens == 0 and self._under_way(event.tag):
            return [Ignored(event, f"the empty draft of epoch {event.epoch} of tag {event.tag} came before")]
        self.sessions[event.tag] = extended
        self.asked_s.pop(event.tag, None)
        if self.silent_s:
            self.silent_s.pop(self._drafter_of(event.tag), None)
        self._ask(extended, now_s)
        return []

    def _drafter_of(self, tag: int) -> int:
        return tag % self.drafters

    def _answered(self, event: Draft, session: Session, now_s: float) -> list[Instruction]:
        """Go back to a drafter that was given up, once the running step is over, if this empty draft is its answer."""
        tag = event.tag
        if event.tokens or tag not in self.retry_s or era_of(event.epoch) != era_of(session.epoch):
            return [Ignored(event, f"request {event.request} of tag {tag} decodes alone")]
        del self.retry_s[tag]
        self.silent_s.pop(self._drafter_of(tag), None)
        self.sessions[tag] = msgspec.structs.replace(session, alone=False)
        if self._runs(tag):
            return []
        self._drop_work(tag)
        granted = -1
        if self.grants:
            self.grants.open(tag)
            granted = self.grants.grant([tag])[tag]
        return [self._open_anew(tag, granted, now_s)]

    def _open_anew(self, tag: int, granted: int, now_s: float) -> DraftRequest:
        """Ask for drafts from where the session is now, in a new era."""
        epoch = new_era(self.sessions[tag].epoch) + 1
        session = self.sessions[tag] = msgspec.structs.replace(self.sessions[tag], epoch=epoch)
        return self._request(session, True, granted, now_s)

    def _request(self, session: Session, opening: bool, granted: int, now_s: float) -> DraftRequest:
        """Ask the drafter for a draft, and begin to wait for it."""
        if self.patience.patience_s:
            self.asked_s.setdefault(session.tag, now_s)
        tag, request, base = session.tag, session.request, session.base
        granted = session.goal - base if self.ahead else granted
        return DraftRequest(tag, request, session.epoch, base, opening, session.priority, granted)

    def _overdue(self, event: Overdue, now_s: float) -> list[Instruction]:
        session, tag = self.sessions.get(event.tag), event.tag
        if session is None or (session.request, session.epoch) != (event.request, event.epoch) or session.alone:
            return [Ignored(event, f"request {event.request} of tag {tag} waits for no draft of epoch {event.epoch}")]
        self.asked_s.pop(tag, None)
        self.retry_s[tag] = self.silent_s[self._drafter_of(tag)] = self.patience.retry_s(now_s)
        self.sessions[tag] = msgspec.structs.replace(session, alone=True, epoch=new_era(session.epoch))
        if self.grants:
            self.grants.close(tag)
        if not self._runs(tag):
            self._drop_work(tag)
            self.waiting.append(Work("decode", tag, session.priority))
        return [Leave(tag, event.request, event.epoch)]

    def _retry(self, event: Retry, now_s: float) -> list[Instruction]:
        """Ask for an empty draft, which costs a drafter nothing: decoding goes on meanwhile."""
        session, tag = self.sessions.get(event.tag), event.tag
        if session is None or session.request != event.request or tag not in self.retry_s:
            return [Ignored(event, f"request {event.request} of tag {tag} has given up no drafter")]
        self.retry_s[tag] = self.patience.retry_s(now_s)
        session = self.sessions[tag] = msgspec.structs.replace(session, epoch=new_era(session.epoch) + 1)
        return [DraftRequest(tag, event.request, session.epoch, session.base, True, session.priority, 0)]

    def _members(self) -> int:
        return sum(not session.alone for session in self.sessions.values())

    def _ask(self, session: Session, now_s: float) -> None:
        """Queue a verification of the tail, once it is long enough, unless one is queued or runs."""
        if self.ahead:
            if self._under_way(session.tag):
                return
            complete = session.base + session.tail >= session.goal  # no more of it will come
            if session.tail < self.ahead.least and not complete:
                if self.patience.patience_s:
                    self.asked_s.setdefault(session.tag, now_s)
                return
        self.waiting.append(Work("verify", session.tag, session.priority))

    def _under_way(self, tag: int) -> bool:
        """Whether work for a session is queued, or runs."""
        return any(work.tag == tag for work in self.waiting) or self._runs(tag)

    def _runs(self, tag: int) -> bool:
        """Whether a step for a session runs."""
        return self.running is not None and any(member.tag == tag for member in self.running.members)

    def _drop_work(self, tag: int) -> None:
        """Take what waits for a session out of the buffer."""
        self.waiting = deque(work for work in self.waiting if work.tag != tag)

    def _refused(self, event: Refusal, now_s: float) -> list[Instruction]:
        session = self.sessions.get(event.tag)
        if session is None or session.request != event.request or session.alone:
            return [Ignored(event, f"request {event.request} of tag {event.tag} waits for no drafter")]
        if era_of(session.epoch) != self.first_epoch + event.epoch:
            return [Ignored(event, f"epoch {event.epoch} of tag {event.tag} is over")]
        self.sessions[event.tag] = msgspec.structs.replace(session, alone=True)
        self.asked_s.pop(event.tag, None)
        if self.grants:
            self.grants.close(event.tag)
        self.waiting.append(Work("decode", event.tag, session.priority))
        return []

    def _done(self, event: StepDone, now_s: float) -> list[Instruction]:
        step = self._finish(event, now_s)
        if step is None:
            return [Ignored(event, f"step {event.step} is not running")]
        if self.silent_s and step.kind == "prefill":
            for member in step.members:
                self._begin_alone(member.tag)
        grants = self._learn(step, event.outcomes) if self.grants else {}
        followed: list[Instruction] = []
        for member, outcome in zip(step.members, event.outcomes, strict=True):
            followed += self._commit(step.kind, member, outcome, grants.get(member.tag, -1), now_s)
        return followed

    def _begin_alone(self, tag: int) -> None:
        """Let a new session decode alone if its drafter has been given up: it need not find that out by itself."""
        retry_s = self.silent_s.get(self._drafter_of(tag))
        if retry_s is not None and not self.sessions[tag].alone:
            self.retry_s[tag] = retry_s
            self.sessions[tag] = msgspec.structs.replace(self.sessions[tag], alone=True)

    def _learn(self, step: Step, outcomes: Sequence[Outcome]) -> dict[int, int]:
        """Update the allocation with the outcomes, and ask for the lengths of the drafts that follow."""
        assert self.grants is not None
        for member, outcome in zip(step.members, outcomes, strict=True):
            session = self.sessions[member.tag]
            if session.alone:
                continue
            if step.kind != "verify":  # it begins, or comes back to its drafter
                self.grants.open(member.tag)
            else:
                self.grants.verified(member.tag, member.tokens, outcome)
            if outcome.ended or session.base + outcome.accepted + 1 >= session.goal:
                self.grants.close(member.tag)
        return self.grants.grant([member.tag for member in step.members])

    def _commit(
        self, kind: StepKind, member: Member, outcome: Outcome, granted: int, now_s: float
    ) -> list[Instruction]:
        """Book what a step gave one session, and send the session on its way."""
        verified = member.tokens if kind == "verify" else 0
        before = self.sessions[member.tag]
        session = commit(before, verified, outcome.accepted, outcome.matches, outcome.ended)
        self.sessions[member.tag] = session
        if session.finished:
            self._forget(session.tag)
            self.asked_s.pop(session.tag, None)
            self.retry_s.pop(session.tag, None)
            finished: list[Instruction] = [
                Released(session.tag, session.request),
                Finished(session.tag, session.request),
            ]
            # The drafter knows this request only if a draft was asked for: not after a prefill, not when refused.
            known = kind == "verify" or session.epoch - self.first_epoch >= ERA
            return [Leave(session.tag, session.request), *finished] if known else finished
        if session.alone:
            self.waiting.append(Work("decode", session.tag, session.priority))
            return []
        if session.epoch == before.epoch:  # the rest of the tail stands, and the drafter needs no news
            self._ask(session, now_s)
            return []
        if kind == "decode":  # the drafter is back
            return [self._open_anew(session.tag, granted, now_s)]
        if self.ahead and self.ahead.busy and kind == "verify":
            self.waiting.append(Work("verify", session.tag, session.priority))  # of an empty tail: one token alone
        return [self._request(session, kind == "prefill", granted, now_s)]

    def _bind(self, kind: StepKind, session: Session) -> Member:
        tokens = {"prefill": session.base, "verify": session.tail, "decode": 1}[kind]
        base = 0 if kind == "prefill" else session.base
        return Member(session.tag, session.request, session.epoch, base, tokens)
