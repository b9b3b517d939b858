"""Conflicts within a scenario: unused keys, tables without effect, rules that would wait for ever.

A key counts as set if its value differs from the default. A set key without effect is refused. Without a drafter, and
with drafts on the targets' devices, all keys of drafters are refused but for those listed here, so that a new key is
refused until it is listed.
"""

from collections.abc import Container, Iterator
from itertools import pairwise

import msgspec

from specfleet.fleet.policies.adaedl import AdaEdl
from specfleet.fleet.policies.aligned import SameLength
from specfleet.fleet.policies.goodput import Goodput
from specfleet.fleet.policies.group import One
from specfleet.fleet.policies.overlap import Ahead
from specfleet.fleet.scenario.arrivals import Trace
from specfleet.fleet.scenario.faults import NodeFault
from specfleet.fleet.scenario.names import drafter_name, verifier_name
from specfleet.fleet.scenario.scenario import Drafters, Scenario, Verifiers, Workload
from specfleet.fleet.scenario.writing import changed

Case = tuple[str, bool, Container[str]]
"""A reason, whether it applies, and the keys that are then unused."""

# A drafter's description may stay without one: `--set drafters.count=0` then gives the baseline.
OF_A_PLACE = {"count", "depth", "shape", "place", "kind", "model", "profile"}
OF_A_DRAFTER = {"count", "place", "depth", "shape", "kind", "model", "profile", "device"}
OF_A_SHAPE = {"chain": set[str](), "tree": {"branching"}, "dynamic": {"width", "most"}}


def conflicts(scenario: Scenario) -> Iterator[str]:
    """Yield one line for each conflict, with the keys."""
    yield from _unused_keys(scenario)
    yield from _of_stations(scenario)
    yield from _of_goals_and_prices(scenario)
    yield from _of_faults(scenario)


