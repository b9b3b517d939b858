"""Microbenchmarks of single steps: draft, verify, decode and the two prefills, over tokens and context."""

from collections.abc import Callable, Sequence

from calibrate.fits import Point
from engine.draft import Drafter
from engine.telemetry import timed
from engine.verify import Target

TAG = 0
PASSES = 2  # over the whole grid, so that a slow spell of the machine does not hit one place only

Series = Callable[[int, int], list[float]]  # (tokens, context) -> seconds of repeated steps


def draft_series(drafter: Drafter, prompt: list[int], repeats: int) -> Series:
    """Return the series S(d): drafts of `tokens` tokens from one prefix of `context` tokens, back to back."""

    def series(tokens: int, context: int) -> list[float]:
        drafter.open(TAG, stretched(prompt, context))
        drafter.prefill(TAG)
        times_s = [timed(lambda: drafter.draft(TAG, tokens), drafter.model.device)[1] for _ in range(repeats + 1)]
        drafter.release(TAG)
        return times_s[1:]  # the first of a series is cold

    return series


def verify_series(target: Target, prompt: list[int], repeats: int) -> Series:
    """Return the series of verifications that feed `tokens` tokens: draft tokens + 1, so 1 is plain decoding.

    Each commits at least one token, so the context grows from `context` by about `repeats`.
    """

    def series(tokens: int, context: int) -> list[float]:
        target.open(TAG, stretched(prompt, context))
        target.decode(TAG)
        draft = stretched(prompt, tokens - 1)
        times_s = [timed(lambda: target.verify(TAG, draft), target.model.device)[1] for _ in range(repeats + 1)]
        target.release(TAG)
        return times_s[1:]

    return series


def draft_prefill_series(drafter: Drafter, prompt: list[int], repeats: int) -> Series:
    """Return the series of the drafter's prefills of `tokens` prompt tokens."""

    def once(tokens: int) -> float:
        drafter.open(TAG, stretched(prompt, tokens + 1))  # the last one is fed by the draft step
        duration_s = timed(lambda: drafter.prefill(TAG), drafter.model.device)[1]
        drafter.release(TAG)
        return duration_s

    return lambda tokens, context: [once(tokens) for _ in range(repeats + 1)][1:]  # noqa: ARG005  (a prefill has none)


def verify_prefill_series(target: Target, prompt: list[int], repeats: int) -> Series:
    """Return the series of the target's prefills of `tokens` prompt tokens, with the first token they yield."""

    def once(tokens: int) -> float:
        target.open(TAG, stretched(prompt, tokens))
        duration_s = timed(lambda: target.decode(TAG), target.model.device)[1]
        target.release(TAG)
        return duration_s

    return lambda tokens, context: [once(tokens) for _ in range(repeats + 1)][1:]  # noqa: ARG005


def measure(
    series: Series, tokens: Sequence[int], contexts: Sequence[int], tick: Callable[[], None] = lambda: None
) -> list[Point]:
    """Measure a series at every place of the grid; `tick` is called after each place."""
    times_s: dict[tuple[int, int], list[float]] = {}
    for _ in range(PASSES):
        for count in tokens:
            for context in contexts:
                times_s.setdefault((count, context), []).extend(series(count, context))
                tick()
    return [Point(*place, tuple(times)) for place, times in times_s.items()]


def stretched(tokens: list[int], length: int) -> list[int]:
    """Return `length` tokens: the given ones, repeated or cut."""
    return (tokens * (length // len(tokens) + 1))[:length]
