"""What does not go together in a scenario: keys that would be ignored, or would wait for ever."""

from collections.abc import Iterator

from fleet.chance.signals import Regional, SignalFile
from fleet.policies.allocate import Needs
from fleet.policies.group import Barrier
from fleet.policies.overlap import Ahead
from fleet.policies.route import Affinity, Central
from fleet.scenario.scenario import Scenario


def conflicts(scenario: Scenario, needs: Needs) -> Iterator[str]:
    """Yield one line for each, naming the keys. `needs`: what the length rule must know of draft tokens."""
    drafters, verifiers = scenario.drafters, scenario.verifiers
    if scenario.batch is not None:
        yield from _beside_a_batch(scenario)
    if isinstance(drafters.overlap, Ahead):
        yield from _ahead(scenario)
    if scenario.workload.ends and not scenario.workload.ends_itself:
        yield (
            "workload.ends says where texts end, and workload.ignore_eos = true lets none end; allowed with it: "
            "ignore_eos = false, or a list `stop`"
        )
    if verifiers.rule == "without-replacement" and drafters.shape.kind == "dynamic":
        yield (
            "verifiers.rule = 'without-replacement': nothing is drawn for drafters.shape.kind = 'dynamic', whose "
            "children are the drafter's best; allowed with it: top-k, match, rejection"
        )
    if isinstance(drafters.group, Barrier):
        yield "drafters.group = 'barrier': drafts wait for nobody; allowed: one, batch"
    if drafters.move != "prefill" and isinstance(drafters.route, Affinity):
        yield f"drafters.move = {drafters.move!r}, but drafters.route = 'affinity' moves no session"
    if verifiers.allocate is not None and verifiers.allocate.watches:
        name = verifiers.allocate.__struct_config__.tag
        yield f"verifiers.allocate = {name!r} stops drafts token by token: in [batch] only"
    model = scenario.acceptance
    if needs == "signals" and model is not None and not isinstance(model, SignalFile | Regional):
        name = model.__struct_config__.tag
        yield (
            f"acceptance.model = {name!r} knows neither divergence nor entropy, and the length rule looks at them; "
            "allowed: signals, synthetic-signals"
        )


def _beside_a_batch(scenario: Scenario) -> Iterator[str]:
    drafters, verifiers = scenario.drafters, scenario.verifiers
    unread = {
        "drafters.count": drafters.count != 1,
        "verifiers.count": verifiers.count != 1,
        "verifiers.allocate": verifiers.allocate is not None,
        "drafters.allocate": drafters.allocate is not None,
        "drafters.overlap": isinstance(drafters.overlap, Ahead),
        "devices": bool(scenario.devices),
    }
    yield from (f"[batch] is one drafter and one target of its own; leave {key} out" for key in unread if unread[key])


def _ahead(scenario: Scenario) -> Iterator[str]:
    asked = {
        "drafters.allocate": scenario.drafters.allocate is not None,
        "drafters.limits_per_s": bool(scenario.drafters.limits_per_s),
        "verifiers.allocate": scenario.verifiers.allocate is not None,
    }
    for key, is_asked in asked.items():
        if is_asked:
            yield f"drafters.overlap = 'ahead' drafts token by token; {key} does not go with it"
    if isinstance(scenario.drafters.route, Central):
        yield "drafters.overlap = 'ahead' keeps drafters busy; drafters.route = 'central' would wait for ever"
