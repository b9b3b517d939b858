"""Conflicts within a scenario: unused keys, tables without effect, rules that would wait for ever.

`readers.py` says which keys have no effect.
"""

from collections.abc import Iterator
from itertools import pairwise

from specfleet.fleet.acceptance.models import Found
from specfleet.fleet.policies.adaedl import AdaEdl
from specfleet.fleet.policies.adaptive import Adaptive
from specfleet.fleet.policies.aligned import SameLength
from specfleet.fleet.policies.goodput import Goodput
from specfleet.fleet.policies.route import LongestPrefix
from specfleet.fleet.scenario.faults import NodeFault
from specfleet.fleet.scenario.names import drafter_name, verifier_name
from specfleet.fleet.scenario.readers import FORMS, is_set, unread
from specfleet.fleet.scenario.scenario import Drafters, Scenario, Verifiers


def conflicts(scenario: Scenario) -> Iterator[str]:
    """Yield one line for each conflict, with the keys."""
    yield from _unused_keys(scenario)
    yield from _of_stations(scenario)
    yield from _of_what_is_found(scenario)
    yield from _of_goals_and_prices(scenario)
    yield from _of_faults(scenario)


def unused_keys(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Yield each set key without effect, and the reason."""
    for name, form in FORMS.items():
        if form.holds(scenario):
            yield from ((key, form.reason.format(scenario)) for key in unread(name) if is_set(scenario, key))


def _unused_keys(scenario: Scenario) -> Iterator[str]:
    """Yield a line for each unused key: the reason, and what to do."""
    yield from (f"{reason}; leave {key} out" for key, reason in unused_keys(scenario))
    for side in ("drafters", "verifiers"):
        stations = getattr(scenario, side)
        for tier in stations.tiers:
            if tier.step is None and tier.link is None and not tier.profile and not tier.model:
                yield f"{side}.tiers: first = {tier.first} changes nothing; give profile, step, link or model"
            if tier.link is not None and scenario.drafters.place == "target":
                yield f"{side}.tiers: first = {tier.first}: drafters.place = 'target' has no links; leave link out"
            if tier.profile and (stations.device or (scenario.drafters.place == "target" and scenario.drafters.count)):
                reason = f"all are on devices.{stations.device}" if stations.device else "their drafts are of one kind"
                yield f"{side}.tiers: first = {tier.first}: profile is of another machine, and {reason}; leave it out"
        for before, tier in pairwise(stations.tiers):
            if tier.first <= before.first:
                yield f"{side}.tiers: first = {tier.first} comes after first = {before.first}; allowed: first rises"
    for name in scenario.devices:
        if name not in (scenario.drafters.device, scenario.verifiers.device):
            yield f"devices.{name}: no station is on it; drafters.device and verifiers.device name it"


def _of_stations(scenario: Scenario) -> Iterator[str]:
    drafters, verifiers = scenario.drafters, scenario.verifiers
    for side, stations in (("drafters", drafters), ("verifiers", verifiers)):
        if stations.device and stations.device not in scenario.devices:
            known = ", ".join(scenario.devices) or "none: add a table [devices.NAME]"
            yield f"{side}.device = {stations.device!r} is no device of [devices]; allowed: {known}"
        if stations.profile != "" and drafters.device == verifiers.device != "":
            yield (
                f"{side}.profile is of a machine of that side's own, and both are on devices.{drafters.device}; give "
                "`profile`, what was measured on one device, or leave the devices out"
            )
    if verifiers.rule == "without-replacement" and drafters.shape.kind == "dynamic":
        yield (
            "verifiers.rule = 'without-replacement': nothing is drawn for drafters.shape.kind = 'dynamic', whose "
            "children are the drafter's best; allowed with it: top-k, match, rejection"
        )
    if verifiers.kv_tokens and verifiers.gpu_memory_utilization is not None:
        yield f"verifiers.kv_tokens = {verifiers.kv_tokens}: gpu_memory_utilization gives it, too; leave one out"
    if isinstance(drafters.route, LongestPrefix) and not drafters.prefix_cache:
        yield "drafters.route = 'longest-prefix' looks at prefix caches; set drafters.prefix_cache = true"
    yield from _of_aligned_rows(verifiers, drafters)
    rule, tiers = verifiers.allocate, verifiers.tiers
    if isinstance(rule, Goodput | Adaptive) and not rule.costs and any(tier.step for tier in tiers):
        named = rule.__struct_config__.tag
        yield f"verifiers.allocate = {named!r} has the costs of like targets; state them, or leave verifiers.tiers out"
    if isinstance(rule, Adaptive):
        yield from _of_chosen_tokens(rule, verifiers, drafters)
    if drafters.kind == "replayed" and verifiers.kind != "replayed":
        yield (
            f"drafters.kind = 'replayed' drafts nothing that verifiers.kind = {verifiers.kind!r} could verify; allowed "
            "with it: verifiers.kind = 'replayed'"
        )


def _of_what_is_found(scenario: Scenario) -> Iterator[str]:
    """Rules and acceptance that drafts found in texts do not go with."""
    first, rule, model = scenario.drafters.first, scenario.verifiers.allocate, scenario.acceptance
    if isinstance(model, Found) and not (scenario.drafters.finds or first):
        yield "acceptance.model = 'found' needs drafters.first, or drafters.kind = 'suffix' or 'lookup'"
    if not first:
        return
    if rule is not None and (rule.watches or rule.needs != "lengths"):
        named = rule.__struct_config__.tag
        yield f"verifiers.allocate = {named!r} looks at distributions, and drafts of drafters.first have none"
    least = first.of_head(scenario.drafters.depth if rule is None else rule.longest)
    if first.least > least:
        yield f"drafters.first.least = {first.least} is above the longest draft, {least}; allowed: up to that"
    if isinstance(model, Found) and (model.least != least or model.head is None):
        yield f"acceptance.model = 'found' beside drafters.first needs a head, and least = {least}, of drafters.first"


def _of_aligned_rows(verifiers: Verifiers, drafters: Drafters) -> Iterator[str]:
    """Rules that need drafts on the target's device."""
    rule, beside = verifiers.aligned, drafters.place == "target" and drafters.count > 0
    if isinstance(verifiers.allocate, AdaEdl | Goodput) and not beside:
        yield f"verifiers.allocate = {verifiers.allocate.__struct_config__.tag!r} needs drafters.place = 'target'"
    if isinstance(verifiers.allocate, AdaEdl) and drafters.kind == "block":
        yield "verifiers.allocate = 'adaedl' ends a draft token by token, and drafters.kind = 'block' has one pass"
    if rule is None:
        return
    if getattr(verifiers.allocate, "sees_queue", False):
        yield "verifiers.allocate looks at the queue, which verifiers.aligned does not show; leave one of them out"
    if not beside:
        yield "verifiers.aligned needs drafters.place = 'target'; give it, or leave verifiers.aligned out"
    if verifiers.kind == "replayed":
        yield "verifiers.aligned runs its models; leave verifiers.kind = 'replayed' or verifiers.aligned out"
    if isinstance(rule, SameLength) and rule.window < verifiers.max_num_seqs:
        yield (
            f"verifiers.aligned.window = {rule.window} must hold at least verifiers.max_num_seqs = "
            f"{verifiers.max_num_seqs} rows"
        )


def _of_chosen_tokens(rule: Adaptive, verifiers: Verifiers, drafters: Drafters) -> Iterator[str]:
    """Forms of drafts and of batches that adaptive verification does not know."""
    named = "verifiers.allocate = 'adaptive'"
    if drafters.shape.kind != "chain":
        yield f"{named} chooses tokens of chains; leave drafters.shape.kind = {drafters.shape.kind!r} out"
    if verifiers.aligned is not None:
        yield f"{named} cuts each row by itself, and verifiers.aligned pads all to the longest; leave one out"
    if rule.by == "entropy" and drafters.place != "target":
        yield f"{named}: by = 'entropy' needs drafters.place = 'target'; drafts from elsewhere carry no entropies"


def _of_goals_and_prices(scenario: Scenario) -> Iterator[str]:
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
