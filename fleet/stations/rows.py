"""Requests at a target: the running rows that share its steps, and those that wait to be admitted."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from specfleet.fleet.policies.continuous import ContinuousBatching, Row, Schedule, Share, after_step
from specfleet.fleet.scenario.scenario import Late
from specfleet.fleet.stations.session import Session
from specfleet.fleet.times.step import StepKind

Ready = Mapping[int, StepKind]
"""What each session could do now, by tag: prefill, verify or decode. A session that waits for a draft is not in it."""


class Part(NamedTuple):
    """A row's part of a step."""

    kind: StepKind
    share: Share


class Rows:
    """Keeps the rows of a target by tag. `parts`: those of the last step that began."""

    def __init__(self, batching: ContinuousBatching, late: Late) -> None:
        self.batching = batching
        self.late = late
        self.running: dict[int, Row] = {}  # in order of admission
        self.waiting: dict[int, Row] = {}  # in order of arrival
        self.parts: dict[int, Part] = {}

    def join(self, tag: int, known: int) -> None:
        """Queue a request with so many known tokens."""
        self.waiting[tag] = Row(tag, known)

    def forget(self, tag: int) -> None:
        """Remove a request."""
        self.running.pop(tag, None)
        self.waiting.pop(tag, None)

    def next_step(self, sessions: Mapping[int, Session], ready: Ready) -> Schedule | None:
        """Return the next step; None if there is nothing to do. It changes nothing before `begin`.

        With late = "wait", prompts go first and alone, and all drafts are verified together.
        """
        if not ready:
            return None
        if self.late != "wait":
            return self._scheduled(sessions, ready)
        prefills = {tag: kind for tag, kind in ready.items() if kind == "prefill"}
        if prefills and (step := self._scheduled(sessions, prefills)) is not None:
            return step
        speculating = [tag for tag in self.running if not sessions[tag].alone]
        if not all(ready.get(tag) == "verify" for tag in speculating):
            ready = {tag: kind for tag, kind in ready.items() if kind == "decode"}
        return self._scheduled(sessions, ready, admits=False)

    def begin(self, step: Schedule, ready: Ready) -> None:
        """Take over the rows of a step that starts; its parts stand in the order of `ready`."""
        self.running = {row.tag: row for row in step.running}
        self.waiting = {row.tag: row for row in step.waiting}
        shares = {share.tag: share for share in step.shares}
        self.parts = {
            tag: Part(kind if shares[tag].samples else "chunk", shares[tag])
            for tag, kind in ready.items()
            if tag in shares
        }

    def end(self, tag: int, accepted: int) -> None:
        """Take over the outcome of a row's part of the running step."""
        self.running[tag] = after_step(self.running[tag], self.parts[tag].share, accepted)

    def _scheduled(self, sessions: Mapping[int, Session], ready: Ready, admits: bool = True) -> Schedule | None:
        running = [self._row(row, sessions[row.tag], ready.get(row.tag)) for row in self.running.values()]
        waiting = list(self.waiting.values()) if admits else []
        preempted: tuple[int, ...] = ()
        while True:  # preemption alone is no step
            step = self.batching.schedule(running, waiting)
            preempted += step.preempted
            if step.shares:
                queue = step.waiting if admits else (*step.waiting, *self.waiting.values())
                return msgspec.structs.replace(step, preempted=preempted, waiting=queue)
            if not step.preempted:
                return None
            running, waiting = list(step.running), list(step.waiting)

    def _row(self, row: Row, session: Session, kind: StepKind | None) -> Row:
        drafts = session.tail if kind == "verify" else 0
        return Row(row.tag, session.base, row.computed, drafts, row.blocks, kind is None)
