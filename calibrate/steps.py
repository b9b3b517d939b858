"""Microbenchmarks of single steps: draft, verify, decode and the two prefills, over tokens and context."""

from collections.abc import Callable, Sequence

import torch

from specfleet.calibration.measurements import Point
from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.telemetry import timed
from specfleet.engine.decoding.verify import Target
from specfleet.engine.net.content import Content
from specfleet.engine.node.drafts import drafts_of
from specfleet.fleet.policies.shapes import CHAIN, Shape, parents

TAG = 0

Series = Callable[[int, int], list[float]]  # (tokens, context) -> seconds of repeated steps


def repeated_s(work: Callable[[], object], repeats: int, device: torch.device) -> list[float]:
    """Return the seconds of `repeats` steps; one more before them, which is cold, does not count."""
    return [timed(work, device)[1] for _ in range(repeats + 1)][1:]


def draft_series(drafter: Drafter, prompt: list[int], repeats: int) -> Series:
    """Return the series S(d): drafts of `tokens` levels from one prefix of `context` tokens, back to back."""

    def series(tokens: int, context: int) -> list[float]:
        drafter.open(TAG, stretched(prompt, context))
        drafter.prefill(TAG, hidden=some_hidden(drafter, context - 1))
        times_s = repeated_s(lambda: drafter.draft([TAG], [tokens]), repeats, drafter.device)
        drafter.release(TAG)
        return times_s

    return series


def verify_series(target: Target, prompt: list[int], repeats: int, shape: Shape = CHAIN) -> Series:
    """Return the series of verifications that feed `tokens` tokens: nodes of a draft + 1, so 1 is plain decoding.

    Each commits at least one token, so the context grows from `context` by about `repeats`. As in service, a draft
    comes as the content of a message.
    """

    def series(tokens: int, context: int) -> list[float]:
        target.open(TAG, stretched(prompt, context))
        target.decode([TAG])
        draft = Content(stretched(prompt, tokens - 1), some_nodes(shape, tokens - 1))
        device = target.model.device

        def step() -> object:
            return target.verify([TAG], drafts_of([draft], device)) if draft.tokens else target.decode([TAG])

        times_s = repeated_s(step, repeats, device)
        target.release(TAG)
        return times_s

    return series


def some_nodes(shape: Shape, nodes: int) -> list[int] | None:
    """Parents of the first `nodes` nodes of a draft; None for a chain.

    A dynamic tree is not known before it grew: a bushy one of as many nodes stands for it.
    """
    if shape.kind == "chain":
        return None
    if shape.kind == "dynamic":
        return [node // shape.width for node in range(nodes)]
    levels = next(depth for depth in range(nodes + 1) if shape.nodes(depth) >= nodes)
    return parents(shape.children(levels))[:nodes]


def some_hidden(drafter: Drafter, tokens: int) -> torch.Tensor | None:
    """Hidden states (tokens, hidden) for a drafter that reads them: what they say does not change its time."""
    if not drafter.reads_hidden:
        return None
    model = drafter.model
    return torch.zeros(tokens, drafter.state_numbers, dtype=model.dtype, device=model.device)


def draft_prefill_series(drafter: Drafter, prompt: list[int], repeats: int) -> Series:
    """Return the series of the drafter's prefills of `tokens` prompt tokens, the cache's opening and release too."""

    def once(tokens: int) -> None:
        drafter.open(TAG, stretched(prompt, tokens + 1))  # the last one is fed by the draft step
        drafter.prefill(TAG, hidden=some_hidden(drafter, tokens))
        drafter.release(TAG)

    return lambda tokens, _context: repeated_s(lambda: once(tokens), repeats, drafter.device)


def verify_prefill_series(target: Target, prompt: list[int], repeats: int) -> Series:
    """Return the series of the target's prefills of `tokens` prompt tokens, with the first token they yield."""

    def once(tokens: int) -> None:
        target.open(TAG, stretched(prompt, tokens))
        target.decode([TAG])
        target.release(TAG)

    return lambda tokens, _context: repeated_s(lambda: once(tokens), repeats, target.model.device)


def measure(series: Series, tokens: Sequence[int], contexts: Sequence[int]) -> list[Point]:
    """Measure a series at every place of the grid."""
    return [Point(count, context, tuple(series(count, context))) for count in tokens for context in contexts]


def stretched(tokens: list[int], length: int) -> list[int]:
    """Return `length` tokens: the given ones, repeated or cut."""
    return (tokens * (length // len(tokens) + 1))[:length]
