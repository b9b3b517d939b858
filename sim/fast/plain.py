"""Fleets that the compiled loop supports: the keys that it does not read have their default values."""

import math
from collections.abc import Iterator

import msgspec

from specfleet.fleet.acceptance.models import BetaGeometric, Geometric, PerPosition, Recorded
from specfleet.fleet.policies.group import One
from specfleet.fleet.scenario.readers import unread, value_of
from specfleet.fleet.scenario.resolved import Fleet

LENGTH_MODELS = (Geometric, BetaGeometric, PerPosition, Recorded)  # a draw does not depend on the place


def unsupported_in(fleet: Fleet) -> str:
    """Return the first unsupported key of a fleet as `key = value`; "" for a plain star or serving targets."""
    return next(_unsupported(fleet), "")


def has_serving_targets(fleet: Fleet) -> bool:
    """Whether the loop of serving targets takes a supported fleet.

    The loop of plain stars is faster where each target verifies one request at a time, in one chunk, and each drafter
    drafts for one session at a time.
    """
    verifiers, workload = fleet.verifiers, fleet.workload
    streams = fleet.streams or (workload.requests if workload.arrivals is None else math.inf)
    one_row = streams <= verifiers.count and fleet.lengths.longest_text <= verifiers.batching.max_num_batched_tokens
    simple = isinstance(fleet.acceptance, LENGTH_MODELS) and isinstance(fleet.drafters.group, One)
    simple &= (
        fleet.drafters.count > 0
        and verifiers.late == "skip"
        and verifiers.drafts is None
        and not verifiers.batching.kv_blocks
    )
    return not (simple and one_row)


def _unsupported(fleet: Fleet) -> Iterator[str]:
    drafters, verifiers = fleet.drafters, fleet.verifiers
    for key in unread("loop"):
        value = value_of(fleet, key)
        if value is not None and not (key == "acceptance" and (isinstance(value, LENGTH_MODELS) or not drafters.count)):
            yield f"{key} = {_format(value)}"
    if drafters.stations and verifiers.batching.kv_blocks:
        yield "kv_tokens with drafters elsewhere"
    if not (verifiers.times and fleet.links and (drafters.times or not drafters.count)):
        yield "a scenario without a profile"
    if len({(times.idle, times.catch_up_s) for times in drafters.times}) > 1:
        yield "drafters that differ in more than step times and links"


def _format(value: object) -> str:
    """Write a value as in a scenario, a rule as its name."""
    plain = msgspec.to_builtins(value)
    if isinstance(plain, dict):
        plain = plain.get("policy") or plain.get("model") or plain
    return msgspec.json.encode(plain).decode()
