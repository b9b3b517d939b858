"""A target whose rows share a rectangle, with the drafter on its device, as a state machine."""

import msgspec
import numpy as np

from specfleet.fleet.policies.aligned import PooledRow
from specfleet.fleet.policies.allocate import Fixed
from specfleet.fleet.policies.order import Fifo
from specfleet.fleet.policies.shapes import reach
from specfleet.fleet.scenario.resolved import ResolvedVerifiers
from specfleet.fleet.stations.grants import Grants
from specfleet.fleet.stations.messages import Finished, Instruction, Join, Released, StepDone
from specfleet.fleet.stations.session import Session, commit
from specfleet.fleet.stations.station import Station
from specfleet.fleet.times.step import Member, Step, StepKind


class AlignedStation(Station):
    """Runs rounds over a pool of sessions: prefill new rows, realign, draft, verify.

    The rule decides which rows of the pool share a round, whether they are realigned, and whether a batch ends as a
    whole. The allocation decides how many tokens each row drafts. Other sessions wait in the buffer for a free place.
    """

    def __init__(self, name: str, verifiers: ResolvedVerifiers, rng: np.random.Generator | None = None) -> None:
        super().__init__(name, Fifo())
        assert verifiers.aligned is not None
        assert verifiers.drafts is not None
        self.rule = verifiers.aligned
        self.size = verifiers.batching.max_num_seqs
        self.positions = verifiers.drafts.positions
        self.grants = Grants(verifiers.allocate or Fixed(verifiers.drafts.depth), rng)
        self.pool: dict[int, int] = {}  # row length by tag, padding included, in order of entry
        self.fresh: set[int] = set()  # tags of the pool without a prefill
        self.lengths: dict[int, int] = {}  # speculation lengths of the round
        self._handlers[Join] = self._join

    @property
    def ready(self) -> bool:
        """Whether `plan` would start a step now."""
        return self.running is None and bool(self.program or self.sessions)

    def _next_group(self) -> list[int]:
        """Return the indices of waiting sessions that fit into the pool."""
        if self.rule.together and self.pool:
            return []
        room = min(self.rule.pool(self.size) - len(self.pool), len(self.waiting))
        if self.rule.sorts and room:
            of_length = [(self.sessions[work.tag].base, index) for index, work in enumerate(self.waiting)]
            return [index for _, index in sorted(of_length)[:room]]
        return list(range(room))

    def _plan_program(self) -> bool:
        """Take new sessions into the pool, and begin a round of the rows that the rule picks; False without any."""
        works = self.waiting.take(self._next_group())
        if works and not self.pool:
            self.carried = 0
        for work in works:
            self.pool[work.tag] = self.sessions[work.tag].base
            self.fresh.add(work.tag)
            self.grants.open(work.tag)
        if not self.pool:
            return False
        pool = [PooledRow(tag, length, tag in self.fresh) for tag, length in self.pool.items()]
        choice = self.rule.pick(pool, self.size)
        self.lengths = self.grants.grant(list(choice.tags))
        fresh = tuple([tag for tag in choice.tags if tag in self.fresh])
        if fresh:
            self.program += [("prefill", fresh), ("draft_prefill", fresh)]
        if choice.realign:
            self.program.append(("realign", choice.tags))
            # A prefill adds the target's first token before the round.
            longest = max(self.sessions[tag].base + (tag in self.fresh) for tag in choice.tags)
            self.pool.update({tag: longest - (tag in self.fresh) for tag in choice.tags})
        self.program += [("draft", choice.tags), ("verify", choice.tags)]
        return True

    def _bind(self, kind: StepKind, session: Session) -> Member:
        tag, request, epoch = session.tag, session.request, session.epoch
        match kind:
            case "prefill":
                return Member(tag, request, epoch, 0, session.base)
            case "draft_prefill":
                return Member(tag, request, epoch, 0, session.base - 1)
            case "draft":
                return Member(tag, request, epoch, session.base, reach(self.lengths[tag], session.base, self.positions))
            case "verify":
                return Member(tag, request, epoch, session.base, session.tail)
            case _:
                return Member(tag, request, epoch, session.base, 0)

    def _ended(self, step: Step, event: StepDone, now_s: float) -> list[Instruction]:
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
        """Commit each row's tokens; complete rows leave the pool."""
        followed: list[Instruction] = []
        for member, outcome in zip(step.members, event.outcomes, strict=True):
            tag = member.tag
            verified = member.tokens if step.kind == "verify" else 0
            session = commit(self.sessions[tag], verified, outcome.accepted)
            self.sessions[tag] = session
            self.pool[tag] += outcome.accepted + 1
            if step.kind == "prefill":
                self.fresh.discard(tag)
            else:
                self.grants.verified(tag, member.tokens, outcome)
            if session.finished:
                self._leave(tag)
                followed += [Released(tag, session.request), Finished(tag, session.request)]
        return followed

    def _leave(self, tag: int) -> None:
        self._forget(tag)
        del self.pool[tag]
        self.grants.close(tag)
        self.carried = self.carried + 1 if self.rule.together and self.pool else 0
