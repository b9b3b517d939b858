"""Loads drafters and targets, and opens the streams of executors, as a resolved fleet describes them.

The models of this host also tell how many positions and how large vocabularies a fleet has.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from specfleet.engine.decoding.admitted import known_positions
from specfleet.engine.decoding.block import BlockDrafter
from specfleet.engine.decoding.blocks import BlockCache
from specfleet.engine.decoding.cache import CacheShape, RowCache, shape_of
from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.eagle import EagleDrafter
from specfleet.engine.decoding.eagle_files import load_head, read_taps
from specfleet.engine.decoding.folders import folder_of, is_folder_of_model, named_folder, read_config
from specfleet.engine.decoding.llama import is_lean
from specfleet.engine.decoding.lookup import LookupDrafter
from specfleet.engine.decoding.models import CausalLM, load_model
from specfleet.engine.decoding.sampling import GREEDY, Sampling
from specfleet.engine.decoding.shared_tokenizer import check_shared_tokenizer
from specfleet.engine.decoding.suffix import SuffixDrafter
from specfleet.engine.decoding.verify import Target
from specfleet.engine.node.named import check_stated, models_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.blocks import CachedBlocks
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.stations.messages import Join

AnyDrafter = Drafter | LookupDrafter
Side = Literal["drafter", "target"]


class Streams(msgspec.Struct, frozen=True):
    """Opens the streams of executors.

    - `prompts[i]`: token ids of request i; of a later turn of a conversation, those after the text so far.
    - `overshoot`: places that a row needs beyond its text, for rejected tokens of the last rounds.
    - `said`: the text of each conversation so far, by tag; None if there are no conversations.
    """

    prompts: Sequence[Sequence[int]]
    seed: int = 0
    sampling: Sampling = GREEDY
    overshoot: int = 0
    said: dict[int, list[int]] | None = None

    def open(self, model: Target | AnyDrafter, side: Side, join: Join) -> None:
        """Open the stream of a request at a drafter or a target, with its prompt, random numbers and capacity."""
        prompt = list(self.prompts[join.request])[: join.prompt_tokens]
        if before := join.prompt_tokens - len(prompt):
            prompt = (self.said or {})[join.tag][:before] + prompt
        room = join.prompt_tokens + join.new_tokens + self.overshoot
        model.open(join.tag, prompt, self.sampling, self.seed_of(join.request, side), room)

    def seed_of(self, request: int, side: Side, epoch: int = 1) -> int:
        """Return the seed of one request's random numbers at the drafter or the target.

        `epoch`: in which the drafter opens it. A second opening must not repeat the random numbers: the text depends on
        the first ones, and the rules assume that a draft does not depend on the text in that way.
        """
        entropy = [self.seed, request, 1 if side == "target" else 0, *([epoch] if epoch > 1 else [])]
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def new_streams(fleet: Fleet, prompts: Sequence[Sequence[int]] = ()) -> Streams:
    """Return a fleet's way to open streams. A drafter needs no prompts: its messages have the prefixes."""
    workload = fleet.workload
    sampling = Sampling(workload.temperature, workload.top_k, workload.top_p)
    return Streams(prompts, fleet.seed, sampling, fleet.room.overshoot, {} if workload.conversations else None)


def new_drafter(
    fleet: Fleet, target: CausalLM | None = None, room: tuple[int, int] = (1, 512), number: int = 0,
    pool: CachedBlocks | None = None,
) -> AnyDrafter:  # fmt: skip
    """Load drafter `number` of the fleet.

    - `target`: the loaded target, if an EAGLE head shares its embedding and language model head; else those of the
      first target that it serves.
    - `room`: rows and tokens of a cache, which grows beyond them; without effect where rows are aligned.
    - `pool`: the blocks of its target's prefix cache, if it is on that target's device.
    """
    drafters, aligned = fleet.drafters, fleet.verifiers.aligned is not None
    shape, verified_by = drafters.shape, fleet.verifiers.rule
    if drafters.finds:
        return new_finder(drafters.kind, target.device if target else torch.device("cpu"))
    if drafters.kind == "eagle":
        folder = head_folder(fleet, number)
        large = target or load_target(fleet, fleet.target_of(number), whole=False)
        head = load_head(folder, large.model, large.dtype, large.device)
        cache = new_cache(large, aligned, room, shape_of(head.config), pool)
        return EagleDrafter(head, large, shape, verified_by, cache)
    is_block = drafters.kind == "block"
    small = load_model(fleet.drafter_model(number), "block" if is_block else "drafter", fleet.precision)
    cache = new_cache(small, aligned, room, pool=pool)
    return BlockDrafter(small, verified_by, cache) if is_block else Drafter(small, shape, verified_by, cache)


def new_finder(kind: str, device: torch.device) -> LookupDrafter:
    """Return what finds drafts in texts."""
    return SuffixDrafter(device) if kind == "suffix" else LookupDrafter(device)


def head_folder(fleet: Fleet, number: int = 0) -> Path:
    """Return the folder of the EAGLE head of drafter `number`."""
    return named_folder(fleet.drafter_model(number), "eagle")


def head_taps(fleet: Fleet, target: int = 0) -> tuple[int, ...]:
    """Return the layers of a target that its drafter's head reads as inputs; none for other drafters and heads."""
    if fleet.drafters.kind != "eagle" or not fleet.drafters.count:
        return ()
    return states_read(head_folder(fleet, fleet.drafter_of(target)), folder_of(fleet.target_model(target), "target"))[1]


