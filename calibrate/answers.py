"""Laws of the steps of a server of which only answers are seen, fitted to the times between the rounds of its requests.

A round takes a draft and a verification of all running rows, and longer where the server reads a prompt meanwhile. Time
of drafts is what grows with depth: the wider verification is in it, since answers do not tell one from the other.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from specfleet.calibration.laws import WIDTH, Fitted, columns_of, described, fit_relative, spread_of
from specfleet.fleet.records.run import Run
from specfleet.fleet.times.step_time import StepTime

LATE = 0.25  # of the time of a round: what comes as late belongs to the step before
# Variables of a gap that are of these steps, and of them those of the context.
PLAIN, VERIFY, DRAFTS = slice(0, WIDTH), slice(WIDTH, 2 * WIDTH), slice(2 * WIDTH, 2 * WIDTH + 2)
CONTEXT = [2, 6, WIDTH + 2, WIDTH + 6]
MIN_GAIN = 0.95  # share of the error without the context, at most, with which it is in the law


class Gap(NamedTuple):
    """Time between two rounds of a request, or from its arrival to its first token.

    - `rows`: requests that ran. `context` (tokens): of the longest. `depth`: of their drafts.
    - `read`: tokens of prompts that were read meanwhile. `is_first`: whether it ends with the first token.
    """

    time_s: float
    rows: int
    context: int
    depth: int
    read: int
    is_first: bool


def fit_answers(runs: Sequence[Run]) -> Fitted:
    """Fit the laws of a target and its drafter to closed loops; their first requests, which are cold, do not count.

    With drafts of one length their time cannot be parted from the rest of a round: it is in `verify`. Without plain
    loops a plain step is taken to last as long as a round.
    """
    gaps = [gap for run in runs for gap in gaps_of(run)]
    times_s, depths = np.array([gap.time_s for gap in gaps]), {gap.depth for gap in gaps}
    design = np.array([variables_of(gap) for gap in gaps])
    if len(depths - {0}) == 1:
        design[:, DRAFTS] = 0.0
    coefficients, ratios = fit_relative(design, times_s)
    design[:, CONTEXT] = 0.0
    shorter = fit_relative(design, times_s)
    if mean_error(ratios) > MIN_GAIN * mean_error(shorter[1]):  # a slope of chance would be wrong at other lengths
        coefficients, ratios = shorter
    decode, verify = (StepTime(*coefficients[columns].tolist()) for columns in (PLAIN, VERIFY))
    token_s, row_token_s, read_s, first_s = coefficients[DRAFTS.start :].tolist()
    laws = {
        "decode": decode,
        "verify": verify,
        "verify_prefill": StepTime(first_s, read_s, per_row_token_s=read_s),
        "draft": StepTime(0.0, token_s, per_row_token_s=row_token_s),
    }
    fits = {}
    for name, some in (("decode", {0}), ("verify", depths - {0})):
        of_kind = np.array([gap.depth in some and not gap.is_first for gap in gaps])
        if of_kind.any():
            laws[name] = msgspec.structs.replace(laws[name], spread=spread_of(ratios[of_kind]))
            fits[name] = described(times_s[of_kind], ratios[of_kind])
    if 0 not in depths:
        laws["decode"] = laws["verify"]
    return Fitted(laws, fits, 0.0)


def not_separated(depths: Sequence[int], prompts: object) -> dict[str, str]:
    """Return the sources of the laws that answers do not have.

    - `depths`, `prompts` (tokens): lengths of the loops' drafts, and of their prompts.
    """
    sources, drafted = {}, [depth for depth in depths if depth]
    if isinstance(prompts, int):
        sources["verify_prefill"] = (
            f"fitted: at prompts of {prompts} tokens: one length does not tell a prompt's fixed time"
        )
    if len(drafted) == 1:
        sources["draft"] = f"fitted: within verify, for {drafted[0]} tokens: one length does not tell them apart"
    if drafted and len(drafted) == len(depths):
        sources["decode"] = "assumed: as long as a round with drafts"
    return sources


def mean_error(ratios: NDArray[np.float64]) -> float:
    """Return the mean absolute error of fits, from measured over fitted times; each error counts as 1 at most.

    A few measured times of nearly 0 would else be all of it, and without them a fit that misses most times looks right.
    """
    return float(np.minimum(np.abs(1 / np.maximum(ratios, 1e-9) - 1), 1.0).mean())


def variables_of(gap: Gap) -> list[float]:
    """Return the variables of a gap: of decoding, of verification, of drafts, of prompts, of a first token."""
    if gap.is_first:
        return [*[0.0] * DRAFTS.stop, float(gap.read), 1.0]
    step, none = columns_of(0, gap.context, gap.rows, 0), [0.0] * WIDTH  # drafted tokens have variables of their own
    law = [*none, *step, gap.depth, gap.depth * (gap.rows - 1.0)] if gap.depth else [*step, *none, 0.0, 0.0]
    return [*law, float(gap.read), 0.0]


def gaps_of(run: Run) -> Iterator[Gap]:
    """Yield the gaps of a closed loop between its first and its last finished requests."""
    frame, fleet = run.frame(), run.header.fleet
    depth = fleet.drafters.depth if fleet.drafters.count else 0
    joins = frame[frame.event == "join"].set_index("request")
    done = frame[(frame.event == "done") & frame.kind.isin(["prefill", "verify", "decode"])]  # those with tokens
    rounds = done.groupby("request").time_s
    first_s, last_s = rounds.min(), rounds.max()
    prompts = joins.tokens.loc[first_s.index].to_numpy()
    begins, ends = first_s.to_numpy(), last_s.to_numpy()
    # Tokens of one step reach their clients one after the other.
    late_s = LATE * float(rounds.diff().median())
    answers = [(times.to_numpy(), done.base[times.index].to_numpy()) for _, times in rounds]
    for request, times in rounds:
        if request < fleet.streams:
            continue
        if fleet.streams == 1:
            yield Gap(first_s[request] - joins.time_s[request], 1, 0, depth, int(joins.tokens[request]), True)
        for before_s, after_s in zip(times.to_numpy()[:-1], times.to_numpy()[1:], strict=True):
            running = np.flatnonzero((begins <= before_s + late_s) & (ends + late_s >= after_s))
            context = max((known_at(before_s + late_s, *answers[number]) for number in running), default=0)
            read = int(prompts[(begins > before_s + late_s) & (begins <= after_s + late_s)].sum())
            yield Gap(after_s - before_s, max(len(running), 1), context, depth, read, False)


def known_at(time_s: float, came_s: NDArray[np.float64], known: NDArray[np.int64]) -> int:
    """Return the tokens of a request at a time; its rounds came at `came_s` after `known` tokens."""
    return int(known[min(int(np.searchsorted(came_s, time_s, "right")), len(known) - 1)])
