"""Draws step times from a profile, for the simulator and for replayed stations."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from typing import NamedTuple

import numpy as np

from specfleet.fleet.acceptance.sources import uniform_blocks
from specfleet.fleet.policies.shapes import CHAIN, Shape
from specfleet.fleet.times.mixed import drafting_s, extent_of, parts_of, pass_s
from specfleet.fleet.times.overhead import Delay
from specfleet.fleet.times.station_times import DrafterTimes, VerifierTimes
from specfleet.fleet.times.step import Step
from specfleet.fleet.times.step_time import Constant, LinkTime, Spread, StepTime


def ratios(spread: Spread, rng: np.random.Generator) -> Iterator[float]:
    """Yield independent multipliers of a mean time without end, drawn block by block."""
    if isinstance(spread, Constant):
        return repeat(1.0)
    return chain.from_iterable(block.tolist() for block in ratio_blocks(spread, rng))


def ratio_blocks(spread: Spread, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield the multipliers of `ratios` block by block; each block is drawn on demand."""
    return (spread.ratios(block) for block in uniform_blocks(rng))


def delays_s(delay: Delay, rng: np.random.Generator) -> Iterator[float]:
    """Yield independent delays in seconds without end."""
    return (delay.mean_s * ratio for ratio in ratios(delay.spread, rng))


def one_way_s(link: LinkTime, rng: np.random.Generator) -> Callable[[int], float]:
    """Return the function that draws the one-way time in seconds of a payload in bytes."""
    latency_s, s_per_byte = link.latency_s, link.s_per_byte
    jitter = ratios(link.spread, rng)
    return lambda payload: latency_s * next(jitter) + payload * s_per_byte


Draw = Callable[[int, int, float], float]


def step_durations(time: StepTime, rng: np.random.Generator) -> Draw:
    """Return the function that draws the time in seconds of a step over (tokens, context).

    Its third argument is the mean time of a batch's further rows.
    """
    spread = ratios(time.spread, rng)
    a, b, c, e = time.base_s, time.per_token_s, time.per_context_token_s, time.per_token_context_s
    if time.roofline is not None:
        return lambda tokens, context, rows_s: (time.mean_s(tokens, context) + rows_s) * next(spread)
    return lambda tokens, context, rows_s: (a + b * tokens + (c + e * tokens) * context + rows_s) * next(spread)


def step_name(drafting: bool, kind: str) -> str:
    """Return the profile's name for steps of `kind`: drafter and target have a prefill each, for chunks, too."""
    if kind in ("prefill", "chunk"):
        return "draft_prefill" if drafting else "verify_prefill"
    return kind


def timed(
    draw: Draw,
    time: StepTime,
    step: Step,
    shape: Shape = CHAIN,
    padded: bool = False,
    tokens: Sequence[int] | None = None,
) -> float:
    """Draw the time of a step of one member, or of a batch, whose longest row sets the time.

    - `shape`: of drafts.
    - `padded`: rows are padded to the longest.
    - `tokens`: tokens of the members, if different from the plan.
    """
    parts = parts_of(step, shape, tokens)
    if len(parts) == 1 and not step.ballast:
        return draw(parts[0].fed, parts[0].context, 0.0)
    longest, context, rows, row_tokens = extent_of(parts, padded, step.ballast)
    return draw(longest, context, time.rows_s(longest, context, rows, row_tokens))


Duration = Callable[[Step], float]
"""Draws the time in seconds of a step on its device."""


class LocalDraftTimes(NamedTuple):
    """Times of a target's own drafter, and the function that gives each row's draft tokens, negative if found."""

    times: DrafterTimes
    drafted: Callable[[Step], Sequence[int]]


def draft_durations(times: DrafterTimes, rng: np.random.Generator) -> Duration:
    """Return the function that draws S(d) and the drafter's other steps.

    Drafts are slower after an idle gap (section 5.3). A batch catches up once, if any of its rows is behind.
    """
    draft_s, prefill_s = step_durations(times.draft, rng), step_durations(times.prefill, rng)
    slowdown, catch_up_s = times.idle.slowdown, times.catch_up_s

    def duration_s(step: Step) -> float:
        if step.kind == "prefill":
            return timed(prefill_s, times.prefill, step)
        cold = slowdown(step.idle_gap_s, step.warm_tokens)
        catching_up_s = catch_up_s * max(member.behind for member in step.members) if catch_up_s else 0.0
        return cold * timed(draft_s, times.draft, step) + catching_up_s

    return duration_s


def verifier_durations(
    times: VerifierTimes, shape: Shape, rng: np.random.Generator, drafts: LocalDraftTimes | None = None
) -> Duration:
    """Return the function that draws the times of a target's steps on drafts of that shape.

    - `drafts`: of a target that drafts itself.
    """
    of_kind = {"verify": times.verify, "prefill": times.prefill, "decode": times.decode}
    draws = {kind: step_durations(time, rng) for kind, time in of_kind.items()}
    of_kind["chunk"], draws["chunk"] = times.prefill, draws["prefill"]
    ratio = ratios(times.verify.spread, rng)
    draft_ratio = ratios(drafts.times.draft.spread, rng) if drafts else repeat(1.0)

    def duration_s(step: Step) -> float:
        kind = step.kind
        if drafts and kind in ("draft", "draft_prefill"):
            tokens = drafts.drafted(step) if kind == "draft" else [0] * len(step.members)
            return drafting_s(drafts.times, step, tokens) * next(draft_ratio)
        if len(step.members) > 1 and (kind == "mixed" or times.verify.roofline is not None):
            return pass_s(times, step, shape) * next(ratio)
        return timed(draws[kind], of_kind[kind], step, shape)

    return duration_s


def aligned_durations(
    times: VerifierTimes, shape: Shape, rng: np.random.Generator, drafts: LocalDraftTimes
) -> Duration:
    """Return the function that draws the times of the steps of a target whose rows share a rectangle, padded."""
    of_kind = {
        "draft": drafts.times.draft,
        "draft_prefill": drafts.times.prefill,
        "prefill": times.prefill,
        "verify": times.verify,
        "realign": times.realign,
    }
    draws = {kind: step_durations(time, rng) for kind, time in of_kind.items()}

    def duration_s(step: Step) -> float:
        kind, tokens = step.kind, drafts.drafted(step) if step.kind == "draft" else None
        return timed(draws[kind], of_kind[kind], step, shape, padded=True, tokens=tokens)

    return duration_s
