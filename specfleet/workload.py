"""Requests: the same ones, in the same order at the same target, in both worlds."""

from collections.abc import Iterator

import msgspec

from specfleet.messages import Join
from specfleet.scenario import Scenario


class Request(msgspec.Struct, frozen=True):
    """Number `number` (from 0) of the workload: its prompt is the prompt of that number."""

    number: int
    prompt_tokens: int
    new_tokens: int


def requests_of(scenario: Scenario, target: int) -> Iterator[Request]:
    """Yield the requests of target `target`: every count-th, dealt in turn."""
    workload = scenario.workload
    for number in range(target, workload.requests, scenario.verifiers.count):
        yield Request(number, workload.prompt_tokens, workload.new_tokens)


def join_of(scenario: Scenario, target: int, request: Request) -> Join:
    """Return the event that opens `request` at its target's station."""
    priorities = scenario.verifiers.priorities
    priority = priorities[target] if target < len(priorities) else 0
    return Join(target, request.number, request.prompt_tokens, request.new_tokens, priority)
