"""Logits to sampling distributions, row by row: temperature, top-k, top-p; and the random decisions.

Temperature 0 puts all probability on the best token, so greedy decoding is the special case of every rule.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from specfleet.engine.decoding.placing import placed


@dataclass(frozen=True, slots=True)
class Sampling:
    """The sampling of a stream. `top_k` 0 and `top_p` 1 leave nothing out; both apply after the temperature."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0


GREEDY = Sampling()


def working(values: torch.Tensor) -> torch.Tensor:
    """Return values in the precision of the rules: float64 on a cpu and for models in float64, else float32.

    Many GPUs take 32 or 64 times as long in float64. Sums that draw a token are in float64 everywhere.
    """
    exact = values.device.type == "cpu" or values.dtype is torch.float64
    return values.double() if exact else values.float()


def distributions(logits: torch.Tensor, rows: Sequence[Sampling]) -> torch.Tensor:
    """Return the sampling distributions of logits (B, n, vocabulary) of B rows, in the same shape, as `working` has
    them."""
    logits = working(logits)
    if all(row.temperature == 0 for row in rows):
        return one_hot(logits)
    p = torch.softmax(warmed(logits, rows), -1)
    if any(row.top_k or row.top_p < 1 for row in rows):
        p = _truncated(p, rows)
    greedy = [row.temperature == 0 for row in rows]
    if any(greedy):
        p = torch.where(placed(greedy, p.device)[:, None, None], one_hot(logits), p)
    return p


def warmed(logits: torch.Tensor, rows: Sequence[Sampling]) -> torch.Tensor:
    """Return logits (B, n, vocabulary), divided by each row's temperature, by 1 for greedy ones.

    The largest is subtracted first, so that no small temperature overflows.
    """
    logits = logits - logits.amax(-1, keepdim=True)
    temperatures = [row.temperature or 1.0 for row in rows]
    if len(set(temperatures)) == 1:
        return logits / temperatures[0]
    return logits / placed(temperatures, logits.device, logits.dtype)[:, None, None]


def widened(values: torch.Tensor, vocabulary: int, fill: float = 0.0) -> torch.Tensor:
    """Return values (..., V) filled up to a longer vocabulary with `fill`.

    Embeddings of a drafter and its target may be padded differently.
    """
    more = vocabulary - values.shape[-1]
    return functional.pad(values, (0, more), value=fill) if more > 0 else values


def one_hot(logits: torch.Tensor) -> torch.Tensor:
    """Put all probability on the best token; same shape and dtype."""
    return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)


def _truncated(p: torch.Tensor, rows: Sequence[Sampling]) -> torch.Tensor:
    """Keep the top k tokens, and of those the fewest with at least top-p of their probability; renormalise."""
    ordered, order = p.sort(dim=-1, descending=True, stable=True)
    vocabulary = p.shape[-1]
    limits = placed([[row.top_k or vocabulary, row.top_p] for row in rows], p.device, torch.float64)[:, None, :, None]
    most, enough = limits.unbind(2)  # (B, 1, 1) each
    ordered = ordered * (torch.arange(vocabulary, device=p.device) < most)
    ordered = ordered / ordered.sum(-1, keepdim=True)
    before = ordered.cumsum(-1, dtype=torch.float64) - ordered
    ordered = ordered * ((before < enough) | (enough >= 1))
    kept = torch.zeros_like(p).scatter_(-1, order, ordered)
    return kept / kept.sum(-1, keepdim=True)


class Uniforms:
    """Random decisions of B rows from uniform numbers (B, K) in float64, a column a decision.

    Every row has its own numbers, so its decisions do not depend on its batch.
    """

    def __init__(self, numbers: torch.Tensor) -> None:
        self.numbers = numbers
        self.used = 0
        self.below_one = 1 - 4 * torch.finfo(numbers.dtype).eps

    def accepts(self, probability: torch.Tensor) -> torch.Tensor:
        """Return for each row (B,) whether an event of that `probability` (B,) happens."""
        return self._next() < probability

    def draws(self, weights: torch.Tensor) -> torch.Tensor:
        """Draw a token id for each row from weights (B, vocabulary): (B,). Tokens of weight 0 are never drawn."""
        cumulative = weights.cumsum(-1, dtype=torch.float64)
        # A hair below the sum, so that rounding never exceeds the last token with weight.
        place = self._next()[:, None] * (cumulative[:, -1:] * self.below_one)
        token = torch.searchsorted(cumulative, place, right=True).clamp_(max=weights.shape[-1] - 1)  # (B, 1)
        # An accelerator sums in pieces, so a sum may rise or fall by rounding where the weight is 0.
        return torch.where(weights.gather(1, token) > 0, token, weights.argmax(-1, keepdim=True))[:, 0]

    def spread(self, nodes: int, count: int) -> Sequence["Uniforms"]:
        """Return those of B x `nodes` rows, for the first of `count` decisions of every node, for the second, ..."""
        begin, self.used = self.used, self.used + nodes * count
        dealt = self.numbers[:, begin : self.used].reshape(-1, count)  # (B * nodes, count)
        return [Uniforms(dealt[:, number : number + 1]) for number in range(count)]

    def _next(self) -> torch.Tensor:
        column = self.numbers[:, self.used]
        self.used += 1
        return column


def uniforms(
    generators: Sequence[np.random.Generator], columns: Sequence[Sequence[int]], width: int, device: torch.device
) -> Uniforms:
    """Take a uniform number from the generators of B rows for each of their `columns`, as chance of `width` decisions.

    A row takes as many as alone, and each has the column of the same decision, for any width or depth of other rows'
    drafts. The last number also fills the last column: the walks of all rows end there.
    """
    numbers = np.zeros((len(columns), width))
    for row, (generator, decided) in enumerate(zip(generators, columns, strict=True)):
        drawn = generator.random(len(decided))
        places = np.asarray(decided, dtype=int)
        numbers[row, places[places < width]] = drawn[places < width]
        if decided:
            numbers[row, -1] = drawn[-1]
    return Uniforms(placed(numbers, device))
