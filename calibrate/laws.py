"""Laws of steps, fitted to timed steps: of loops on our engine, and of recorded runs of others.

A step is a sum of laws, as `fleet/times/mixed.py` adds them: a target's of verification or decoding and of each prompt,
a drafter's of each text that it reads and of all rows that it drafts for. Laws that share steps are fitted together,
a target's with one fixed time for a pass. Aligned rows are padded to the longest, and each kind of step is a law.

Times are sums of variables: a robust fit with coefficients of at least 0, and the spread around it.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from specfleet.calibration.steadiness import passes_differ
from specfleet.fleet.policies.shapes import Shape
from specfleet.fleet.records.playback import finished_steps
from specfleet.fleet.records.run import Run
from specfleet.fleet.times.durations import step_name
from specfleet.fleet.times.mixed import Part, extent_of, parts_of, parts_of_draft
from specfleet.fleet.times.step import Step
from specfleet.fleet.times.step_time import Quantiles, StepTime

Floats = NDArray[np.float64]

TARGET, PREFILLS = ("verify", "decode", "verify_prefill"), ("verify_prefill", "draft_prefill")
SURE = 20  # steps of a kind in a pass whose mean counts
WIDTH = 9  # coefficients of a law
NOTHING = (0.0,) * WIDTH
LEVELS = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 1.0)
ROUNDS = 6  # of a fit with weights that follow from itself
ABSOLUTE_ROUNDS = 20  # of the fit that it starts from
SMALLEST = 1e-3  # error that counts, over the median of times


class Timed(NamedTuple):
    """A step that was timed. `drafted` (tokens): by each of its members. `number`: of the pass of measurement."""

    step: Step
    drafted: tuple[int, ...]
    time_s: float
    number: int


class Fitted(NamedTuple):
    """Laws by a profile's names; by kind of step how many shaped them, their quantiles and the error of the laws.

    - `apart`: how far the passes of the measurement differ.
    """

    laws: dict[str, StepTime]
    fits: dict[str, Any]
    apart: float


def timed_steps(run: Run) -> Iterator[Timed]:
    """Yield the finished steps of a run without the first one of each kind, which is cold; its seed is the pass."""
    begun: set[str] = set()
    for step, done in finished_steps(run):
        if step.kind in begun:
            pairs = zip(step.members, done.outcomes, strict=True)
            drafted = tuple([out.drafted if out.drafted >= 0 else member.tokens for member, out in pairs])
            yield Timed(step, drafted, done.duration_s, run.header.scenario.seed)
        begun.add(step.kind)


def fit(timed: Sequence[Timed], shape: Shape, aligned: bool = False) -> Fitted:
    """Fit the laws of all steps to their times. `aligned`: whether rows are padded to the longest."""
    made = [laws_in(one, shape, aligned) for one in timed]
    laws, fits, paces = {"draft": StepTime(), "verify": StepTime()}, dict[str, Any](), list[list[Floats]]()
    for group in groups_of(made):
        of_group = [(one, columns) for one, columns in zip(timed, made, strict=True) if columns.keys() & set(group)]
        times_s, passes = np.array([one.time_s for one, _ in of_group]), np.array([one.number for one, _ in of_group])
        design = np.array([[x for name in group for x in columns.get(name, NOTHING)] for _, columns in of_group])
        bases = [WIDTH * place for place, name in enumerate(group) if name in TARGET]
        if bases:  # one fixed time for all laws of a pass
            design[:, bases[0]] = design[:, bases].sum(axis=1)
            design[:, bases[1:]] = 0.0
        coefficients, ratios = fit_relative(design, times_s)
        coefficients[bases] = coefficients[bases[:1]]
        fitted_s, pass_numbers = times_s / ratios, sorted(set(passes.tolist()))
        # A slow minute is of one pass: the pass with the median speed counts, of two the faster.
        pace_of = {at: times_s[passes == at].sum() / fitted_s[passes == at].sum() for at in pass_numbers}
        median = sorted(pass_numbers, key=pace_of.__getitem__)[(len(pass_numbers) - 1) // 2]
        coefficients *= pace_of[median] / (times_s.sum() / fitted_s.sum())
        spread = spread_of(ratios[passes == median])
        for place, name in enumerate(group):
            own = coefficients[place * WIDTH : (place + 1) * WIDTH].tolist()
            law = msgspec.structs.replace(StepTime(*own), spread=spread)
            if name in PREFILLS and not aligned:  # of several prompts in one step, each takes its own time
                law = msgspec.structs.replace(law, per_row_token_s=law.per_token_s)
            laws[name] = law
        kinds = np.array([one.step.kind for one, _ in of_group])
        for kind in sorted(set(kinds.tolist())):
            paces.append([ratios[(kinds == kind) & (passes == at)] for at in pass_numbers])
            fits[kind] = described(times_s[kinds == kind], ratios[kinds == kind])
    return Fitted(laws, fits, passes_differ([pace for pace in paces if min(map(len, pace)) >= SURE]))


def groups_of(made: Sequence[dict[str, list[float]]]) -> list[list[str]]:
    """Return the names of laws that share steps, group by group."""
    groups = list[set[str]]()
    for names in dict.fromkeys(frozenset(columns) for columns in made if columns):
        apart = [group for group in groups if not group & names]
        groups = [*apart, set(names).union(*(group for group in groups if group & names))]
    return [sorted(group) for group in groups]


def described(times_s: Floats, ratios: Floats) -> dict[str, Any]:
    """Describe the times of steps of a kind, and the error of their fit: how far apart short and long ones are off.

    It is that of a typical tenth of the steps, by their fitted times: its median ratio over that of all. Times that a
    busy host spreads are no error of the fit.
    """
    ratios = np.maximum(ratios, 1e-9)
    tenths = np.array_split(ratios[np.argsort(times_s / ratios)], max(min(10, len(ratios) // SURE), 1))
    errors = [abs(float(np.median(tenth) / np.median(ratios)) - 1) for tenth in tenths]
    quantiles_s = np.quantile(times_s, (0.1, 0.5, 0.9)).tolist()
    return {"steps": len(times_s), "quantiles_s": quantiles_s, "error": float(np.median(errors))}


def laws_in(timed: Timed, shape: Shape, aligned: bool = False) -> dict[str, list[float]]:
    """Return the variables of a step in the coefficients of each law that it is made of; see `fleet/times/mixed.py`."""
    step, drafted = timed.step, timed.drafted
    if aligned:
        parts = parts_of(step, shape, drafted if step.kind == "draft" else None)
        return {step_name(False, step.kind): columns_of(*extent_of(parts, True, step.ballast))}
    if step.kind in ("draft", "draft_prefill"):
        read, rows = parts_of_draft(step, drafted if step.kind == "draft" else [0] * len(drafted))
        # A prompt that is read at once follows a few places of its draft: that is a constant, and no context to fit.
        few = max(drafted) + 2
        read = [part if part.context > few else part._replace(context=0) for part in read]
        drafting = {"draft": columns_of(*extent_of(rows))} if rows else {}
        return drafting | ({"draft_prefill": read_columns(read, len(read))} if read else {})
    parts = parts_of(step, shape)
    prompts, others = [part for part in parts if part.of_prompt], [part for part in parts if not part.of_prompt]
    name = "verify" if any(part.logits > 1 for part in others) else "decode"
    law = {name: columns_of(*extent_of(others))} if others else {}
    return law | ({"verify_prefill": read_columns(prompts, 0 if others else 1)} if prompts else {})


def read_columns(parts: Sequence[Part], passes: int) -> list[float]:
    """Return the variables of parts of prompts with so many fixed times."""
    fed, context = sum(part.fed for part in parts), sum(part.context for part in parts)
    pairs = sum(part.fed * part.context for part in parts)
    return [float(number) for number in (passes, fed, context, pairs, *[0] * (WIDTH - 4))]


def spread_of(ratios: ArrayLike) -> Quantiles:
    """Return the quantiles of `ratios` (measured over fitted), scaled so that their interpolation has mean 1."""
    values = np.quantile(np.asarray(ratios, dtype=float), LEVELS)
    mean = np.trapezoid(values, LEVELS)
    return Quantiles(LEVELS, tuple((values / mean).tolist()))


def columns_of(tokens: float, context: float, rows: float, row_tokens: float) -> list[float]:
    """Return the variables of a step over rows, in the order of the coefficients of `StepTime`."""
    others, several = rows - 1, float(rows > 1)
    alone = [1.0, tokens, context, tokens * context]
    return [*alone, others, row_tokens, others * context, several, several * tokens]


def fit_relative(design: Floats, times: Floats) -> tuple[Floats, Floats]:
    """Fit times as sums of the columns; return the coefficients, and measured over fitted times.

    Coefficients are at least 0, by least squares of errors relative to the fit of the round before: relative to the
    measured times, slow steps would count less than quick ones, and the more so the more times spread. The first round
    starts from the fit of least absolute errors, which a few times of nearly 0 do not move. Steps that took more than
    twice the fit, or less than half, do not shape it, but count in the mean.
    """
    least_s = SMALLEST * float(np.median(times))
    fitted = np.maximum(least_absolute(design, times, least_s), least_s)
    kept = (times > fitted / 2) & (times < 2 * fitted)
    for _ in range(ROUNDS):
        coefficients = nonnegative(design[kept], times[kept], fitted[kept])
        fitted = design @ coefficients
        kept = (times > fitted / 2) & (times < 2 * fitted)
    return coefficients * (times.sum() / fitted.sum()), times / fitted


def least_absolute(design: Floats, times: Floats, least_s: float) -> Floats:
    """Return the times that the columns give with least absolute errors, by squares over the errors of each round.

    - `least_s`: errors below it count as equal.
    """
    fitted, units = times, np.ones(len(times))
    for _ in range(ABSOLUTE_ROUNDS):
        fitted = design @ nonnegative(design, times, units)
        units = np.sqrt(np.maximum(np.abs(times - fitted), least_s))
    return fitted


def nonnegative(design: Floats, times: Floats, units: Floats) -> Floats:
    """Return the coefficients of at least 0 with the least squares of errors, each error in a unit of its own."""
    scale = np.abs(design).max(axis=0, initial=0.0)  # columns may differ by many orders
    scale[scale == 0] = 1.0
    coefficients: Floats = nnls(design / scale / units[:, None], times / units)[0] / scale
    return coefficients


def fit_bandwidth(payloads_bytes: Sequence[int], round_trips_s: Sequence[Sequence[float]]) -> float | None:
    """Fit latency and bandwidth to round trips of equal payloads both ways; give bytes a second, None if unlimited."""
    one_way_s = np.array([np.median(times) / 2 for times in round_trips_s])
    design = np.stack([np.ones(len(one_way_s)), np.array(payloads_bytes, dtype=float)], axis=1)
    _, per_byte_s = nonnegative(design, one_way_s, one_way_s)
    return float(1 / per_byte_s) if per_byte_s > 0 else None
