"""Laws of the steps of a server of which only answers are seen, fitted to the times between the rounds of its requests.

A round takes a draft and a verification of all running rows, and longer where the server reads a prompt meanwhile. Time
of drafts is what grows with depth: the wider verification is in it, since answers do not tell one from the other.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from calibrate.fits import fit_relative, spread_of
from calibrate.pass_laws import Fitted, described
from fleet.records.run import Run
from fleet.times.step_time import StepTime

LATE = 0.25  # of the time of a round: what comes as late belongs to the step before
DRAFTS = slice(6, 8)  # of the variables of a gap: those of drafts


class Gap(NamedTuple):
    """Time between two rounds of a request, or from its arrival to its first token.

    - `rows`: requests that ran. `depth`: of their drafts. `read`: tokens of prompts that were read meanwhile.
    - `is_first`: whether it ends with the first token.
    """

    time_s: float
    rows: int
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
    design = np.array([columns_of(gap) for gap in gaps])
    if len(depths - {0}) == 1:
        design[:, DRAFTS] = 0.0
    coefficients, ratios = fit_relative(design, times_s)
    (
        decode_s,
        decode_row_s,
        several_s,
        verify_s,
        verify_row_s,
        several_verify_s,
        token_s,
        row_token_s,
        read_s,
        first_s,
    ) = coefficients.tolist()
    laws = {
        "decode": StepTime(decode_s, per_row_s=decode_row_s, several_s=several_s),
        "verify": StepTime(verify_s, per_row_s=verify_row_s, several_s=several_verify_s),
        "verify_prefill": StepTime(first_s, read_s, per_row_token_s=read_s),
        "draft": StepTime(0.0, token_s, per_row_token_s=row_token_s),
    }
    fits = {}
    for name, some in (("decode", {0}), ("verify", depths - {0})):
        own = np.array([gap.depth in some and not gap.is_first for gap in gaps])
        if own.any():
            laws[name] = msgspec.structs.replace(laws[name], spread=spread_of(ratios[own]))
            fits[name] = described(times_s[own], float(np.abs(1 / ratios[own] - 1).mean()))
    if 0 not in depths:
        laws["decode"] = laws["verify"]
    return Fitted(laws, fits, 0.0)


def untold(depths: Sequence[int]) -> dict[str, str]:
    """Return the sources of the laws that answers do not have, for loops with drafts of those lengths in tokens."""
    sources, drafted = {}, [depth for depth in depths if depth]
    if len(drafted) == 1:
        sources["draft"] = f"fitted: within verify, for {drafted[0]} tokens: one length does not tell them apart"
    if drafted and len(drafted) == len(depths):
        sources["decode"] = "assumed: as long as a round with drafts"
    return sources


def columns_of(gap: Gap) -> list[float]:
    """Return the variables of a gap: of decoding, of verification, of drafts, of prompts, of a first token."""
    others, several = gap.rows - 1.0, float(gap.rows > 1)
    if gap.is_first:
        return [*[0.0] * 8, float(gap.read), 1.0]
    rows = [1.0, others, several]
    law = [*[0.0] * 3, *rows, gap.depth, gap.depth * others] if gap.depth else [*rows, *[0.0] * 5]
    return [*law, float(gap.read), 0.0]


def gaps_of(run: Run) -> Iterator[Gap]:
    """Yield the gaps of a closed loop between its first and its last finished requests."""
    frame, fleet = run.frame(), run.header.fleet
    depth = fleet.drafters.depth if fleet.drafters.count else 0
    joins = frame[frame.event == "join"].set_index("request")
    rounds = frame[(frame.event == "done") & (frame.kind != "chunk")].groupby("request").time_s
    first_s, last_s = rounds.min(), rounds.max()
    prompts = joins.tokens.loc[first_s.index].to_numpy()
    begins, ends = first_s.to_numpy(), last_s.to_numpy()
    # Tokens of one step reach their clients one after the other.
    late_s = LATE * float(rounds.diff().median())
    for request, times in rounds:
        if request < fleet.streams:
            continue
        if fleet.streams == 1:
            yield Gap(first_s[request] - joins.time_s[request], 1, depth, int(joins.tokens[request]), True)
        for before_s, after_s in zip(times.to_numpy()[:-1], times.to_numpy()[1:], strict=True):
            running = int(((begins <= before_s + late_s) & (ends + late_s >= after_s)).sum())
            read = int(prompts[(begins > before_s + late_s) & (begins <= after_s + late_s)].sum())
            yield Gap(after_s - before_s, max(running, 1), depth, read, False)
