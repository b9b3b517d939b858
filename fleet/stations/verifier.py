"""The target's side of the network: rounds, and drafters that refuse, are given up, and return."""

import msgspec
import numpy as np

from specfleet.fleet.policies.order import Work
from specfleet.fleet.scenario.resolved import ResolvedVerifiers
from specfleet.fleet.stations.messages import (
    Draft,
    DraftRequest,
    Ignored,
    Instruction,
    Leave,
    Overdue,
    Refusal,
    Restarted,
    Retry,
    StationEvent,
    StepDone,
)
from specfleet.fleet.stations.session import INCARNATION, Session, decode_alone, era_of, new_era
from specfleet.fleet.stations.target import TargetStation
from specfleet.fleet.times.step import Step


class VerifierStation(TargetStation):
    """M_p: a target that decodes alone after a refusal, and while its drafter does not answer.

    A drafter that times out is given up: the session decodes alone in a new era, and from time to time requests an
    empty draft. When that arrives, the drafter is back, and the session opens there again.
    """

    def __init__(self, name: str, verifiers: ResolvedVerifiers, rng: np.random.Generator | None = None) -> None:
        super().__init__(name, verifiers, rng)
        self._handlers |= {
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

    def _refused(self, event: Refusal, now_s: float) -> list[Instruction]:
        session = self.sessions.get(event.tag)
        if session is None or session.request != event.request or session.alone or not session.has_asked:
            return [Ignored(event, f"request {event.request} of tag {event.tag} waits for no drafter")]
        if era_of(session.epoch) != event.epoch:
            return [Ignored(event, f"epoch {event.epoch} of tag {event.tag} is over")]
        self.sessions[event.tag] = decode_alone(session, session.epoch)
        self.silence.forget(event.tag)
        if self.grants:
            self.grants.close(event.tag)
        self._decode_alone(session)
        # A busy target has asked again before the refusal came; a router may have opened the session elsewhere.
        return [Leave(event.tag, event.request)] if self.ahead and self.ahead.busy else []

    def _overdue(self, event: Overdue, now_s: float) -> list[Instruction]:
        session, tag = self.sessions.get(event.tag), event.tag
        if session is None or (session.request, session.epoch) != (event.request, event.epoch) or session.alone:
            return [Ignored(event, f"request {event.request} of tag {tag} waits for no draft of epoch {event.epoch}")]
        self.silence.give_up(tag, now_s)
        self.sessions[tag] = decode_alone(session, new_era(session.epoch))
        if self.grants:
            self.grants.close(tag)
        self._decode_alone(session)
        return [Leave(tag, event.request, event.epoch)]

    def _decode_alone(self, session: Session) -> None:
        """Queue plain decoding instead of a verification; a running step, or a prefill, queues it at its end."""
        if not self._runs(session.tag) and not self._has_no_cache(session.tag):
            self.waiting.drop(session.tag)
            self.waiting.append(Work("decode", session.tag, session.priority))

    def _has_no_cache(self, tag: int) -> bool:
        """Return whether a session waits for a prefill, or for the rest of one."""
        return self.waiting.kind(tag) == "prefill"

    def _retry(self, event: Retry, now_s: float) -> list[Instruction]:
        """Request an empty draft, which costs a drafter nothing; decoding continues meanwhile."""
        session, tag = self.sessions.get(event.tag), event.tag
        waits = session is not None and session.request == event.request and tag in self.silence.retry_s
        if session is None or not waits:
            return [Ignored(event, f"request {event.request} of tag {tag} has given up no drafter")]
        session = self.sessions[tag] = msgspec.structs.replace(session, epoch=new_era(session.epoch) + 1)
        self.silence.asks_again(tag, session.epoch, now_s)
        return [DraftRequest(tag, event.request, session.epoch, session.base, True, session.priority, 0)]

    def _answered(self, event: Draft, session: Session, now_s: float) -> list[Instruction]:
        """Return to a lost drafter, after the running step, if this empty draft answers a retry: of late ones an
        earlier one, too."""
        tag = event.tag
        if event.tokens or not self.silence.has_retried(tag, event.epoch):
            return super()._answered(event, session, now_s)
        self.silence.heard(tag)
        if not self._runs(tag) and not self._has_no_cache(tag):
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

    def _next_round(self, before: Session, session: Session, granted: int, now_s: float) -> list[Instruction]:
        """Return to a drafter that has answered meanwhile, or go on as before."""
        if session.tag in self.silence.returning:
            return [self._go_back(session.tag, now_s)]
        return super()._next_round(before, session, granted, now_s)

    def _ended(self, step: Step, event: StepDone, now_s: float) -> list[Instruction]:
        if self.silence.silent_s:
            for member in step.members:
                session = self.sessions[member.tag]
                if step.kind_of(member) == "prefill" and not session.alone and not session.has_asked:
                    alone = self.silence.begins_alone(member.tag)
                    self.sessions[member.tag] = msgspec.structs.replace(session, alone=alone)
                    if alone and self.grants:
                        self.grants.close(member.tag)
        return super()._ended(step, event, now_s)
