"""The exact distribution of one round of speculation, by the engine's own drafter and target."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch

from specfleet.engine.decoding import draft, verify
from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.models import CausalLM
from specfleet.engine.decoding.sampling import Sampling, distributions
from specfleet.engine.decoding.verify import Target
from tests.helpers.branches import Branches, Text, explore, masses_of


def distance_of_a_round(
    monkeypatch: pytest.MonkeyPatch,
    target: Target,
    new_drafter: Callable[[], Drafter],
    prompt: list[int],
    depth: int,
    sampling: Sampling,
) -> tuple[float, set[int]]:
    """Total variation between a round that the target completes to `depth` + 1 tokens, and the target alone.

    Every branch of drafting and verification is followed. Also returns the tokens that some branch drafted.
    """
    drafted: set[int] = set()

    def round_(chance: Branches) -> Text:
        for module in (draft, verify):
            monkeypatch.setattr(module, "uniforms", lambda *_: chance)
        drafter = new_drafter()
        target.release(0)
        target.open(0, prompt[:-1], sampling)
        hidden = prefilled(target, prompt)
        drafter.open(0, list(prompt), sampling)
        drafter.read(0, hidden=hidden)
        drafts = drafter.draft([0], [depth])
        drafted.update(drafts.tokens[0].tolist())
        return tuple(target.verify([0], drafts)[0].tokens)

    emitted = masses_of(explore(round_))
    assert sum(emitted.values()) == pytest.approx(1.0, abs=1e-12)
    return distance(lambda text: distribution(target.model, [*prompt, *text], sampling), depth, emitted), drafted


def distance(after: Callable[[Text], np.ndarray], depth: int, emitted: dict[Text, float]) -> float:
    """Total variation of texts of `depth` + 1 tokens: rounds that the target completes, and the target alone.

    `after`: the target's distribution of the token after a text.
    """
    after = cache(after)

    def likelihood(text: Text, begin: int) -> float:
        return float(np.prod([after(text[:place])[text[place]] for place in range(begin, len(text))]))

    texts: list[Text] = [()]
    for _ in range(depth + 1):
        texts = [(*text, token) for text in texts for token in np.flatnonzero(after(text)).tolist()]
    apart, outside = 0.0, 1.0  # texts that the target never has
    for text in texts:
        heads = ((head, weight) for head, weight in emitted.items() if text[: len(head)] == head)
        spoken = sum(weight * likelihood(text, len(head)) for head, weight in heads)
        apart, outside = apart + abs(spoken - likelihood(text, 0)), outside - spoken
    return (apart + outside) / 2


def prefilled(target: Target, prompt: list[int]) -> torch.Tensor:
    """Bring a target to the end of a prompt, without verification; return the states of all tokens but the last."""
    states = target.model.prefill(target.cache, 0, prompt[:-1], target.taps)
    target.streams[0].committed.append(prompt[-1])
    width = states.shape[-1] // (len(target.taps) + 1)
    return states[:, :-width] if target.taps else states


def distribution(model: CausalLM, text: list[int], sampling: Sampling) -> np.ndarray:
    """The distribution of the model's next token after a text."""
    cache = model.new_cache()
    cache.open(0, len(text))
    logits = model.logits(model.prefill(cache, 0, text)[-1])
    return distributions(logits[None, None], [sampling])[0, 0].numpy()