def states_read(head: Path, target: Path) -> tuple[int, tuple[int, ...]]:
    """Return the hidden size of a target, and its layers that a head reads as inputs."""
    config = read_config(target)
    return int(config.hidden_size), read_taps(head, int(config.num_hidden_layers))


def check_models(fleet: Fleet, say: Callable[[str], None] | None = None) -> None:
    """Raise InputError unless the fleet's models share a tokenizer, and its heads read the same hidden states.

    `say`: is called with a line on each model that is not on this host; without it, a missing one is an error.
    """
    models = models_of(fleet)
    here = [named for named in models if say is None or is_folder_of_model(named.model, named.role)]
    folders = {named: folder_of(named.model, named.role, named.key) for named in here}
    reading = [named for named in models if named.role != "eagle"]
    for key, model, _ in [named for named in reading if named not in folders] if say and len(reading) > 1 else ():
        say(f"note: {key} = {model!r} is not on this host; whether its tokenizer is shared is not checked")
    for first, other in pairwise(named for named in reading if named in folders):
        check_shared_tokenizer(first.model, other.model, (first.key, other.key))
    heads, targets = ([named for named in here if named.role == role] for role in ("eagle", "target"))
    states = {pair: states_read(*map(folders.__getitem__, pair)) for pair in product(heads, targets)}
    for (head, target), read in states.items():
        (first, beside), of_first = next(iter(states.items()))
        if read != of_first:
            raise InputError(
                f"{head.key} = {head.model!r} beside {target.key} = {target.model!r} reads other hidden states than "
                f"{first.model!r} beside {beside.model!r}: size and layers {read}, not {of_first}; allowed: heads and "
                "targets that agree"
            )


def load_target(fleet: Fleet, number: int = 0, whole: bool = True) -> CausalLM:
    """Load the model of a target. `whole`: False for what an EAGLE head elsewhere needs of a lean one."""
    return load_model(fleet.target_model(number), "target", fleet.precision, whole=whole)


def new_target(
    fleet: Fleet, model: CausalLM, room: tuple[int, int] = (1, 512), number: int = 0, pool: CachedBlocks | None = None
) -> Target:
    """Return target `number` of the fleet; `room` as in `new_drafter`, `pool`: the blocks of its prefix cache."""
    taps, cache = head_taps(fleet, number), new_cache(model, fleet.verifiers.aligned is not None, room, pool=pool)
    return Target(model, fleet.verifiers.rule, cache, taps)


def new_cache(
    model: CausalLM, aligned: bool, room: tuple[int, int], shape: CacheShape | None = None,
    pool: CachedBlocks | None = None,
) -> RowCache:  # fmt: skip
    """Return an empty cache of a model or a head of `shape`: of rows with a common end if `aligned`, or of `pool`."""
    if pool is not None:
        return BlockCache(shape or model.shape, model.dtype, model.device, pool)
    if aligned:
        return model.aligned_cache(shape)
    return model.new_cache(*room, shape=shape)


def with_positions(fleet: Fleet) -> Fleet:
    """Return the fleet with the position limits of its models; those of a missing folder are unknown.

    Raises InputError for texts beyond what the models' config.json states, and for more layers than a model has.
    """
    if fleet.drafters.kind == "replayed":
        return fleet  # no model
    check_stated(fleet)
    asked = [(model, role) for _, model, role in models_of(fleet) if role != "eagle"]
    known = [positions for model, role in asked if (positions := positions_of(model, role))]
    if not known:
        return fleet
    drafters = msgspec.structs.replace(fleet.drafters, positions=min(known))
    verifiers = fleet.verifiers
    if verifiers.drafts is not None:
        drafts = msgspec.structs.replace(verifiers.drafts, positions=min(known))
        verifiers = msgspec.structs.replace(verifiers, drafts=drafts)
    return msgspec.structs.replace(fleet, drafters=drafters, verifiers=verifiers)


def positions_of(model: str, role: str) -> int:
    """Return the maximum number of positions of a model; 0 if it is unlimited or unknown."""
    try:
        config = AutoConfig.from_pretrained(folder_of(model, role), local_files_only=True)
        if is_lean(config):
            return 0
        with torch.device("meta"):  # modules without weights
            return known_positions(AutoModelForCausalLM.from_config(config))
    except Exception:  # noqa: BLE001  (loading the model reports the error)
        return 0


def state_numbers(fleet: Fleet) -> int:
    """Return the numbers of a token's hidden states in requests for drafts; 0 for drafters that read none."""
    if fleet.drafters.kind != "eagle" or not fleet.drafters.count:
        return 0
    size, taps = states_read(head_folder(fleet), folder_of(fleet.target_model(0), "target"))
    return size * max(1, len(taps))


def largest_vocabulary(fleet: Fleet) -> int:
    """Return the largest vocabulary of the models on this host; 0 if it has none.

    InputError if drafts bring distributions over a vocabulary that is unknown here.
    """
    here = [named_folder(model, role) for _, model, role in models_of(fleet) if is_folder_of_model(model, role)]
    largest = max((int(read_config(folder).vocab_size) for folder in here), default=0)
    if fleet.workload.temperature and not largest and not fleet.vocabulary:
        raise InputError(
            f"verifiers.model = {fleet.verifiers.model!r} is not on this host, and a router must know how large drafts "
            "with their distributions are; its config.json is enough, or a profile with a vocabulary"
        )
    return largest
