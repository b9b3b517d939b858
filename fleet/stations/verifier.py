"""The target's side of the network as a state machine: it owns the truth about its sessions."""

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
    Refusal,
    Released,
    StepDone,
)
from fleet.stations.session import Session, commit, extend
from fleet.stations.station import Station, Work
from fleet.times.step import Member, Step, StepKind


class VerifierStation(Station):
    """M_p: prefills prompts, verifies drafts and owns the truth about its sessions.

    Without a drafter (`speculates` is False), or when refused by one, it decodes one token a step: the standalone
    baseline. With a rule in `allocate` it grants each draft its depth, after every round that it verified
    (GoodSpeed, step 5 of figure 1); `rng` is for random grants. Who drafts ahead is granted what the request still
    lacks, so that a tail ends with its request.
    """

    def __init__(self, name: str, verifiers: SettledVerifiers, rng: np.random.Generator | None = None) -> None:
        super().__init__(name, Fifo(), verifiers.group)
        self.speculates = verifiers.speculates
        self.ahead = verifiers.overlap if isinstance(verifiers.overlap, Ahead) else None
        self.grants = Grants(verifiers.allocate, rng) if verifiers.allocate else None
        self._handlers = {
            Join: self._join,
            Draft: self._draft,
            Refusal: self._refused,
            StepDone: self._done,
        }

    def _join(self, event: Join, now_s: float) -> list[Instruction]:
        return self._joins(event, alone=not self.speculates)

    def _draft(self, event: Draft, now_s: float) -> list[Instruction]:
        session = self.sessions.get(event.tag)
        if session is None or session.request != event.request:
            return [Ignored(event, f"request {event.request} of tag {event.tag} is not open")]
        if session.alone:
            return [Ignored(event, f"request {event.request} of tag {event.tag} decodes alone")]
        extended = extend(session, event.epoch, event.base, event.tokens)
        if isinstance(extended, str):
            return [Ignored(event, extended)]
        if event.tokens == 0 and self._under_way(event.tag):
            return [Ignored(event, f"the empty draft of epoch {event.epoch} of tag {event.tag} came before")]
        self.sessions[event.tag] = extended
        self._ask(extended)
        return []

    def _members(self) -> int:
        return sum(not session.alone for session in self.sessions.values())

    def _ask(self, session: Session) -> None:
        """Queue a verification of the tail, once it is long enough, unless one is queued or runs."""
        if self.ahead:
            complete = session.base + session.tail >= session.goal  # no more of it will come
            if (session.tail < self.ahead.least and not complete) or self._under_way(session.tag):
                return
        self.waiting.append(Work("verify", session.tag, session.priority))

    def _under_way(self, tag: int) -> bool:
        """Whether work for a session is queued, or runs."""
        running = self.running.members if self.running else ()
        return any(work.tag == tag for work in self.waiting) or any(member.tag == tag for member in running)

    def _refused(self, event: Refusal, now_s: float) -> list[Instruction]:
        session = self.sessions.get(event.tag)
        if session is None or session.request != event.request or session.alone:
            return [Ignored(event, f"request {event.request} of tag {event.tag} waits for no drafter")]
        self.sessions[event.tag] = msgspec.structs.replace(session, alone=True)
        if self.grants:
            self.grants.close(event.tag)
        self.waiting.append(Work("decode", event.tag, session.priority))
        return []

    def _done(self, event: StepDone, now_s: float) -> list[Instruction]:
        step = self._finish(event, now_s)
        if step is None:
            return [Ignored(event, f"step {event.step} is not running")]
        grants = self._learn(step, event.outcomes) if self.grants else {}
        followed: list[Instruction] = []
        for member, outcome in zip(step.members, event.outcomes, strict=True):
            followed += self._commit(step.kind, member, outcome, grants.get(member.tag, -1))
        return followed

    def _learn(self, step: Step, outcomes: Sequence[Outcome]) -> dict[int, int]:
        """Update the allocation with the outcomes, and ask for the lengths of the drafts that follow."""
        assert self.grants is not None
        for member, outcome in zip(step.members, outcomes, strict=True):
            session = self.sessions[member.tag]
            if session.alone:
                continue
            if step.kind == "prefill":
                self.grants.open(member.tag)
            else:
                self.grants.verified(member.tag, member.tokens, outcome)
            if outcome.ended or session.base + outcome.accepted + 1 >= session.goal:
                self.grants.close(member.tag)
        return self.grants.grant([member.tag for member in step.members])

    def _commit(self, kind: StepKind, member: Member, outcome: Outcome, granted: int) -> list[Instruction]:
        """Book what a step gave one session, and send the session on its way."""
        verified = member.tokens if kind == "verify" else 0
        before = self.sessions[member.tag]
        session = commit(before, verified, outcome.accepted, outcome.matches, outcome.ended)
        self.sessions[member.tag] = session
        if session.finished:
            self._forget(session.tag)
            finished: list[Instruction] = [
                Released(session.tag, session.request),
                Finished(session.tag, session.request),
            ]
            # The drafter knows this request only if a draft was asked for: not after a prefill, not when alone.
            known = kind == "verify"
            return [Leave(session.tag, session.request), *finished] if known else finished
        if session.alone:
            self.waiting.append(Work("decode", session.tag, session.priority))
            return []
        if session.epoch == before.epoch:  # the rest of the tail stands, and the drafter needs no news
            self._ask(session)
            return []
        opening = kind == "prefill"
        if self.ahead and self.ahead.busy and not opening:
            self.waiting.append(Work("verify", session.tag, session.priority))  # of an empty tail: one token alone
        tag, request = session.tag, session.request
        if self.ahead:
            granted = session.goal - session.base
        return [DraftRequest(tag, request, session.epoch, session.base, opening, session.priority, granted)]

    def _bind(self, kind: StepKind, session: Session) -> Member:
        tokens = {"prefill": session.base, "verify": session.tail, "decode": 1}[kind]
        base = 0 if kind == "prefill" else session.base
        return Member(session.tag, session.request, session.epoch, base, tokens)
