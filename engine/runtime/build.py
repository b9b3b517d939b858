"""Drafters and targets as a scenario describes them."""

from pathlib import Path

from engine.decoding.draft import Drafter
from engine.decoding.eagle import load_head
from engine.decoding.eagle_draft import EagleDrafter, head_shape
from engine.decoding.lookup import LookupDrafter
from engine.decoding.models import DEMO_PAIR, CausalLM, load_model
from engine.decoding.sampling import Sampling
from engine.decoding.verify import Target
from fleet.policies.ragged import BatchRule
from fleet.scenario.scenario import Scenario

AnyDrafter = Drafter | LookupDrafter


def sampling_of(scenario: Scenario) -> Sampling:
    """How the scenario's streams are drawn."""
    workload = scenario.workload
    return Sampling(workload.temperature, workload.top_k, workload.top_p)


def new_drafter(
    scenario: Scenario, target: CausalLM | None = None, rule: BatchRule | None = None, room: tuple[int, int] = (1, 512)
) -> AnyDrafter:
    """Load a drafter of the scenario's fleet.

    `target`: where its model is loaded already, for an EAGLE head, which reads its embedding and language model head.
    `rule`: of the batch that it drafts for, whose caches may have to be aligned; `room`: rows and tokens of the others.
    """
    drafters = scenario.drafters
    shape, verified_by = drafters.shape, scenario.verifiers.rule
    if drafters.kind == "lookup":
        return LookupDrafter((target or load_target(scenario)).device)
    aligned = rule is not None and rule.aligns
    if drafters.kind == "eagle":
        large = target or load_target(scenario)
        folder = DEMO_PAIR / "eagle" if drafters.model == "demo" else Path(drafters.model)
        head = load_head(folder, large.model, large.dtype, large.device)
        cache = large.aligned_cache(head_shape(head)) if aligned else large.new_cache(*room, shape=head_shape(head))
        return EagleDrafter(head, large, shape, verified_by, cache)
    small = load_model(drafters.model, "drafter", scenario.precision)
    return Drafter(small, shape, verified_by, small.aligned_cache() if aligned else small.new_cache(*room))


def load_target(scenario: Scenario) -> CausalLM:
    """Load the model of the scenario's targets."""
    return load_model(scenario.verifiers.model, "target", scenario.precision)


def new_target(
    scenario: Scenario, model: CausalLM, rule: BatchRule | None = None, room: tuple[int, int] = (1, 512)
) -> Target:
    """Return a target of the scenario's fleet; `rule` and `room` as in `new_drafter`."""
    aligned = rule is not None and rule.aligns
    return Target(model, scenario.verifiers.rule, model.aligned_cache() if aligned else model.new_cache(*room))
