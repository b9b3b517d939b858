"""One stream at a time: every way to draft that the engine has, beside transformers' own, on the same prompts."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from transformers import GenerationConfig

from engine.decoding.decode import decode_plain, decode_speculatively
from engine.decoding.draft import Drafter
from engine.decoding.eagle import EagleDrafter, EagleHead
from engine.decoding.lookup import LookupDrafter
from engine.decoding.models import CausalLM
from engine.decoding.sampling import Sampling
from engine.decoding.verify import Target
from experiments.bench.interleaved import Done
from fleet.policies.shapes import dynamic, tree

OURS = "ours, chain"
ACCEPTANCE = "mean acceptance length"
TREE, DYNAMIC = tree(3, 1), dynamic(3, 10)
LOOKUP_TOKENS = 5

Contestants = dict[str, Callable[[int], Done]]


def contestants(
    prompts: Sequence[list[int]],
    small: CausalLM,
    large: CausalLM,
    head: EagleHead | None,
    depth: int,
    new_tokens: int,
    sampling: Sampling,
) -> Contestants:
    """All ways to decode `new_tokens` after prompt i; every drafter comes with the rule that suits it."""
    cache = large.new_cache()
    drafters: dict[str, Drafter | LookupDrafter] = {
        OURS: Drafter(small),
        "ours, tree": Drafter(small, TREE, "without-replacement"),
        "ours, dynamic tree": Drafter(small, DYNAMIC, "match"),
        "ours, prompt lookup": LookupDrafter(large.device),
    }
    if head is not None:
        drafters["ours, EAGLE chain"] = EagleDrafter(head, large)
        drafters["ours, EAGLE tree"] = EagleDrafter(head, large, TREE, "without-replacement")

    def plain(number: int) -> Done:
        return Done(len(decode_plain(Target(large, cache=cache), prompts[number], new_tokens, sampling, number)))

    def speculative(number: int, drafter: Drafter) -> Done:
        target = Target(large, drafter.rule, cache)
        tokens, accepted = decode_speculatively(target, drafter, prompts[number], new_tokens, depth, sampling, number)
        return Done(len(tokens), {ACCEPTANCE: 1 + float(np.mean(accepted))})

    ours = {name: partial(speculative, drafter=drafter) for name, drafter in drafters.items()}
    return ours | {"ours, plain": plain} | theirs(prompts, small, large, depth, new_tokens, sampling)


def theirs(
    prompts: Sequence[list[int]],
    small: CausalLM,
    large: CausalLM,
    depth: int,
    new_tokens: int,
    sampling: Sampling,
) -> Contestants:
    """transformers' own ways: plain, assisted at its defaults and at our depth, prompt lookup."""

    def generate(number: int, **options: object) -> Done:
        inputs = torch.tensor([prompts[number]], device=large.device)
        drawn: Mapping[str, object] = (
            {"do_sample": True, "temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p}
            if sampling.temperature
            else {"do_sample": False}
        )
        settings = GenerationConfig(max_new_tokens=new_tokens, min_new_tokens=new_tokens, pad_token_id=0, **drawn)
        output = large.model.generate(
            inputs, attention_mask=torch.ones_like(inputs), generation_config=settings, **options
        )
        return Done(output.shape[1] - inputs.shape[1])

    def assisted(number: int, tokens: int, threshold: float) -> Done:
        config = small.model.generation_config
        config.num_assistant_tokens, config.num_assistant_tokens_schedule = tokens, "constant"
        config.assistant_confidence_threshold = threshold
        return generate(number, assistant_model=small.model)

    return {
        "transformers, plain generate": generate,
        "transformers, assisted, its defaults": lambda number: assisted(number, 20, 0.4),
        f"transformers, assisted, d = {depth}": lambda number: assisted(number, depth, 0.0),
        "transformers, prompt lookup": lambda number: generate(number, prompt_lookup_num_tokens=LOOKUP_TOKENS),
    }