def unused_keys(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield each set key without effect, and the reason."""
    changed_keys = _given(scenario)
    for reason, holds, unused in _cases(scenario, changed_keys):
        if holds:
            yield from ((key, reason) for key in changed_keys if key in unused)


def _unused_keys(scenario: Scenario) -> Iterator[str]:
    """Yield a line for each unused key: the reason, and what to do."""
    yield from (f"{reason}; leave {key} out" for key, reason in unused_keys(scenario))
    for side in ("drafters", "verifiers"):
        tiers = getattr(scenario, side).tiers
        for tier in tiers:
            if tier.step is None and tier.link is None:
                yield f"{side}.tiers: first = {tier.first} changes nothing; give step or link, or leave it out"
            if tier.link is not None and scenario.drafters.place == "target":
                yield f"{side}.tiers: first = {tier.first}: drafters.place = 'target' has no links; leave link out"
        for before, tier in pairwise(tiers):
            if tier.first <= before.first:
                yield f"{side}.tiers: first = {tier.first} comes after first = {before.first}; allowed: first rises"
    for name in scenario.devices:
        if name not in (scenario.drafters.device, scenario.verifiers.device):
            yield f"devices.{name}: no station is on it; drafters.device and verifiers.device name it"


def _given(scenario: Scenario) -> list[str]:
    """Return the dotted names of keys that differ from their defaults, in the tables that can have unused keys."""
    tables: dict[str, msgspec.Struct] = {
        "drafters": scenario.drafters,
        "verifiers": scenario.verifiers,
        "workload": scenario.workload,
        "drafters.shape": scenario.drafters.shape,
    } | ({"acceptance": scenario.acceptance} if scenario.acceptance is not None else {})
    names = [f"{table}.{key}" for table, keys in tables.items() for key in changed(keys)]
    return names + [name for name in ("devices", "link", "faults") if getattr(scenario, name)]


def _cases(scenario: Scenario, changed_keys: list[str]) -> Iterator[Case]:
    drafters, verifiers, workload = scenario.drafters, scenario.verifiers, scenario.workload
    shape = drafters.shape.kind
    used = {f"drafters.{name}" for name in OF_A_DRAFTER}
    yield "drafters.count = 0 decodes without a drafter", not drafters.count, {
        "verifiers.allocate", "verifiers.patience_s", "verifiers.rejoin_s", "verifiers.late", "faults",
        *(key for key in changed_keys if key.startswith("drafters.") and not key.startswith("drafters.shape.")),
    } - used  # fmt: skip
    beside = drafters.place == "target"
    yield "drafters.place = 'target' drafts within the target's steps", beside, {
        *(key for key in changed_keys if key.startswith("drafters.") and key.split(".")[1] not in OF_A_PLACE),
        "link", "verifiers.late", "verifiers.patience_s", "verifiers.rejoin_s",
        *(["drafters.count"] if drafters.count else []),
    }  # fmt: skip
    yield "verifiers.aligned keeps all rows of a batch in one rectangle", verifiers.aligned is not None, {
        "verifiers.max_num_batched_tokens", "verifiers.kv_tokens", "verifiers.late", "verifiers.device",
        "verifiers.prefill_first",
    }  # fmt: skip
    yield "drafters.overlap = 'ahead' drafts token by token", isinstance(drafters.overlap, Ahead), {
        "drafters.depth", "drafters.shape", "drafters.limits_per_s", "verifiers.allocate", "verifiers.late",
    }  # fmt: skip
    unused = {f"drafters.shape.{name}" for names in OF_A_SHAPE.values() for name in names - OF_A_SHAPE[shape]}
    yield f"drafters.shape.kind = {shape!r} has other keys", True, unused
    yield "drafters.kind = 'lookup' drafts chains", drafters.kind == "lookup", {"drafters.shape"}
    yield from _of_workload(workload)
    is_batched = not isinstance(drafters.group, One)
    yield "drafters.group = 'batch' takes all that wait, oldest first", is_batched, {"drafters.order"}
    yield "drafters.group = 'batch' limits no target's rounds", is_batched, {"drafters.limits_per_s"}
    order = drafters.order.__struct_config__.tag
    yield f"drafters.order {order!r} looks at no priority", order != "priority", {"verifiers.priorities"}
    is_patient = verifiers.patience_s > 0 or not drafters.count
    yield "verifiers.patience_s = 0 gives no drafter up", not is_patient, {"verifiers.rejoin_s"}


def _of_workload(workload: Workload) -> Iterator[Case]:
    streams = {"workload.streams"}
    yield "workload.arrivals makes every request a stream of its own", workload.arrivals is not None, streams
    prompts, answers, lengths = "workload.prompt_tokens", "workload.new_tokens", "workload.lengths"
    source = f"workload.lengths = {workload.lengths!r}"
    if isinstance(workload.arrivals, Trace):
        yield "the trace of workload.arrivals has the lengths", True, {prompts, answers, lengths}
    elif workload.lengths:
        yield f"{source} has the lengths", True, {prompts, answers}
    sampling = {"workload.top_k", "workload.top_p"}
    own_streams = workload.arrivals is not None or workload.streams >= workload.requests
    yield "every request is a stream of its own, in a domain of its own", own_streams, {"acceptance.switch"}
    yield "workload.temperature = 0 decodes greedily", not workload.temperature, sampling


def _of_stations(scenario: Scenario) -> Iterator[str]:
    drafters, verifiers = scenario.drafters, scenario.verifiers
    for side, own in (("drafters", drafters), ("verifiers", verifiers)):
        if own.device and own.device not in scenario.devices:
            known = ", ".join(scenario.devices) or "none: add a table [devices.NAME]"
            yield f"{side}.device = {own.device!r} is no device of [devices]; allowed: {known}"
        if own.profile != "" and drafters.device == verifiers.device != "":
            yield (
                f"{side}.profile is of a machine of that side's own, and both are on devices.{drafters.device}; give "
                "`profile`, what was measured on one device, or leave the devices out"
            )
    if verifiers.rule == "without-replacement" and drafters.shape.kind == "dynamic":
        yield (
            "verifiers.rule = 'without-replacement': nothing is drawn for drafters.shape.kind = 'dynamic', whose "
            "children are the drafter's best; allowed with it: top-k, match, rejection"
        )
    yield from _of_aligned_rows(verifiers, drafters)
    if drafters.kind == "replayed" and verifiers.kind != "replayed":
        yield (
            f"drafters.kind = 'replayed' drafts nothing that verifiers.kind = {verifiers.kind!r} could verify; allowed "
            "with it: verifiers.kind = 'replayed'"
        )


def _of_aligned_rows(verifiers: Verifiers, drafters: Drafters) -> Iterator[str]:
    """Rules that need drafts on the target's device."""
    rule, beside = verifiers.aligned, drafters.place == "target" and drafters.count > 0
    if isinstance(verifiers.allocate, AdaEdl | Goodput) and not beside:
        yield f"verifiers.allocate = {verifiers.allocate.__struct_config__.tag!r} needs drafters.place = 'target'"
    if rule is None:
        return
    if not beside:
        yield "verifiers.aligned needs drafters.place = 'target'; give it, or leave verifiers.aligned out"
    if verifiers.kind == "replayed":
        yield "verifiers.aligned runs its models; leave verifiers.kind = 'replayed' or verifiers.aligned out"
    if isinstance(rule, SameLength) and rule.window < verifiers.max_num_seqs:
        yield (
            f"verifiers.aligned.window = {rule.window} must hold at least verifiers.max_num_seqs = "
            f"{verifiers.max_num_seqs} rows"
        )


def _of_goals_and_prices(scenario: Scenario) -> Iterator[str]:
    """Tables without effect, and a role without a price."""
    slo, cost = scenario.slo, scenario.cost
    if slo is not None and not slo.limits_s:
        yield "[slo] has no goal; give slo.ttft_s, slo.tpot_s or slo.e2el_s, or leave it out"
    if cost is None:
        return
    shared = scenario.drafters.device == scenario.verifiers.device != ""
    drafts = scenario.drafters.count > 0 and scenario.drafters.place == "own" and not shared
    if cost.target_per_hour is None:
        yield "cost.target_per_hour is missing; give it, 0 where targets add nothing, or leave [cost] out"
    elif drafts and cost.drafter_per_hour is None:
        yield "cost.drafter_per_hour is missing beside cost.target_per_hour; give it, 0 where drafters add nothing"


def _of_faults(scenario: Scenario) -> Iterator[str]:
    """Missing timeouts for messages that faults can lose, and faults of unknown stations."""
    drafters, verifiers = scenario.drafters, scenario.verifiers
    if drafters.lease_s > 0 and not verifiers.patience_s:
        yield (
            "drafters.lease_s ends sessions, and with verifiers.patience_s = 0 their targets would wait for ever; "
            "allowed with it: a patience above 0"
        )
    for key, time_s in (("verifiers.patience_s", verifiers.patience_s), ("drafters.lease_s", drafters.lease_s)):
        if scenario.faults and not time_s:
            yield f"[[faults]]: with {key} = 0 a station would wait for ever for what was lost; allowed: above 0"
    names = {drafter_name(drafter, drafters.count) for drafter in range(drafters.count)}
    names |= {verifier_name(target) for target in range(verifiers.count)}
    for fault in scenario.faults:
        if fault.node not in names and (fault.node or isinstance(fault, NodeFault)):
            yield (
                f"[[faults]]: node = {fault.node!r} is no station of this fleet; allowed: "
                f"{drafter_name(0, drafters.count)}, verifier.1, ..."
            )
