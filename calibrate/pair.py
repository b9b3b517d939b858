"""What a calibration measures of a loaded pair: single steps over tokens and context, acceptance, continuations.

`decode_continuations` and the functions that begin with `measure_` run in a process that ends with them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from specfleet.calibration.measurements import Effort, Measurements, Point
from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.greedy import path_in_text
from specfleet.engine.decoding.telemetry import timed
from specfleet.engine.decoding.verify import Target
from specfleet.engine.net.content import Content
from specfleet.engine.node.build import load_target, new_drafter, new_target
from specfleet.engine.node.drafts import contents_of, drafts_of
from specfleet.engine.node.prompts import prompts_of
from specfleet.engine.replayed.continuations import continuations_of
from specfleet.engine.replayed.targets import Continuation
from specfleet.fleet.policies.shapes import Shape, some_parents
from specfleet.fleet.scenario.resolved import Fleet

TAG = 0

Series = Callable[[int, int], list[float]]  # (tokens, context) -> seconds of repeated steps


def repeated_s(work: Callable[[], object], repeats: int, device: torch.device) -> list[float]:
    """Return the seconds of `repeats` steps; one more before them, which is cold, does not count."""
    return [timed(work, device)[1] for _ in range(repeats + 1)][1:]


def drafts_s(drafter: Drafter, prompt: list[int], repeats: int, tokens: int, context: int) -> list[float]:
    """Return the seconds S(d) of drafts of `tokens` levels from one prefix of `context` tokens, back to back."""
    drafter.open(TAG, stretched(prompt, context))
    drafter.prefill(TAG, hidden=some_hidden(drafter, context - 1))
    times_s = repeated_s(lambda: drafter.draft([TAG], [tokens]), repeats, drafter.device)
    drafter.release(TAG)
    return times_s


def verifications_s(
    target: Target, prompt: list[int], repeats: int, shape: Shape, tokens: int, context: int
) -> list[float]:
    """Return the seconds of verifications that feed `tokens` tokens: nodes of a draft + 1, so 1 is plain decoding.

    Each commits at least one token, so the context grows from `context` by about `repeats`. As in service, a draft
    comes as the content of a message.
    """
    target.open(TAG, stretched(prompt, context))
    target.decode([TAG])
    draft = Content(stretched(prompt, tokens - 1), some_parents(shape, tokens - 1))
    device = target.model.device

    def step() -> object:
        return target.verify([TAG], drafts_of([draft], device)) if draft.tokens else target.decode([TAG])

    times_s = repeated_s(step, repeats, device)
    target.release(TAG)
    return times_s


def some_hidden(drafter: Drafter, tokens: int) -> torch.Tensor | None:
    """Hidden states (tokens, hidden) for a drafter that reads them: what they say does not change its time."""
    if not drafter.reads_hidden:
        return None
    model = drafter.model
    return torch.zeros(tokens, drafter.state_numbers, dtype=model.dtype, device=model.device)


def draft_prefills_s(drafter: Drafter, prompt: list[int], repeats: int, tokens: int, _context: int) -> list[float]:
    """Return the seconds of prefills of `tokens` prompt tokens at the drafter, the cache's opening and release too."""

    def once() -> None:
        drafter.open(TAG, stretched(prompt, tokens + 1))  # the last one is fed by the draft step
        drafter.prefill(TAG, hidden=some_hidden(drafter, tokens))
        drafter.release(TAG)

    return repeated_s(once, repeats, drafter.device)


def verify_prefills_s(target: Target, prompt: list[int], repeats: int, tokens: int, _context: int) -> list[float]:
    """Return the seconds of prefills of `tokens` prompt tokens at the target, with the first token they yield."""

    def once() -> None:
        target.open(TAG, stretched(prompt, tokens))
        target.decode([TAG])
        target.release(TAG)

    return repeated_s(once, repeats, target.model.device)


def measure(series: Series, tokens: Sequence[int], contexts: Sequence[int]) -> list[Point]:
    """Measure a series at every place of the grid."""
    return [Point(count, context, tuple(series(count, context))) for count in tokens for context in contexts]


