"""Requests at a target: the running rows that share its steps, and those that wait to be admitted."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple

import msgspec

from specfleet.fleet.policies.blocks import CachedBlocks
from specfleet.fleet.policies.continuous import ContinuousBatching, Row, Schedule, Share, after_step
from specfleet.fleet.scenario.scenario import Late
from specfleet.fleet.stations.buffer import Tasks
from specfleet.fleet.stations.messages import Join
from specfleet.fleet.stations.session import Session
from specfleet.fleet.times.step import StepKind

Kinds = Mapping[int, StepKind | None]
"""What each running session could do now, by tag: prefill, verify or decode; nothing if it waits for a draft."""


class Part(NamedTuple):
    """A row's part of a step."""

    kind: StepKind
    share: Share


class Rows:
    """Keeps the rows of a target by tag. `parts`: those of the last step that began; `cache`: blocks with contents."""

    def __init__(self, batching: ContinuousBatching, late: Late, cache: CachedBlocks | None = None) -> None:
        self.batching = batching
        self.late = late
        self.running: dict[int, Row] = {}  # in order of admission
        self.waiting: OrderedDict[int, Row] = OrderedDict()  # in order of arrival
        self.parts: dict[int, Part] = {}
        self.cache = cache
        self.order: tuple[int, ...] = ()  # of `running` when the last step began
        self.ended: list[int] = []

    def join(self, event: Join) -> None:
        """Queue a request with its prompt."""
        self.waiting[event.tag] = Row(event.tag, event.prompt_tokens, event.computed, event.drafted)
        if self.cache:
            self.cache.open(event.tag, event.request, event.identity)

    def forget(self, tag: int) -> None:
        """Remove a request; a prefix cache keeps what its blocks hold, and gets them by `settle`."""
        if self.cache:
            self.ended.append(tag)
        self.running.pop(tag, None)
        self.waiting.pop(tag, None)

    def settle(self) -> None:
        """Free the blocks of requests that have ended: in the order of admission, as vLLM does of those of a step."""
        for tag in (*(tag for tag in self.order if tag in self.ended), *self.ended):
            if self.cache and tag in self.cache.texts:
                self.cache.close(tag)
        self.ended.clear()

    def next_step(self, sessions: Mapping[int, Session], tasks: Tasks) -> Schedule | None:
        """Return the next step; None if there is nothing to do. It changes nothing for good before `begin`.

        With late = "wait", prompts go first and alone, and all drafts are verified together.
        """
        kinds = {tag: self._kind(tag, tasks) for tag in self.running}
        if self.late != "wait":
            return self._scheduled(sessions, kinds, self.waiting.values())
        prompts: Kinds = {tag: kind for tag, kind in kinds.items() if kind == "prefill"}
        if prompts or self.waiting:
            step = self._scheduled(sessions, prompts, self.waiting.values())
            if step is not None:
                return step
        if not all(kind == "verify" for tag, kind in kinds.items() if not sessions[tag].alone):
            kinds = {tag: kind for tag, kind in kinds.items() if kind == "decode"}
        return self._scheduled(sessions, kinds, ())

    def begin(self, step: Schedule, tasks: Tasks) -> None:
        """Take over the rows of a step that starts; its parts stand in the order of their work."""
        if self.cache:
            self.cache.keep()
        for row in step.preempted:
            self.waiting[row.tag] = row
            self.waiting.move_to_end(row.tag, last=False)
        for _ in range(step.admitted):
            self.waiting.popitem(last=False)
        self.running = {row.tag: row for row in step.running}
        self.order = tuple(self.running) if self.cache else ()
        self.parts = {}
        for share in sorted(step.shares, key=lambda share: tasks.place(share.tag)):
            kind = self._kind(share.tag, tasks) if share.samples else "chunk"
            assert kind is not None
            self.parts[share.tag] = Part(kind, share)

    def _kind(self, tag: int, tasks: Tasks) -> StepKind | None:
        """Return what a running session could do now; None if it waits for a draft."""
        return tasks.kind(tag) or ("decode" if self.late == "decode" else None)

    def end(self, tag: int, accepted: int) -> None:
        """Take over the outcome of a row's part of the running step."""
        self.running[tag] = after_step(self.running[tag], self.parts[tag].share, accepted)

    def _scheduled(self, sessions: Mapping[int, Session], kinds: Kinds, waiting: Iterable[Row]) -> Schedule | None:
        if self.cache:
            self.cache.undo()  # of a step that was planned and did not begin
        running = [self._row(row, sessions[row.tag], kinds.get(row.tag)) for row in self.running.values()]
        preempted: tuple[Row, ...] = ()
        while True:  # preemption alone is no step
            step = self.batching.schedule(running, chain(reversed(preempted), waiting), self.cache)
            preempted += step.preempted
            if step.shares:
                return msgspec.structs.replace(step, preempted=preempted)
            if not step.preempted:
                return None
            running = list(step.running)

    def _row(self, row: Row, session: Session, kind: StepKind | None) -> Row:
        drafts = session.tail if kind == "verify" else 0
        return Row(row.tag, session.base, row.computed, drafts, row.blocks, kind is None)
