"""Drafters, targets, and how executors open streams on them, as a resolved fleet describes it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from transformers import AutoConfig

from engine.decoding.draft import Drafter
from engine.decoding.eagle import EagleDrafter, head_shape
from engine.decoding.eagle_files import load_head, taps_of
from engine.decoding.folders import explained
from engine.decoding.lookup import LookupDrafter
from engine.decoding.models import DEMO_PAIR, CausalLM, folder_of, load_model
from engine.decoding.sampling import GREEDY, Sampling
from engine.decoding.verify import Target
from fleet.policies.ragged import BatchRule
from fleet.scenario.resolved import Fleet
from fleet.stations.messages import Join

AnyDrafter = Drafter | LookupDrafter
Side = Literal["drafter", "target"]


class Streams(msgspec.Struct, frozen=True):
    """How executors open streams: `prompts[i]` holds the token ids of request i.

    `overshoot`: places that a row needs beyond its text, for what the last rounds draft too much.
    """

    prompts: Sequence[Sequence[int]]
    seed: int = 0
    sampling: Sampling = GREEDY
    overshoot: int = 0

    def open(self, model: Target | AnyDrafter, side: Side, join: Join) -> None:
        """Open the stream of a request at a drafter or a target: its prompt, random numbers of its own, its room."""
        prompt = list(self.prompts[join.request])[: join.prompt_tokens]
        room = join.prompt_tokens + join.new_tokens + self.overshoot
        model.open(join.tag, prompt, self.sampling, self.seed_of(join.request, side), room)

    def seed_of(self, request: int, side: Side, epoch: int = 1) -> int:
        """Return the seed of one request's random numbers at the drafter or the target.

        `epoch`: in which a drafter opens it. One that opens it again must not draw the same numbers again: what they
        led to before is in the text, and a draft that depends on its text in that way is not one that rules expect.
        """
        entropy = [self.seed, request, 1 if side == "target" else 0, *([epoch] if epoch > 1 else [])]
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def new_streams(fleet: Fleet, prompts: Sequence[Sequence[int]] = ()) -> Streams:
    """Return how the fleet's streams are opened. A drafter needs no prompts: its messages bring the prefixes."""
    workload = fleet.workload
    sampling = Sampling(workload.temperature, workload.top_k, workload.top_p)
    return Streams(prompts, fleet.seed, sampling, fleet.room.overshoot)


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
        folder = head_folder(fleet)
        with explained(folder, "no draft head can be loaded from it"):
            head = load_head(folder, large.model, large.dtype, large.device)
        cache = large.aligned_cache(head_shape(head)) if aligned else large.new_cache(*room, shape=head_shape(head))
        return EagleDrafter(head, large, shape, verified_by, cache)
    small = load_model(drafters.model, "drafter", fleet.precision)
    return Drafter(small, shape, verified_by, small.aligned_cache() if aligned else small.new_cache(*room))


def head_folder(fleet: Fleet) -> Path:
    """Return the folder of the fleet's EAGLE head."""
    return DEMO_PAIR / "eagle" if fleet.drafters.model == "demo" else Path(fleet.drafters.model)


def head_taps(fleet: Fleet) -> tuple[int, ...]:
    """Return the layers of the fleet's target whose inputs its head reads; none for other drafters and heads."""
    if fleet.drafters.kind != "eagle" or not fleet.drafters.count:
        return ()
    config = AutoConfig.from_pretrained(folder_of(fleet.verifiers.model, "target"), local_files_only=True)
    return taps_of(head_folder(fleet), int(config.num_hidden_layers))


def load_target(fleet: Fleet) -> CausalLM:
    """Load the model of the fleet's targets."""
    return load_model(fleet.verifiers.model, "target", fleet.precision)


def new_target(
    fleet: Fleet, model: CausalLM, rule: BatchRule | None = None, room: tuple[int, int] = (1, 512)
) -> Target:
    """Return a target of the fleet; `rule` and `room` as in `new_drafter`."""
    aligned = rule is not None and rule.aligns
    cache = model.aligned_cache() if aligned else model.new_cache(*room)
    return Target(model, fleet.verifiers.rule, cache, head_taps(fleet))
