"""Conflicts within a scenario: unused keys, tables without effect, rules that would wait for ever."""

from collections.abc import Iterator

from fleet.acceptance.signals import Regional, SignalFile
from fleet.policies.allocate import Needs
from fleet.policies.overlap import Ahead
from fleet.policies.route import Central
from fleet.scenario.faults import NodeFault
from fleet.scenario.names import drafter_name, verifier_name
from fleet.scenario.scenario import Scenario
from fleet.scenario.unused import unused_keys


def conflicts(scenario: Scenario, needs: Needs) -> Iterator[str]:
    """Yield one line for each conflict, with the keys. `needs`: signals of draft tokens that the length rule uses."""
    yield from unused_keys(scenario)
    yield from _of_stations(scenario)
    yield from _of_goals_and_prices(scenario)
    yield from _of_faults(scenario)
    model = scenario.acceptance
    if needs == "signals" and model is not None and not isinstance(model, SignalFile | Regional):
        yield (
            f"acceptance.model = {model.__struct_config__.tag!r} knows neither divergence nor entropy, and the length "
            "rule looks at them; allowed: signals, synthetic-signals"
        )


def _of_stations(scenario: Scenario) -> Iterator[str]:
    drafters, verifiers = scenario.drafters, scenario.verifiers
    for side in ("drafters", "verifiers"):
        if getattr(scenario, side).profile != "" and drafters.device == verifiers.device != "":
            yield (
                f"{side}.profile is of a machine of that side's own, and both are on devices.{drafters.device}; give "
                "`profile`, what was measured on one device, or leave the devices out"
            )
    if isinstance(drafters.overlap, Ahead) and isinstance(drafters.route, Central):
        yield "drafters.overlap = 'ahead' keeps drafters busy; drafters.route = 'central' would wait for ever"
    if verifiers.rule == "without-replacement" and drafters.shape.kind == "dynamic":
        yield (
            "verifiers.rule = 'without-replacement': nothing is drawn for drafters.shape.kind = 'dynamic', whose "
            "children are the drafter's best; allowed with it: top-k, match, rejection"
        )
    if drafters.kind != "replayed":
        return
    if scenario.batch is not None:
        yield "drafters.kind = 'replayed' is a station of its own; a [batch] runs its models: leave one of both out"
    if verifiers.kind != "replayed":
        yield (
            f"drafters.kind = 'replayed' drafts nothing that verifiers.kind = {verifiers.kind!r} could verify; allowed "
            "with it: verifiers.kind = 'replayed'"
        )


def _of_goals_and_prices(scenario: Scenario) -> Iterator[str]:
    """Tables without effect, and a role without a price or watts."""
    slo, cost = scenario.slo, scenario.cost
    if slo is not None and not slo.limits_s:
        yield "[slo] has no goal; give slo.ttft_s, slo.tpot_s or slo.e2el_s, or leave it out"
    if cost is None:
        return
    if not (cost.has_prices or cost.has_watts):
        yield "[cost] has neither prices nor watts; give cost.target_per_hour or cost.target_w, or leave it out"
    if cost.unit != "" and not cost.has_prices:
        yield f"cost.unit = {cost.unit!r} is what prices are in, and there is none; leave it out"
    shared = scenario.drafters.device == scenario.verifiers.device != ""
    drafts = scenario.drafters.count > 0 and scenario.batch is None and not shared
    for form, has in (("per_hour", cost.has_prices), ("w", cost.has_watts)):
        if has and getattr(cost, f"target_{form}") is None:
            yield f"cost.target_{form} is missing beside cost.drafter_{form}; give it, 0 where targets add nothing"
        if has and drafts and getattr(cost, f"drafter_{form}") is None:
            yield f"cost.drafter_{form} is missing beside cost.target_{form}; give it, 0 where drafters add nothing"


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
