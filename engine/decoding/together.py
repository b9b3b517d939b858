"""A step of a target with parts of prompts beside verifications: one pass over all rows reads the weights once."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from specfleet.engine.decoding.grow import Drafts
from specfleet.engine.decoding.models import CHUNK
from specfleet.engine.decoding.placing import placed
from specfleet.engine.decoding.verify import Target, Verdict


class PromptPart(NamedTuple):
    """The next `tokens` of a row's text; after the last ones, which are the rest of it, the target says a token."""

    tag: int
    tokens: int
    is_last: bool


def run_together(
    target: Target, parts: Sequence[PromptPart], tags: Sequence[int], drafts: Drafts, signals: bool = False
) -> tuple[dict[int, torch.Tensor], dict[int, Verdict]]:
    """Feed parts of prompts, in order, and verify the drafts of `tags`.

    Return the states of each part for a draft head, and the verdicts of last parts and drafts. Models that run by
    transformers' own modules, and a step of one part, have a pass for each part, and one for all drafts.
    """
    passes = len(parts) + (len(tags) > 0)
    apart = target.cache.shares and any(part.tokens > CHUNK for part in parts)  # one may read another's last tokens
    if passes > 1 and target.model.lean and target.cache.joins and not apart:
        return _in_one_pass(target, parts, tags, drafts, signals)
    states: dict[int, torch.Tensor] = {}
    verdicts: dict[int, Verdict] = {}
    for part in parts:
        if part.is_last:
            verdicts[part.tag] = target.prefill(part.tag)
            states[part.tag] = verdicts[part.tag].hidden
        else:
            states[part.tag] = target.feed_part(part.tag, part.tokens)
    if tags:
        verdicts |= zip(tags, target.verify(tags, drafts, signals=signals), strict=True)
    return states, verdicts


def _in_one_pass(
    target: Target, parts: Sequence[PromptPart], tags: Sequence[int], drafts: Drafts, signals: bool
) -> tuple[dict[int, torch.Tensor], dict[int, Verdict]]:
    model, cache = target.model, target.cache
    states: dict[int, list[torch.Tensor]] = {part.tag: [] for part in parts}
    texts = []
    for part in parts:
        known = cache.lengths[part.tag]
        text = target.committed(part.tag)[known:][: None if part.is_last else part.tokens]
        model.check_reach(known + len(text))
        if len(text) > CHUNK:  # so that its mask stays small
            states[part.tag].append(target.feed_part(part.tag, len(text) - CHUNK))
            text = text[-CHUNK:]
        texts.append(text)
    groups = [([part.tag], [len(text)], None) for part, text in zip(parts, texts, strict=True)]
    tokens = placed([token for text in texts for token in text], model.device, torch.long)
    of_prompts, fed = len(tokens), None
    if tags:
        fed = target.fed_for(tags, drafts, beside=True)
        groups.append((tags, fed.counts, fed.nodes))
        tokens = torch.cat([tokens, fed.flat])
    last, hidden = target.split(model.forward(cache, tokens, cache.join(groups), target.taps))
    ends, end = [], 0
    for part, text in zip(parts, texts, strict=True):
        states[part.tag].append(hidden[end : end + len(text)])
        end += len(text)
        cache.lengths[part.tag] += len(text)
        if part.is_last:
            ends.append(end - 1)
    finished = [part.tag for part in parts if part.is_last]
    of_ends = last.index_select(0, placed(ends, model.device, torch.long))
    logits = model.logits(torch.cat([of_ends, last[of_prompts:]]))
    joined = {tag: torch.cat(pieces) for tag, pieces in states.items()}
    verdicts: dict[int, Verdict] = {}
    if finished:
        said = target.sample(finished, logits[: len(finished)])
        verdicts = {tag: Verdict([], [token], joined[tag]) for tag, token in zip(finished, said, strict=True)}
    if fed is not None:
        judged = target.conclude(tags, drafts, fed, logits[len(finished) :], hidden[of_prompts:], signals=signals)
        verdicts |= zip(tags, judged, strict=True)
    return joined, verdicts
