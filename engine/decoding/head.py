"""From last hidden states to logits: the head of a causal language model, and later steps of its class."""

from collections.abc import Callable
from copy import copy

import torch
from transformers import PreTrainedModel


class _Output:
    """The output of a decoder for the class that reads it: last hidden states only."""

    def __init__(self, hidden: torch.Tensor) -> None:
        self.last_hidden_state = hidden

    def __getitem__(self, number: int) -> torch.Tensor:
        return (self.last_hidden_state,)[number]

    def __getattr__(self, name: str) -> None:
        return None


class _Given(torch.nn.Module):
    """Replaces a decoder: its input is the last hidden states."""

    def forward(self, *_: object, inputs_embeds: torch.Tensor, **__: object) -> _Output:
        return _Output(inputs_embeds)


def body_of(model: PreTrainedModel) -> torch.nn.Module:
    """Return the decoder of a causal language model, which turns tokens into last hidden states."""
    named = model.get_decoder()  # some types name their head "decoder", others have none of that name
    return named if isinstance(named, PreTrainedModel) and named is not model else model.base_model


def head_of(model: PreTrainedModel) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the function from last hidden states (N, hidden) to logits (N, vocabulary) of a causal language model.

    It is the forward pass of the model's own class without the decoder. So it includes the scales and caps of logits of
    some types.
    """
    whole = _without(body_of(model), model)

    def logits(hidden: torch.Tensor) -> torch.Tensor:
        return whole(inputs_embeds=hidden[None], use_cache=False).logits[0]

    return logits


def _without(part: torch.nn.Module, whole: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of `whole` that shares all weights, with a replacement for one of its parts."""
    if whole is part:
        return _Given()
    if all(module is not part for module in whole.modules()):
        return whole
    other = copy(whole)
    other._modules = {name: _without(part, child) for name, child in whole._modules.items()}
    return other
