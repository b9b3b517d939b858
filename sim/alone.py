"""What a target would have if the drafter served no other: the reference of fairness between targets."""

import msgspec

from fleet.acceptance.tokens import TokenModel
from fleet.records.metrics.measure import measure
from fleet.scenario.resolved import Fleet
from fleet.scenario.scenario import Scenario
from sim.run import observe


def has_targets_alone(fleet: Fleet) -> bool:
    """Whether each target can be simulated alone: a closed loop of drafts, with a stream for each target."""
    drafted = fleet.drafters.count > 0 and not isinstance(fleet.acceptance, TokenModel)
    return drafted and fleet.streams == fleet.verifiers.count


def alone_tokens_per_s(scenario: Scenario) -> list[float]:
    """Return the throughput of each target, simulated as the only one, in tokens a second."""
    found: dict[tuple[int, float], float] = {}
    throughputs = []
    for target in range(scenario.verifiers.count):
        differs = _tier(scenario, target), _limit_per_s(scenario, target)
        if differs not in found:
            found[differs] = measure(observe(alone(scenario, target)))["throughput"].value
        throughputs.append(found[differs])
    return throughputs


def alone(scenario: Scenario, target: int) -> Scenario:
    """Return the scenario with one target, numbered from 0, as the only one, and without faults."""
    tier, limit_per_s = _tier(scenario, target), _limit_per_s(scenario, target)
    tiers = () if tier < 0 else (msgspec.structs.replace(scenario.verifiers.tiers[tier], first=1),)
    verifiers = msgspec.structs.replace(scenario.verifiers, count=1, tiers=tiers, priorities=())
    drafters = msgspec.structs.replace(scenario.drafters, limits_per_s=(limit_per_s,) if limit_per_s else ())
    workload = msgspec.structs.replace(scenario.workload, streams=1)
    return msgspec.structs.replace(scenario, drafters=drafters, verifiers=verifiers, workload=workload, faults=())


def _tier(scenario: Scenario, target: int) -> int:
    """Return the place of the tier that covers a target; -1 if none does."""
    return sum(tier.first <= target + 1 for tier in scenario.verifiers.tiers) - 1


def _limit_per_s(scenario: Scenario, target: int) -> float:
    limits = scenario.drafters.limits_per_s
    return limits[min(target, len(limits) - 1)] if limits else 0.0
