"""Drafter and target in one process on one device, over a batch of sessions, as a state machine."""

import msgspec
import numpy as np

from specfleet.grants import Grants
from specfleet.messages import Finished, Ignored, Instruction, Join, Released, StepDone
from specfleet.policies.allocate import Allocation
from specfleet.policies.order import Fifo
from specfleet.policies.ragged import BatchRule, Choice, Row, SameLength
from specfleet.session import Session, settle
from specfleet.station import Member, Station, Step, StepKind, Work


class BatchStation(Station):
    """Keeps a pool of sessions, and the device for the program of one round: realign if needed, draft, verify.

    The batch rule says which rows share a round and whether a batch ends as a whole; the allocation, how many tokens
    each row drafts. New sessions are prefilled as soon as the pool has room for them.
    """

    def __init__(
        self, name: str, rule: BatchRule, allocation: Allocation, rng: np.random.Generator | None = None
    ) -> None:
        super().__init__(name, Fifo())
        self.rule = rule
        self.grants = Grants(allocation, rng)
        self.pool: dict[int, None] = {}  # tags that are prefilled, in the order in which they came in
        self.carried = 0  # finished rows of a batch that ends as a whole
        self.lengths: dict[int, int] = {}
        self._handlers = {Join: self._join, StepDone: self._done}

    def _join(self, event: Join, now_s: float) -> list[Instruction]:  # noqa: ARG002
        if event.tag in self.sessions:
            return [Ignored(event, f"tag {event.tag} is still busy with its last request")]
        if not self._is_new(event.tag, event.request):
            return [Ignored(event, f"request {event.request} of tag {event.tag} was opened before")]
        goal = event.prompt_tokens + event.new_tokens
        self.sessions[event.tag] = Session(
            event.tag, event.request, 0, event.prompt_tokens, goal, priority=event.priority
        )
        self.waiting.append(Work("prefill", event.tag, event.priority))
        return []

    @property
    def ready(self) -> bool:
        """Whether `plan` would start a step now."""
        return self.running is None and bool(self.program or self._newcomers() or self.pool)

    def _newcomers(self) -> list[int]:
        """Indices of waiting sessions for which the pool has room."""
        if not self.waiting or (self.rule.together and self.pool):
            return []
        room = self.rule.pool - len(self.pool)
        indices = list(range(len(self.waiting)))
        if isinstance(self.rule, SameLength) and self.rule.sort:
            indices.sort(key=lambda index: (self.sessions[self.waiting[index].tag].base, index))
        return indices[:room]

    def _next_group(self) -> list[int]:
        """Indices of newcomers; a round of the pool has no work in the buffer, and is served when nobody is new."""
        newcomers = self._newcomers()
        if newcomers or not self.pool:
            return newcomers
        return [-1]

    def _serve(self, group: list[int]) -> None:
        if group == [-1]:
            self._begin_round()
            return
        self.carried = 0
        super()._serve(group)

    def _program(self, works: list[Work]) -> list[tuple[StepKind, tuple[int, ...]]]:
        tags = tuple([work.tag for work in works])
        return [("prefill", tags), ("draft_prefill", tags)]

    def _begin_round(self) -> None:
        rows = [Row(tag, self.sessions[tag].base) for tag in self.pool]
        choice: Choice = self.rule.pick(rows)
        self.lengths = self.grants.grant(list(choice.tags))
        if choice.realign:
            self.program.append(("realign", choice.tags))
        self.program.append(("draft", choice.tags))
        self.program.append(("verify", choice.tags))

    def _ballast(self) -> int:
        return self.carried

    def _bind(self, kind: StepKind, session: Session) -> Member:
        tag, request, epoch = session.tag, session.request, session.epoch
        match kind:
            case "prefill" | "draft_prefill":
                return Member(tag, request, epoch, 0, session.base)
            case "draft":
                return Member(tag, request, epoch, session.base, self.lengths[tag])
            case "verify":
                return Member(tag, request, epoch, session.base, session.tail)
            case _:
                return Member(tag, request, epoch, session.base, 0)

    def _done(self, event: StepDone, now_s: float) -> list[Instruction]:
        step = self._finish(event, now_s)
        if step is None:
            return [Ignored(event, f"step {event.step} is not running")]
        match step.kind:
            case "draft":
                for member, outcome in zip(step.members, event.outcomes, strict=True):
                    drafted = member.tokens if outcome.drafted < 0 else outcome.drafted
                    session = self.sessions[member.tag]
                    self.sessions[member.tag] = msgspec.structs.replace(session, tail=drafted)
            case "prefill" | "verify":
                return self._commit(step, event)
        return []

    def _commit(self, step: Step, event: StepDone) -> list[Instruction]:
        """Book what each row got; rows that are complete leave the pool."""
        followed: list[Instruction] = []
        for member, outcome in zip(step.members, event.outcomes, strict=True):
            tag = member.tag
            session = settle(self.sessions[tag], member.tokens if step.kind == "verify" else 0, outcome.accepted)
            self.sessions[tag] = session
            if step.kind == "prefill":
                self.pool[tag] = None
                self.grants.open(tag)
            else:
                self.grants.verified(tag, member.tokens, outcome)
            if session.finished or outcome.stopped:
                self._leave(tag)
                followed += [Released(tag, session.request), Finished(tag, session.request)]
        return followed

    def _leave(self, tag: int) -> None:
        self._forget(tag)
        del self.pool[tag]
        self.grants.close(tag)
        self.carried = self.carried + 1 if self.rule.together and self.pool else 0
