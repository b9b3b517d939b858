"""What does not go together in a scenario: keys that nobody would read, or rules that would wait for ever."""

from collections.abc import Iterator

from fleet.chance.signals import Regional, SignalFile
from fleet.policies.allocate import Needs
from fleet.policies.overlap import Ahead
from fleet.policies.route import Central
from fleet.scenario.faults import NodeFault
from fleet.scenario.names import drafter_name, verifier_name
from fleet.scenario.scenario import Scenario
from fleet.scenario.unread import unread_keys


def conflicts(scenario: Scenario, needs: Needs) -> Iterator[str]:
    """Yield one line for each, naming the keys. `needs`: what the length rule must know of draft tokens."""
    yield from unread_keys(scenario)
    yield from _of_replayed_drafters(scenario)
    shared = scenario.drafters.device or scenario.verifiers.device
    for side in ("drafters", "verifiers"):
        if getattr(scenario, side).profile and scenario.drafters.device == scenario.verifiers.device == shared != "":
            yield (
                f"{side}.profile is of a machine of that side's own, and both are on devices.{shared}; give `profile`, "
                "what was measured on one device, or leave the devices out"
            )
    if isinstance(scenario.drafters.overlap, Ahead) and isinstance(scenario.drafters.route, Central):
        yield "drafters.overlap = 'ahead' keeps drafters busy; drafters.route = 'central' would wait for ever"
    yield from _of_faults(scenario)
    if scenario.verifiers.rule == "without-replacement" and scenario.drafters.shape.kind == "dynamic":
        yield (
            "verifiers.rule = 'without-replacement': nothing is drawn for drafters.shape.kind = 'dynamic', whose "
            "children are the drafter's best; allowed with it: top-k, match, rejection"
        )
    model = scenario.acceptance
    if needs == "signals" and model is not None and not isinstance(model, SignalFile | Regional):
        name = model.__struct_config__.tag
        yield (
            f"acceptance.model = {name!r} knows neither divergence nor entropy, and the length rule looks at them; "
            "allowed: signals, synthetic-signals"
        )


def _of_faults(scenario: Scenario) -> Iterator[str]:
    """What would wait for ever for a message that does not come, and faults of nobody."""
    drafters, verifiers = scenario.drafters, scenario.verifiers
    if drafters.lease_s and not verifiers.patience_s:
        yield (
            "drafters.lease_s ends sessions, and with verifiers.patience_s = 0 their targets would wait for ever; "
            "allowed with it: a patience above 0"
        )
    if not scenario.faults or not drafters.count or scenario.batch is not None:
        return
    for key, time_s in (("verifiers.patience_s", verifiers.patience_s), ("drafters.lease_s", drafters.lease_s)):
        if not time_s:
            yield f"[[faults]]: with {key} = 0 somebody would wait for ever for what was lost; allowed: above 0"
    names = {drafter_name(drafter, drafters.count) for drafter in range(drafters.count)}
    names |= {verifier_name(target) for target in range(verifiers.count)}
    for fault in scenario.faults:
        if fault.node not in names and (fault.node or isinstance(fault, NodeFault)):
            first = drafter_name(0, drafters.count)
            yield f"[[faults]]: node = {fault.node!r} is no station of this fleet; allowed: {first}, verifier.1, ..."


def _of_replayed_drafters(scenario: Scenario) -> Iterator[str]:
    """Their drafts say nothing that a model could verify."""
    if scenario.drafters.kind != "replayed":
        return
    if scenario.batch is not None:
        yield "drafters.kind = 'replayed' is a station of its own; a [batch] runs its models: leave one of both out"
    elif scenario.verifiers.kind != "replayed":
        yield (
            f"drafters.kind = 'replayed' drafts nothing that verifiers.kind = {scenario.verifiers.kind!r} could "
            "verify; allowed with it: verifiers.kind = 'replayed'"
        )
