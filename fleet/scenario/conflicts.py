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

Rule = tuple[bool, str]
"""Whether it is broken, and its error line."""


def conflicts(scenario: Scenario, needs: Needs) -> Iterator[str]:
    """Yield one line for each conflict, with the keys. `needs`: signals of draft tokens that the length rule uses."""
    yield from unused_keys(scenario)
    rules = (*_stations(scenario), *_goals_and_prices(scenario), *_faults(scenario), _signals(scenario, needs))
    yield from (line for is_broken, line in rules if is_broken)


def _stations(scenario: Scenario) -> Iterator[Rule]:
    drafters, verifiers = scenario.drafters, scenario.verifiers
    together = drafters.device == verifiers.device != ""
    for side in ("drafters", "verifiers"):
        yield (
            getattr(scenario, side).profile != "" and together,
            (
                f"{side}.profile is of a machine of that side's own, and both are on devices.{drafters.device}; give "
                "`profile`, what was measured on one device, or leave the devices out"
            ),
        )
    yield (
        isinstance(drafters.overlap, Ahead) and isinstance(drafters.route, Central),
        ("drafters.overlap = 'ahead' keeps drafters busy; drafters.route = 'central' would wait for ever"),
    )
    yield (
        verifiers.rule == "without-replacement" and drafters.shape.kind == "dynamic",
        (
            "verifiers.rule = 'without-replacement': nothing is drawn for drafters.shape.kind = 'dynamic', whose "
            "children are the drafter's best; allowed with it: top-k, match, rejection"
        ),
    )
    is_replayed = drafters.kind == "replayed"
    yield (
        is_replayed and scenario.batch is not None,
        ("drafters.kind = 'replayed' is a station of its own; a [batch] runs its models: leave one of both out"),
    )
    yield (
        is_replayed and verifiers.kind != "replayed",
        (
            f"drafters.kind = 'replayed' drafts nothing that verifiers.kind = {verifiers.kind!r} could verify; allowed "
            "with it: verifiers.kind = 'replayed'"
        ),
    )


def _goals_and_prices(scenario: Scenario) -> Iterator[Rule]:
    """Tables without effect, and a role without a price or watts."""
    slo, cost = scenario.slo, scenario.cost
    yield (
        slo is not None and not slo.limits_s,
        ("[slo] has no goal; give slo.ttft_s, slo.tpot_s or slo.e2el_s, or leave it out"),
    )
    if cost is None:
        return
    yield (
        not (cost.has_prices or cost.has_watts),
        ("[cost] has neither prices nor watts; give cost.target_per_hour or cost.target_w, or leave it out"),
    )
    yield (
        cost.unit != "" and not cost.has_prices,
        (f"cost.unit = {cost.unit!r} is what prices are in, and there is none; leave it out"),
    )
    shared = scenario.drafters.device == scenario.verifiers.device != ""
    drafts = scenario.drafters.count > 0 and scenario.batch is None and not shared
    for form, has in (("per_hour", cost.has_prices), ("w", cost.has_watts)):
        yield (
            has and getattr(cost, f"target_{form}") is None,
            (f"cost.target_{form} is missing beside cost.drafter_{form}; give it, 0 where targets add nothing"),
        )
        yield (
            has and drafts and getattr(cost, f"drafter_{form}") is None,
            (f"cost.drafter_{form} is missing beside cost.target_{form}; give it, 0 where drafters add nothing"),
        )


def _faults(scenario: Scenario) -> Iterator[Rule]:
    """Missing timeouts for messages that faults can lose, and faults of unknown stations."""
    drafters, verifiers = scenario.drafters, scenario.verifiers
    yield (
        drafters.lease_s > 0 and not verifiers.patience_s,
        (
            "drafters.lease_s ends sessions, and with verifiers.patience_s = 0 their targets would wait for ever; "
            "allowed with it: a patience above 0"
        ),
    )
    for key, time_s in (("verifiers.patience_s", verifiers.patience_s), ("drafters.lease_s", drafters.lease_s)):
        yield (
            scenario.faults != () and not time_s,
            (f"[[faults]]: with {key} = 0 a station would wait for ever for what was lost; allowed: above 0"),
        )
    names = {drafter_name(drafter, drafters.count) for drafter in range(drafters.count)}
    names |= {verifier_name(target) for target in range(verifiers.count)}
    for fault in scenario.faults:
        is_known = fault.node in names or (fault.node == "" and not isinstance(fault, NodeFault))
        yield (
            not is_known,
            (
                f"[[faults]]: node = {fault.node!r} is no station of this fleet; allowed: "
                f"{drafter_name(0, drafters.count)}, verifier.1, ..."
            ),
        )


def _signals(scenario: Scenario, needs: Needs) -> Rule:
    model = scenario.acceptance
    name = model.__struct_config__.tag if model is not None else ""
    return needs == "signals" and model is not None and not isinstance(model, SignalFile | Regional), (
        f"acceptance.model = {name!r} knows neither divergence nor entropy, and the length rule looks at them; "
        "allowed: signals, synthetic-signals"
    )
