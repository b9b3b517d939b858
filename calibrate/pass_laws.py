"""Laws of the steps of a target that drafts on its own device, fitted to the steps of its runs.

The laws of verification, decoding and prefill are fitted together, as `fleet/times/mixed.py` adds them, with one fixed
time for a pass; so are the drafter's, which reads prompts one by one. Aligned rows have a law for each kind of step.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from specfleet.calibration.fits import columns_of, fit_batch_step, fit_relative, law_from, spread_of
from specfleet.calibration.steadiness import passes_differ
from specfleet.fleet.policies.shapes import Shape
from specfleet.fleet.records.playback import finished_steps
from specfleet.fleet.records.run import Run
from specfleet.fleet.stations.messages import StepDone
from specfleet.fleet.times.durations import extent, nodes_of
from specfleet.fleet.times.mixed import Part, extent_of, parts_of, parts_of_draft
from specfleet.fleet.times.step import Step
from specfleet.fleet.times.step_time import StepTime

LAWS = {"target": ("verify", "decode", "verify_prefill"), "drafter": ("draft", "draft_prefill")}
SURE = 20  # steps of a kind in a pass whose mean counts
WIDTH = 9  # coefficients of a law
DRAFTING, PREFILLS = ("draft", "draft_prefill"), ("verify_prefill", "draft_prefill")
PROFILE_NAMES = {"prefill": "verify_prefill"}  # what a profile calls a target's steps, where it differs


class Fitted(NamedTuple):
    """Laws by a profile's names; by kind of step how many shaped them, their quantiles and the error of the laws.

    - `apart`: how far the passes of the measurement differ.
    """

    laws: dict[str, StepTime]
    fits: dict[str, Any]
    apart: float


def fit_passes(runs: Sequence[Run], shape: Shape) -> Fitted:
    """Fit the laws of continuous batching to runs with drafts and without; a seed is a pass."""
    steps = [(*pair, run.header.scenario.seed) for run in runs for pair in warm_steps(run)]
    paces: list[list[NDArray[np.float64]]] = []
    laws, fits = {"draft": StepTime()}, dict[str, Any]()
    for side, names in LAWS.items():
        of_side = [
            (step, done, number, columns)
            for step, done, number in steps
            if any(columns := columns_at(side, step, done, shape))
        ]
        if not of_side:
            continue
        times_s = np.array([done.duration_s for _, done, *_ in of_side])
        passes = np.array([number for *_, number, _ in of_side])
        design = np.array([columns for *_, columns in of_side])
        if side == "target":  # one fixed time for its three laws
            design[:, 0] = design[:, ::WIDTH].sum(axis=1)
            design[:, WIDTH::WIDTH] = 0
        coefficients, ratios = fit_relative(design, times_s)
        if side == "target":
            coefficients[::WIDTH] = coefficients[0]
        fitted_s = times_s / ratios
        median = median_pass(times_s, fitted_s, passes)
        coefficients *= times_s[median].sum() / fitted_s[median].sum() / (times_s.sum() / fitted_s.sum())
        spread = spread_of(ratios[median])
        for place, name in enumerate(names):
            law = law_from(coefficients[place * WIDTH : (place + 1) * WIDTH], spread)
            if name in PREFILLS:  # of several prompts in one step, each takes its own time
                law = msgspec.structs.replace(law, per_row_token_s=law.per_token_s)
            laws[name] = law
        for kind in {step.kind for step, *_ in of_side}:
            of_kind = np.array([step.kind == kind for step, *_ in of_side])
            paces.append([ratios[of_kind & (passes == number)] for number in sorted(set(passes.tolist()))])
            fits[kind] = described(times_s[of_kind], float(np.abs(1 / ratios[of_kind] - 1).mean()))
    return Fitted(laws, fits, passes_differ([pace for pace in paces if min(map(len, pace)) >= SURE]))


def median_pass(
    times_s: NDArray[np.float64], fitted_s: NDArray[np.float64], passes: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which steps are of the pass with the median speed, of two the faster: a slow minute is of one pass."""
    numbers = sorted(set(passes.tolist()), key=lambda at: times_s[passes == at].sum() / fitted_s[passes == at].sum())
    chosen: NDArray[np.bool_] = passes == numbers[(len(numbers) - 1) // 2]
    return chosen


def fit_aligned(runs: Sequence[Run], shape: Shape) -> Fitted:
    """Fit a law to each kind of step of aligned rows, which are padded to the longest; a seed is a pass."""
    of_kind: dict[str, list[tuple[tuple[int, int, int, int], float]]] = defaultdict(list)
    for run in runs:
        for step, done in warm_steps(run):
            nodes = nodes_of(step, shape) if step.kind == "verify" else None
            of_kind[step.kind].append((extent(step, True, nodes), done.duration_s))
    laws, fits = dict[str, StepTime](), dict[str, Any]()
    for kind, steps in of_kind.items():
        extents, times_s = zip(*steps, strict=True)
        laws[PROFILE_NAMES.get(kind, kind)], error = fit_batch_step(extents, times_s)
        fits[kind] = described(np.array(times_s), error)
    return Fitted(laws, fits, 0.0)


def described(times_s: NDArray[np.float64], error: float) -> dict[str, Any]:
    """Describe the times of steps of a kind, and the mean absolute error of their law."""
    quantiles_s = np.quantile(times_s, (0.1, 0.5, 0.9)).tolist()
    return {"steps": len(times_s), "quantiles_s": quantiles_s, "mean_absolute_error": error}


def columns_at(side: str, step: Step, done: StepDone, shape: Shape) -> list[float]:
    """Return the variables of a step in the laws of a side; nothing for the other's, and for steps without any."""
    if (step.kind in DRAFTING) != (side == "drafter"):
        return []
    return drafting_columns(step, done) if side == "drafter" else pass_columns(step, shape)


def pass_columns(step: Step, shape: Shape) -> list[float]:
    """Return the variables of a target's step in the coefficients of its three laws; see `pass_s`."""
    parts = parts_of(step, shape)
    prompts, others = [part for part in parts if part.of_prompt], [part for part in parts if not part.of_prompt]
    law, nothing = columns_of(*extent_of(others)) if others else [0.0] * WIDTH, [0.0] * WIDTH
    verifies = any(part.logits > 1 for part in others)
    return [
        *(law if verifies else nothing),
        *(nothing if verifies else law),
        *read_columns(prompts, 0 if others else 1),
    ]


def drafting_columns(step: Step, done: StepDone) -> list[float]:
    """Return the variables of a drafter's step in the coefficients of its two laws; see `drafting_s`."""
    pairs = zip(step.members, done.outcomes, strict=True)
    drafted = [outcome.drafted if outcome.drafted >= 0 else member.tokens for member, outcome in pairs]
    if step.kind != "draft":
        drafted = [0] * len(drafted)
    read, rows = parts_of_draft(step, drafted)
    # A prompt that is read at once follows a few places of its draft: that is a constant, and no context to fit.
    few = max(drafted) + 2
    read = [part if part.context > few else part._replace(context=0) for part in read]
    return [*(columns_of(*extent_of(rows)) if rows else [0.0] * WIDTH), *read_columns(read, len(read))]


def read_columns(parts: Sequence[Part], passes: int) -> list[float]:
    """Return the variables of parts of prompts with so many fixed times."""
    fed, context = sum(part.fed for part in parts), sum(part.context for part in parts)
    pairs = sum(part.fed * part.context for part in parts)
    return [float(number) for number in (passes, fed, context, pairs, *[0] * (WIDTH - 4))]


def warm_steps(run: Run) -> Iterator[tuple[Step, StepDone]]:
    """Yield the finished steps of a run without the first one of each kind, which is cold."""
    begun: set[str] = set()
    for step, done in finished_steps(run):
        if step.kind in begun:
            yield step, done
        begun.add(step.kind)
