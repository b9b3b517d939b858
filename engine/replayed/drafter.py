"""A replayed drafter: it waits as long as drafting takes on other hardware. Without torch."""

import numpy as np

from specfleet.engine.net.clock import Waiter, now_s
from specfleet.engine.net.content import DRAWN, NOTHING, Content
from specfleet.engine.node.node import HERE, Node, Site, drafting_node
from specfleet.engine.node.worker import Executor
from specfleet.fleet.acceptance.sources import of_each, sources_of
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.policies.shapes import some_parents
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.stations.messages import Draft, Message
from specfleet.fleet.times.durations import draft_durations
from specfleet.fleet.times.step import Step


class ReplayedDraftExecutor(Executor):
    """Waits for a drafter's steps, and returns placeholder drafts of the size of a small model's.

    Step times are drawn as in the simulation, in order, from the same random numbers. InputError if the fleet has no
    times of drafters.
    """

    def __init__(self, fleet: Fleet, drafter: int = 0) -> None:
        times = fleet.drafter_times(drafter)
        source = of_each(sources_of(fleet.seed).drafters, fleet.drafters.count)[drafter]
        self.fleet = fleet
        self.duration_s = draft_durations(times, source)
        self.wait_until = Waiter().until

    def run(self, step: Step) -> tuple[Outcome, ...]:
        """Wait as long as the step takes."""
        self.wait_until(now_s() + self.duration_s(step))
        return super().run(step)

    def content_of(self, message: Message) -> Content:
        """Return a draft of realistic size; nothing for other messages."""
        return empty_draft(self.fleet, message.tokens) if isinstance(message, Draft) else NOTHING


def empty_draft(fleet: Fleet, depth: int) -> Content:
    """Return a placeholder draft of `depth` levels, with the shape and the size of a small model's."""
    shape, vocabulary = fleet.drafters.shape, fleet.vocabulary
    count = shape.nodes(depth)
    nodes = some_parents(shape, count)
    inner = count if nodes is None else max(nodes, default=-1) + 1 if shape.kind == "tree" else 0
    rule = fleet.verifiers.rule
    if not fleet.workload.temperature or rule not in DRAWN or not inner or not vocabulary:
        return Content([0] * count, nodes)
    return Content([0] * count, nodes, np.ones((inner, vocabulary), dtype=np.float16), rule=rule)


def replayed_drafter_node(fleet: Fleet, number: int = 0, site: Site = HERE) -> Node:
    """Return the node of drafter `number` (from 0), without a model."""
    executor = ReplayedDraftExecutor(fleet, number)
    node = drafting_node(fleet, number, executor, "replayed", site)
    if fleet.routed:  # the router needs its load at once
        executor.wait_until = node.worker.wait_until
    return node
