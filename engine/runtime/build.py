"""Drafters and targets as a settled fleet describes them."""

from pathlib import Path

from engine.decoding.draft import Drafter
from engine.decoding.eagle import load_head
from engine.decoding.eagle_draft import EagleDrafter, head_shape
from engine.decoding.lookup import LookupDrafter
from engine.decoding.models import DEMO_PAIR, CausalLM, load_model
from engine.decoding.sampling import Sampling
from engine.decoding.verify import Target
from fleet.policies.ragged import BatchRule
from fleet.scenario.settled import Fleet

AnyDrafter = Drafter | LookupDrafter


def sampling_of(fleet: Fleet) -> Sampling:
    """How the fleet's streams are drawn."""
    workload = fleet.workload
    return Sampling(workload.temperature, workload.top_k, workload.top_p)


def new_drafter(
    fleet: Fleet, target: CausalLM | None = None, rule: BatchRule | None = None, room: tuple[int, int] = (1, 512)
) -> AnyDrafter:
    """Load a drafter of the fleet.

    `target`: where its model is loaded already, for an EAGLE head, which reads its embedding and language model head.
    `rule`: of the batch that it drafts for, whose caches may have to be aligned; `room`: rows and tokens of the others.
    """
    drafters = fleet.drafters
    shape, verified_by = drafters.shape, fleet.verifiers.rule
    if drafters.kind == "lookup":
        return LookupDrafter((target or load_target(fleet)).device)
    aligned = rule is not None and rule.aligns
    if drafters.kind == "eagle":
        large = target or load_target(fleet)
        folder = DEMO_PAIR / "eagle" if drafters.model == "demo" else Path(drafters.model)
        head = load_head(folder, large.model, large.dtype, large.device)
        cache = large.aligned_cache(head_shape(head)) if aligned else large.new_cache(*room, shape=head_shape(head))
        return EagleDrafter(head, large, shape, verified_by, cache)
    small = load_model(drafters.model, "drafter", fleet.precision)
    return Drafter(small, shape, verified_by, small.aligned_cache() if aligned else small.new_cache(*room))


def load_target(fleet: Fleet) -> CausalLM:
    """Load the model of the fleet's targets."""
    return load_model(fleet.verifiers.model, "target", fleet.precision)


def new_target(
    fleet: Fleet, model: CausalLM, rule: BatchRule | None = None, room: tuple[int, int] = (1, 512)
) -> Target:
    """Return a target of the fleet; `rule` and `room` as in `new_drafter`."""
    aligned = rule is not None and rule.aligns
    return Target(model, fleet.verifiers.rule, model.aligned_cache() if aligned else model.new_cache(*room))
