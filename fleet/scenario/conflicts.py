"""What does not go together in a scenario: keys that nobody would read, or rules that would wait for ever."""

from collections.abc import Iterator

from fleet.chance.signals import Regional, SignalFile
from fleet.policies.allocate import Needs
from fleet.policies.overlap import Ahead
from fleet.policies.route import Central
from fleet.scenario.scenario import Scenario
from fleet.scenario.unread import unread_keys


def conflicts(scenario: Scenario, needs: Needs) -> Iterator[str]:
    """Yield one line for each, naming the keys. `needs`: what the length rule must know of draft tokens."""
    yield from unread_keys(scenario)
    yield from _of_replayed_drafters(scenario)
    if isinstance(scenario.drafters.overlap, Ahead) and isinstance(scenario.drafters.route, Central):
        yield "drafters.overlap = 'ahead' keeps drafters busy; drafters.route = 'central' would wait for ever"
    if scenario.workload.ends and not scenario.workload.ends_itself:
        yield (
            "workload.ends says where texts end, and workload.ignore_eos = true lets none end; allowed with it: "
            "ignore_eos = false, or a list `stop`"
        )
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
