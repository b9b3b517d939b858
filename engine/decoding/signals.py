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
    """Return the signals of each row's chain, from the target's logits (B, n + 1, V) at the root and every node.

    The acceptance probability is min(1, p/q) of the drafted token, which is 0 or 1 at temperature 0. Divergence and
    entropy are those of the distributions at the row's temperature, at 1 for greedy rows, in nats. All are finite: a
    logit of minus infinity counts as the least probability of the number format. One host copy. The drafter's logits
    are not sent between nodes; without them there is only the acceptance probability.
    """
    if drafts.logits is None:
        return _ratios_of(drafts, logits, rows)
    n = drafts.tree.nodes
    V = max(logits.shape[-1], drafts.logits.shape[-1])
    of_target, of_drafter = (widened(values[:, :n].double(), V, -torch.inf) for values in (logits, drafts.logits))
    log_p, log_q = (torch.log_softmax(warmed(values, rows), -1) for values in (of_target, of_drafter))
    # Tokens outside of one vocabulary have no weight; their logarithms are finite, so that all signals are.
    apart = log_p.clamp(min=LEAST) - log_q.clamp(min=LEAST)
    kld = (log_p.exp() * apart).sum(-1)  # (B, n)
    entropy = torch.special.entr(log_q.exp()).sum(-1)
    drafted = drafts.tokens.clamp(min=0)[:, :, None]
    p, q = distributions(of_target, rows), distributions(of_drafter, rows)
    likely = q.gather(-1, drafted).clamp(min=torch.finfo(q.dtype).tiny)  # q is 0 where a row's draft has ended
    ratio = (p.gather(-1, drafted) / likely).clamp(max=1.0)[:, :, 0]
    numbers = torch.stack([ratio, kld.clamp(min=0), entropy.clamp(min=0)], -1).tolist()
    return [[Token(*token) for token in row[:count]] for row, count in zip(numbers, drafts.counts, strict=True)]


def _ratios_of(drafts: Drafts, logits: torch.Tensor, rows: Sequence[Sampling]) -> list[list[Token]]:
    """The acceptance probabilities alone, from the distributions of drafts; q is 1 for greedy drafts."""
    n, counts = drafts.tree.nodes, drafts.counts
    if not n:
        return [[] for _ in counts]
    drafted = drafts.tokens.clamp(min=0)[:, :, None]  # (B, n, 1)
    V = max(logits.shape[-1], 0 if drafts.q is None else drafts.q.shape[-1])
    ratio = widened(distributions(logits[:, :n].double(), rows), V).gather(-1, drafted.clamp(max=V - 1))
    if drafts.q is not None:
        q = widened(normalised(drafts.q.double()), V).gather(-1, drafted)
        ratio = (ratio / q.clamp(min=torch.finfo(q.dtype).tiny)).clamp(max=1.0)
    numbers = ratio[:, :, 0].tolist()
    return [[Token(value) for value in row[:count]] for row, count in zip(numbers, counts, strict=True)]
