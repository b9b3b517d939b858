"""What a calibration measures of a loaded pair; each function runs in a process that ends with it."""

from collections.abc import Sequence
from pathlib import Path

import torch

from specfleet.calibration.effort import Effort
from specfleet.calibration.measurements import Measurements
from specfleet.calibration.steps import (
    TAG,
    Series,
    draft_prefill_series,
    draft_series,
    measure,
    verify_prefill_series,
    verify_series,
)
from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.greedy import path_in_text
from specfleet.engine.node.build import load_target, new_drafter, new_target
from specfleet.engine.node.drafts import contents_of
from specfleet.engine.node.prompts import prompts_of
from specfleet.engine.replayed.continuations import continuations_of
from specfleet.engine.replayed.targets import Continuation
from specfleet.fleet.scenario.resolved import Fleet


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
    verifications = verify_series(target, *how, shape)
    grids: dict[str, tuple[Series, Sequence[int], Sequence[int]]] = {
        "draft": (draft_series(drafter, *how), depths, contexts),
        "verify": (verifications, sorted({shape.nodes(levels) + 1 for levels in depths}), contexts),
        "decode": (verifications, [1], contexts),
        "draft_prefill": (draft_prefill_series(drafter, *how), prompts, (0,)),
        "verify_prefill": (verify_prefill_series(target, *how), prompts, (0,)),
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
