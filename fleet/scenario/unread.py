"""Keys that nobody would read beside others of the same scenario: refused in a line each, never silently ignored.

A key counts as given where its value differs from the default. Beside a `[batch]`, and without a drafter, all keys of
a side are refused but for those listed here, so that a new key is refused until somebody reads it.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from fleet.policies.group import One
from fleet.policies.order import Fifo
from fleet.policies.overlap import Ahead
from fleet.policies.route import Affinity
from fleet.policies.shapes import Shape
from fleet.scenario.arrivals import Trace
from fleet.scenario.scenario import Scenario, Workload

READ_IN_A_BATCH = {"drafters": {"depth", "shape", "kind", "model"}, "verifiers": {"model", "rule"}}
# What describes a drafter may stand there without one: a baseline is then one `--set drafters.count=0` away.
DESCRIBES_A_DRAFTER = {"count", "depth", "shape", "kind", "model", "profile", "device"}
READ_OF_A_SHAPE = {"chain": set[str](), "tree": {"branching"}, "dynamic": {"width", "most"}}


def unread_keys(scenario: Scenario) -> Iterator[str]:
    """Yield a line for each key that nobody would read: why, and what to do."""
    yield from _of_depths(scenario)
    yield from _of_shapes(scenario)
    yield from _of_workload(scenario)
    yield from _of_goals_and_prices(scenario)
    if scenario.batch is not None:
        yield from _beside_a_batch(scenario)
        return
    if not scenario.drafters.count:
        yield from _without_drafters(scenario)
    elif isinstance(scenario.drafters.overlap, Ahead):
        yield from _ahead(scenario)
    yield from _of_drafters(scenario)
    yield from _of_verifiers(scenario)
    yield from _of_places(scenario)


def given(table: msgspec.Struct) -> list[str]:
    """Names of the keys of a table of a scenario that differ from their defaults."""
    default = type(table)()
    return [name for name in table.__struct_fields__ if getattr(table, name) != getattr(default, name)]


def _beside_a_batch(scenario: Scenario) -> Iterator[str]:
    unread = [
        f"{side}.{name}"
        for side, read in READ_IN_A_BATCH.items()
        for name in given(getattr(scenario, side))
        if name not in read
    ]
    unread += [name for name in ("devices", "link", "memory", "faults") if getattr(scenario, name)]
    yield from (f"[batch] is one drafter and one target of its own; leave {key} out" for key in unread)


def _without_drafters(scenario: Scenario) -> Iterator[str]:
    unread = [f"drafters.{name}" for name in given(scenario.drafters) if name not in DESCRIBES_A_DRAFTER]
    of_drafts = ("allocate", "patience_s", "rejoin_s")
    unread += [f"verifiers.{name}" for name in given(scenario.verifiers) if name in of_drafts]
    unread += ["faults"] if scenario.faults else []
    yield from (f"drafters.count = 0 decodes without a drafter; leave {key} out" for key in unread)


def _ahead(scenario: Scenario) -> Iterator[str]:
    unread = [f"drafters.{name}" for name in given(scenario.drafters) if name in ("depth", "shape", "allocate")]
    unread += ["drafters.limits_per_s"] if scenario.drafters.limits_per_s else []
    unread += ["verifiers.allocate"] if scenario.verifiers.allocate is not None else []
    yield from (f"drafters.overlap = 'ahead' drafts token by token; {key} does not go with it" for key in unread)


def _of_depths(scenario: Scenario) -> Iterator[str]:
    """Grants of the verifier take the place of a rule of the drafter."""
    if scenario.verifiers.allocate is not None and scenario.drafters.allocate is not None:
        yield "verifiers.allocate grants the lengths of drafts; leave drafters.allocate out"


def _of_shapes(scenario: Scenario) -> Iterator[str]:
    shape, default = scenario.drafters.shape, Shape()
    for name in ("branching", "width", "most"):
        if getattr(shape, name) != getattr(default, name) and name not in READ_OF_A_SHAPE[shape.kind]:
            yield f"drafters.shape.kind = {shape.kind!r} has no {name}; leave drafters.shape.{name} out"
    if scenario.drafters.kind == "lookup" and shape.kind != "chain":
        yield f"drafters.kind = 'lookup' drafts chains; leave drafters.shape.kind = {shape.kind!r} out"


def _of_workload(scenario: Scenario) -> Iterator[str]:
    workload = scenario.workload
    names = given(workload)
    if workload.arrivals is not None and workload.streams:
        yield "workload.arrivals makes every request a stream of its own; leave workload.streams out"
    yield from _of_lengths(workload, names)
    if not workload.temperature:
        for name in ("top_k", "top_p"):
            if name in names:
                yield f"workload.temperature = 0 decodes greedily; leave workload.{name} out, or set a temperature"


def _of_goals_and_prices(scenario: Scenario) -> Iterator[str]:
    """Tables that say nothing, and a role that would silently cost or draw nothing."""
    slo, cost, batch = scenario.slo, scenario.cost, scenario.batch is not None
    if slo is not None and not slo.limits_s:
        yield "[slo] has no goal; give slo.ttft_s, slo.tpot_s or slo.e2el_s, or leave it out"
    if cost is None:
        return
    if not (cost.has_prices or cost.has_watts):
        yield "[cost] has neither prices nor watts; give cost.target_per_hour or cost.target_w, or leave it out"
    if cost.unit and not cost.has_prices:
        yield f"cost.unit = {cost.unit!r} is what prices are in, and there is none; leave it out"
    shared = scenario.drafters.device != "" and scenario.drafters.device == scenario.verifiers.device
    drafts = bool(scenario.drafters.count) and not batch and not shared
    for form, has in (("per_hour", cost.has_prices), ("w", cost.has_watts)):
        if has and getattr(cost, f"target_{form}") is None:
            yield f"cost.target_{form} is missing beside cost.drafter_{form}; give it, 0 where targets add nothing"
        if has and drafts and getattr(cost, f"drafter_{form}") is None:
            yield f"cost.drafter_{form} is missing beside cost.target_{form}; give it, 0 where drafters add nothing"


def _of_lengths(workload: Workload, names: Sequence[str]) -> Iterator[str]:
    """One source says how long texts are."""
    unread: tuple[str, ...] = ("prompt_tokens", "new_tokens")
    if workload.conversations:
        source, unread = "workload.conversations", ("prompt_tokens", "lengths")
    elif isinstance(workload.arrivals, Trace):
        source, unread = "the trace of workload.arrivals", (*unread, "lengths")
    elif workload.lengths:
        source = f"workload.lengths = {workload.lengths!r}"
    else:
        return
    yield from (f"{source} has the lengths; leave workload.{name} out" for name in unread if name in names)


def _of_drafters(scenario: Scenario) -> Iterator[str]:
    drafters = scenario.drafters
    if not isinstance(drafters.group, One):
        if not isinstance(drafters.order, Fifo):
            yield "drafters.group = 'batch' takes whoever waits, oldest first; leave drafters.order out"
        if drafters.limits_per_s:
            yield "drafters.limits_per_s serves one session at a time; leave drafters.group out"
    if isinstance(drafters.route, Affinity):
        if drafters.move != "prefill":
            yield f"drafters.move = {drafters.move!r}, but drafters.route = 'affinity' moves no session"
        if drafters.view_delay_s:
            yield "drafters.route = 'affinity' looks at no news; leave drafters.view_delay_s out"


def _of_verifiers(scenario: Scenario) -> Iterator[str]:
    verifiers = scenario.verifiers
    if not verifiers.patience_s and scenario.drafters.count and "rejoin_s" in given(verifiers):
        yield "verifiers.patience_s = 0 gives no drafter up; leave verifiers.rejoin_s out, or set a patience"


def _of_places(scenario: Scenario) -> Iterator[str]:
    """Tiers that do not rise, and devices without a station."""
    for side in ("drafters", "verifiers"):
        for before, tier in pairwise(getattr(scenario, side).tiers):
            if tier.first <= before.first:
                yield f"{side}.tiers: first = {tier.first} comes after first = {before.first}; allowed: first rises"
    for name in scenario.devices:
        if name not in (scenario.drafters.device, scenario.verifiers.device):
            yield f"devices.{name}: no station is on it; drafters.device and verifiers.device say who is where"
