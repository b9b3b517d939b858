"""Signals of drafted tokens for length rules, place by place: acceptance probability, KL(p||q), the draft's entropy."""

import math
from collections.abc import Sequence

import torch

from engine.decoding.grow import Drafts
from engine.decoding.rules import normalised
from engine.decoding.sampling import Sampling, distributions, warmed, widened
from fleet.acceptance.token import Token

LEAST = math.log(torch.finfo(torch.float64).tiny)  # logarithm of the least probability


def signals_of(drafts: Drafts, logits: torch.Tensor, rows: Sequence[Sampling]) -> list[list[Token]]:
    """Return the signals of each row's draft, from the target's logits (B, n + 1, V) at the root and every node.

    The acceptance probability is min(1, p/q) of the drafted token, which is 0 or 1 at temperature 0. Divergence and
    entropy are those of the distributions at the row's temperature, at 1 for greedy rows, in nats. All are finite: a
    logit of minus infinity counts as the least probability of the number format. One host copy. The drafter's logits
    are not sent between nodes; without them there is only the acceptance probability.
    """
    n = drafts.tree.nodes
    if not n:
        return [[] for _ in drafts.counts]
    if drafts.logits is None:
        row, above = torch.arange(len(logits), device=logits.device)[:, None], drafts.tree.parents
        q = None if drafts.q is None else normalised(drafts.q.double())[row, above.clamp(max=drafts.q.shape[1] - 1)]
        numbers = ratios(drafts, distributions(logits[row, above].double(), rows), q)[:, :, None].tolist()
        return [[Token(*token) for token in row[:count]] for row, count in zip(numbers, drafts.counts, strict=True)]
    V = max(logits.shape[-1], drafts.logits.shape[-1])
    of_target, of_drafter = (widened(values[:, :n].double(), V, -torch.inf) for values in (logits, drafts.logits))
    log_p, log_q = (torch.log_softmax(warmed(values, rows), -1) for values in (of_target, of_drafter))
    # Tokens outside of one vocabulary have no weight; their logarithms are finite, so that all signals are.
    apart = log_p.clamp(min=LEAST) - log_q.clamp(min=LEAST)
    kld = (log_p.exp() * apart).sum(-1)  # (B, n)
    entropy = torch.special.entr(log_q.exp()).sum(-1)
    ratio = ratios(drafts, distributions(of_target, rows), distributions(of_drafter, rows))
    numbers = torch.stack([ratio, kld.clamp(min=0), entropy.clamp(min=0)], -1).tolist()
    return [[Token(*token) for token in row[:count]] for row, count in zip(numbers, drafts.counts, strict=True)]


def ratios(drafts: Drafts, p: torch.Tensor, q: torch.Tensor | None) -> torch.Tensor:
    """Return min(1, p/q) of the drafted tokens (B, n); p and q (B, n, V), q is 1 for greedy drafts without it."""
    V = max(values.shape[-1] for values in (p, q) if values is not None)
    drafted = drafts.tokens.clamp(0, V - 1)[:, :, None]
    ratio = widened(p, V).gather(-1, drafted)
    if q is not None:  # it is 0 where a row's draft has ended
        ratio = (ratio / widened(q, V).gather(-1, drafted).clamp(min=torch.finfo(q.dtype).tiny)).clamp(max=1.0)
    return ratio[:, :, 0]
