"""References: the same load without speculation, for a speedup; a target alone, for fairness between targets.

A speedup is of targets that serve several requests; alone is what a target would have if the drafter served no other.
"""

import math
from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from specfleet.fleet.acceptance.tokens import TokenModel
from specfleet.fleet.policies.order import Fifo, rate_limits
from specfleet.fleet.policies.route import Affinity
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.scenario.facts import plain_step_s
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Drafters, Scenario, Tier
from specfleet.fleet.scenario.sides import in_tier, step_in_tier
from specfleet.sim.run import observe


def without_drafts(scenario: Scenario) -> Scenario:
    """Return the scenario with targets that decode by themselves."""
    replace, names = msgspec.structs.replace, ("allocate", "aligned", "late", "patience_s", "rejoin_s", "priorities")
    defaults = {field.name: field.default for field in msgspec.structs.fields(type(scenario.verifiers))}
    verifiers = replace(scenario.verifiers, **{name: defaults[name] for name in names})
    if verifiers.prefill:
        verifiers = replace(verifiers, prefill=replace(verifiers.prefill, first_round_drafts=False))
    drafters = Drafters(count=0, depth=scenario.drafters.depth, profile=scenario.drafters.profile)
    workload = replace(scenario.workload, streams=scenario.workload.streams or resolve(scenario).streams)
    return replace(scenario, drafters=drafters, verifiers=verifiers, workload=workload, link=None, faults=())


def plain_tpot_s(scenario: Scenario) -> float:
    """Return the mean TPOT of the same load without speculation, simulated; NaN without times of plain steps."""
    plain = without_drafts(scenario)
    if not plain_step_s(resolve(plain), 1.0) > 0:
        return math.nan
    metrics = measure(observe(plain))
    return metrics["tpot_s"].value if "tpot_s" in metrics else math.nan


def has_targets_alone(fleet: Fleet) -> bool:
    """Whether each target can be simulated alone: a closed loop of drafts, with a stream for each target."""
    drafted = fleet.drafters.count > 0 and not isinstance(fleet.acceptance, TokenModel)
    return drafted and fleet.streams == fleet.verifiers.count


def alone_tokens_per_s(scenario: Scenario) -> list[float]:
    """Return the throughput of each target, simulated as the only one, in tokens a second."""
    known: dict[str, float] = {}
    throughputs = []
    for target in range(scenario.verifiers.count):
        only = alone(scenario, target)
        if (digest := only.digest()) not in known:
            known[digest] = measure(observe(only))["throughput"].value
        throughputs.append(known[digest])
    return throughputs


def alone(scenario: Scenario, target: int) -> Scenario:
    """Return the scenario with one target, numbered from 0, as the only one at its drafters, and without faults."""
    drafters, verifiers = scenario.drafters, scenario.verifiers
    limit = rate_limits(drafters.order)[: target + 1][-1:]
    drafters = msgspec.structs.replace(drafters, order=Fifo(limits_per_s=limit if any(limit) else ()))
    if isinstance(drafters.route, Affinity):
        tiers = _only(drafters.tiers, target % drafters.count)
        drafters = msgspec.structs.replace(drafters, count=1, tiers=tiers)
    tiers = _only(verifiers.tiers, target)
    verifiers = msgspec.structs.replace(verifiers, count=1, tiers=tiers, priorities=())
    workload = msgspec.structs.replace(scenario.workload, streams=1)
    return msgspec.structs.replace(scenario, drafters=drafters, verifiers=verifiers, workload=workload, faults=())


def _only(tiers: Sequence[Tier], number: int) -> tuple[Tier]:
    """Return what tiers give to one station, as the tier of the first."""
    link, profile = in_tier(tiers, number, "link", None), in_tier(tiers, number, "profile", UNSET)
    return (Tier(1, step_in_tier(tiers, number), link, profile=profile),)
