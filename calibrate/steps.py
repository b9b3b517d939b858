"""Microbenchmarks of single steps: draft, verify, decode and the two prefills, over tokens and context."""

from collections.abc import Callable, Sequence

import torch

from calibrate.fits import Point
from engine.decoding.draft import Drafter
from engine.decoding.telemetry import timed
from engine.decoding.verify import Target
from engine.net.content import Content
from engine.node.control import Control
from engine.node.packing import drafts_of
from fleet.policies.shapes import CHAIN, Shape, parents
from fleet.times.pace import typical_control_s

TAG = 0

Series = Callable[[int, int], list[float]]  # (tokens, context) -> seconds of repeated steps


class Stopwatch:
    """Times repeated steps, and the control computation beside them.

    `reference_s`: of the control, at the reference pace; 0 on an accelerator, where times are what they are.
    """

    def __init__(self, device: torch.device, reference_s: float = 0.0) -> None:
        self.device = device
        self.reference_s = reference_s
        self.control = Control()
        self.controls_s: list[float] = []

    def times_s(self, work: Callable[[], object], repeats: int) -> list[float]:
        """Return the seconds of `repeats` steps; one more before them, which is cold, does not count."""
        times_s = []
        for _ in range(repeats + 1):
            times_s.append(timed(work, self.device)[1])
            control_s = self.control.after_step_s() if self.reference_s else 0.0
            if control_s:
                self.controls_s.append(control_s)
        return times_s[1:]

    def slowness(self) -> float:
        """How slow the host was since it was last asked, relative to the reference pace."""
        if not self.reference_s:
            return 1.0
        controls_s, self.controls_s = self.controls_s or [self.control.seconds()], []
        return typical_control_s(controls_s) / self.reference_s


def draft_series(drafter: Drafter, prompt: list[int], repeats: int, stopwatch: Stopwatch) -> Series:
    """Return the series S(d): drafts of `tokens` levels from one prefix of `context` tokens, back to back."""

    def series(tokens: int, context: int) -> list[float]:
        drafter.open(TAG, stretched(prompt, context))
        drafter.prefill(TAG, hidden=some_hidden(drafter, context - 1))
        times_s = stopwatch.times_s(lambda: drafter.draft([TAG], [tokens]), repeats)
        drafter.release(TAG)
        return times_s

    return series


def verify_series(
    target: Target, prompt: list[int], repeats: int, stopwatch: Stopwatch, shape: Shape = CHAIN
) -> Series:
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

        times_s = stopwatch.times_s(step, repeats)
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


def draft_prefill_series(drafter: Drafter, prompt: list[int], repeats: int, stopwatch: Stopwatch) -> Series:
    """Return the series of the drafter's prefills of `tokens` prompt tokens, the cache's opening and release too."""

    def once(tokens: int) -> None:
        drafter.open(TAG, stretched(prompt, tokens + 1))  # the last one is fed by the draft step
        drafter.prefill(TAG, hidden=some_hidden(drafter, tokens))
        drafter.release(TAG)

    return lambda tokens, _context: stopwatch.times_s(lambda: once(tokens), repeats)


def verify_prefill_series(target: Target, prompt: list[int], repeats: int, stopwatch: Stopwatch) -> Series:
    """Return the series of the target's prefills of `tokens` prompt tokens, with the first token they yield."""

    def once(tokens: int) -> None:
        target.open(TAG, stretched(prompt, tokens))
        target.decode([TAG])
        target.release(TAG)

    return lambda tokens, _context: stopwatch.times_s(lambda: once(tokens), repeats)


def measure(series: Series, tokens: Sequence[int], contexts: Sequence[int], stopwatch: Stopwatch) -> list[Point]:
    """Measure a series at every place of the grid, as if the host had kept its reference pace.

    The pace is that of the whole grid: the mean of the few controls beside one place would be noise.
    """
    times_s = {(count, context): series(count, context) for count in tokens for context in contexts}
    slowness = stopwatch.slowness()
    return [Point(*place, tuple(time_s / slowness for time_s in times)) for place, times in times_s.items()]


def stretched(tokens: list[int], length: int) -> list[int]:
    """Return `length` tokens: the given ones, repeated or cut."""
    return (tokens * (length // len(tokens) + 1))[:length]