def stretched(tokens: list[int], length: int) -> list[int]:
    """Return `length` tokens: the given ones, repeated or cut."""
    return (tokens * (length // len(tokens) + 1))[:length]


def decode_continuations(fleet: Fleet, folder: Path) -> Measurements:
    """Decode the target's text after all calibration prompts; `folder` keeps it."""
    continuations_of(fleet, folder)
    return Measurements()


def measure_steps(fleet: Fleet, effort: Effort) -> Measurements:
    """Measure all kinds of steps, each over its grid, by the names of a profile."""
    shape, depths, contexts = fleet.drafters.shape, grid_depths(fleet, effort), effort.contexts
    prompts = (*contexts, *effort.prefills)
    room = (1, grid_tokens(fleet, effort))
    target = new_target(fleet, load_target(fleet), room)
    drafter = new_drafter(fleet, target.model, room)
    assert isinstance(drafter, Drafter)
    how = (prompts_of(fleet)[0], effort.repeats)
    verifications = partial(verifications_s, target, *how, shape)
    grids: dict[str, tuple[Series, Sequence[int], Sequence[int]]] = {
        "draft": (partial(drafts_s, drafter, *how), depths, contexts),
        "verify": (verifications, sorted({shape.nodes(levels) + 1 for levels in depths}), contexts),
        "decode": (verifications, [1], contexts),
        "draft_prefill": (partial(draft_prefills_s, drafter, *how), prompts, (0,)),
        "verify_prefill": (partial(verify_prefills_s, target, *how), prompts, (0,)),
    }
    for series, tokens, places in grids.values():
        series(tokens[0], places[0])  # the first steps of a process are slow
    points = {name: measure(*grid) for name, grid in grids.items()}
    return Measurements(points, vocabulary=target.model.vocabulary, hidden=drafter.state_numbers)


def grid_depths(fleet: Fleet, effort: Effort) -> Sequence[int]:
    """Return the depths of the grid; no tree is deeper than the scenario's, since trees grow fast."""
    depth = fleet.drafters.depth
    if fleet.drafters.shape.kind == "chain":
        return effort.depths
    return *(shallower for shallower in effort.depths if shallower < depth), depth


def grid_tokens(fleet: Fleet, effort: Effort) -> int:
    """Return the tokens of the longest row of the grid: repeated verifications may accept all of their drafts."""
    fed = max(fleet.drafters.shape.nodes(levels) for levels in grid_depths(fleet, effort)) + 1
    return max(max(effort.contexts) + (effort.repeats + 2) * fed, max(effort.prefills, default=0) + 1)


def measure_acceptance(fleet: Fleet, folder: Path) -> Measurements:
    """Measure the accepted lengths of the rounds of each prompt, in draft tokens; `folder` keeps continuations."""
    drafter = new_drafter(fleet, room=(1, fleet.room.longest_row))
    assert isinstance(drafter, Drafter)
    depth, new_tokens = fleet.drafters.depth, int(fleet.lengths.mean_answer)
    continuations = continuations_of(fleet, folder)
    return Measurements(accepted=[accepted_lengths(drafter, text, new_tokens, depth) for text in continuations])


def accepted_lengths(drafter: Drafter, continuation: Continuation, new_tokens: int, depth: int) -> list[int]:
    """Return the accepted length of every greedy round while `new_tokens` are decoded after the prompt."""
    drafter.open(TAG, [*continuation.prompt, continuation.tokens[0]])
    hidden, prompt_tokens = None, len(continuation.prompt)
    if continuation.hidden is not None:
        hidden = torch.from_numpy(continuation.hidden).to(drafter.model.device, drafter.model.dtype)
    drafter.prefill(TAG, hidden=None if hidden is None else hidden[:prompt_tokens])
    lengths, committed = [], 1
    while committed < new_tokens:
        draft = contents_of(drafter.draft([TAG], [depth]))[0]
        path = path_in_text(draft.tokens, continuation.tokens[committed:], draft.nodes)
        before, committed = committed, committed + len(path) + 1
        states = None if hidden is None else hidden[prompt_tokens + before - 1 : prompt_tokens + committed - 1]
        drafter.advance(TAG, path, continuation.tokens[before:committed], states)
        lengths.append(len(path))
    drafter.release(TAG)
    return lengths
