"""The same load without speculation: what a speedup of targets that serve several requests compares with."""

import math

import msgspec

from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.scenario.facts import plain_step_s
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Drafters, Scenario
from specfleet.sim.run import observe


def without_drafts(scenario: Scenario) -> Scenario:
    """Return the scenario with targets that decode by themselves."""
    replace, names = msgspec.structs.replace, ("allocate", "aligned", "late", "patience_s", "rejoin_s", "priorities")
    defaults = {field.name: field.default for field in msgspec.structs.fields(type(scenario.verifiers))}
    verifiers = replace(scenario.verifiers, **{name: defaults[name] for name in names})
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
