"""Next-token probabilities: the engine's against transformers' own, on one text, however it is fed."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from engine.decoding.feed import Nodes
from engine.decoding.models import CausalLM
from engine.decoding.trees import tree_of
from experiments.zoo.species import VOCABULARY

TEXT = np.random.default_rng(5).integers(3, VOCABULARY, size=40).tolist()
BRANCHES = [0, 0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11]  # parents: a chain that is deeper than a window, and a sibling
SIBLING = 2


class InFloat64(TorchFunctionMode):
    """Within it nothing is computed in single precision.

    transformers casts norms, softmax and rotary embeddings down to it, whatever the model is in; so a difference that
    is left is no rounding.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.float:
            return args[0].double()
        named = {name: _wide(value) for name, value in (kwargs or {}).items()}
        return func(*(_wide(value) for value in args), **named)


def _wide(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


def largest_difference(network: PreTrainedModel) -> float:
    """Return the largest difference between probabilities of the engine and of transformers, over all ways to feed.

    At once; two rows in pieces of unequal length; a tree after a row; rows that are padded to a common end.
    """
    with InFloat64(), torch.inference_mode():
        theirs = network(input_ids=torch.tensor([TEXT])).logits[0].softmax(-1)
        model = CausalLM(deepcopy(network))
        pairs = [at_once(model), in_pieces(model), as_a_tree(model), padded(model)]
        return max(float((logits.softmax(-1) - theirs[places]).abs().max()) for logits, places in pairs)


Found = tuple[torch.Tensor, list[int]]
"""Logits (n, vocabulary) and which places of the text they are those after (n)."""


def at_once(model: CausalLM) -> Found:
    """Feed the text as a prompt."""
    cache = model.new_cache(1, 64)
    cache.open(0)
    return model.logits(model.prefill(cache, 0, TEXT)), list(range(len(TEXT)))


def in_pieces(model: CausalLM) -> Found:
    """Feed four tokens of one row beside two of another, both somewhere in the text."""
    cache = model.new_cache(2, 64)
    for row in (0, 1):
        cache.open(row)
        model.prefill(cache, row, TEXT[: 20 + row])
    places = [*range(20, 24), *range(21, 23)]
    return model.logits(model.feed(cache, [0, 1], torch.tensor([TEXT[i] for i in places]), [4, 2])), places


def as_a_tree(model: CausalLM) -> Found:
    """Feed what follows as a tree with a branch that is wrong."""
    cache = model.new_cache(1, 64)
    cache.open(0)
    model.prefill(cache, 0, TEXT[:20])
    tree = tree_of(torch.tensor([BRANCHES]), len(BRANCHES) - 1, 2)
    right = [node for node in range(len(BRANCHES) + 1) if node != SIBLING]
    places = list(range(20, 20 + len(right)))
    tokens = torch.zeros(len(BRANCHES) + 1, dtype=torch.long)
    tokens[right] = torch.tensor([TEXT[i] for i in places])
    logits = model.logits(model.feed(cache, [0], tokens, [len(tokens)], Nodes(0, tree.ancestors, tree.depths)))
    return logits[right], places


def padded(model: CausalLM) -> Found:
    """Feed three tokens each to rows that were padded to a common end."""
    cache = model.aligned_cache()
    for row, length in enumerate((30, 17)):
        cache.open(row)
        model.prefill(cache, row, TEXT[:length])
    cache.realign([0, 1])
    places = [*range(30, 33), *range(17, 20)]
    return model.logits(model.feed(cache, [0, 1], torch.tensor([TEXT[i] for i in places]), [3, 3])), places
