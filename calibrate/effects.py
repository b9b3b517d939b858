"""What slows single steps on a host: idleness before a draft, and stations that use one device at once.

Idleness: StarSD, figures 6b and 6c. Contention: while k steps are active, each advances at 1 / factor(k). A step's work
is then the sum of its times at each k, divided by their factors: linear in 1 / factor, so all steps together give the
factors.

Delays around the steps of its fleets and of their messages, as a profile has them.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression

from specfleet.calibration.fleets import SETTLING_STEPS, FleetSetup, fitted_steps
from specfleet.calibration.laws import Floats, nonnegative, spread_of
from specfleet.fleet.records.delays import StationDelays, delays_in
from specfleet.fleet.records.playback import playback_of
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.names import DRAFTER
from specfleet.fleet.times.effects import IdleEffect
from specfleet.fleet.times.overhead import Delay, Overhead
from specfleet.fleet.times.step_time import LinkTime

SHORTEST_OVER_QUEUED = 2.0  # a gap is idleness if it is so many times as long as that between queued drafts
BINS = 8  # of longer gaps, evenly over the logarithm
MIN_DRAFTS = 20  # in a bin that counts
FALLS = 9.0  # chi-squared that a fall at long gaps must explain: three standard deviations
MIN_STEPS = 20  # steps with k active that a factor of its own needs


def fit_idle(drafts: pd.DataFrame, queued_s: float) -> IdleEffect:
    """Fit the slowdown of drafts (`steps_in`) as a curve of the idle gap: 1 without a gap, rising, then falling.

    A bin's slowdown is its median ratio over that of drafts without a gap. `queued_s`: typical gap
    between queued drafts.
    """
    shortest_s, longest_s = SHORTEST_OVER_QUEUED * queued_s, float(drafts.gap_s.max())
    if not 0 < shortest_s < longest_s:
        return IdleEffect()
    bins = np.digitize(drafts.gap_s, np.geomspace(shortest_s, longest_s, BINS, endpoint=False))
    ratios = drafts.ratio.groupby(bins)
    by_bin = drafts.groupby(bins).agg(gap_s=("gap_s", "mean"), ratio=("ratio", "median"), drafts=("ratio", "size"))
    spread = float(((ratios.quantile(0.75) - ratios.quantile(0.25)) / 1.349).median())  # a bin's standard deviation
    by_bin = by_bin[by_bin.drafts >= MIN_DRAFTS]
    if 0 not in by_bin.index or len(by_bin) < 2:
        return IdleEffect()
    variance = np.pi / 2 * max(spread, 1e-6) ** 2 / by_bin.drafts.to_numpy()  # of a median of normal ratios
    curve = rising_then_falling(by_bin.ratio.to_numpy(), variance)
    slowdowns = np.maximum(curve / curve[0], 1.0)
    return IdleEffect(tuple(by_bin.gap_s.clip(lower=0.0).tolist()), tuple(slowdowns.tolist()))


def rising_then_falling(values: Floats, variance: Floats) -> Floats:
    """Return the nearest curve that rises up to a peak and falls after it, or one that only rises if noise may fall so.

    - `values`, `variance` (points,): of noise.
    """

    def fit(part: slice, increasing: bool) -> Floats:
        fitted: Floats = isotonic_regression(values[part], weights=1 / variance[part], increasing=increasing).x
        return fitted

    curves = [
        np.concatenate([fit(slice(peak), True), fit(slice(peak, None), False)]) for peak in range(1, len(values) + 1)
    ]
    misfits = [float(((curve - values) ** 2 / variance).sum()) for curve in curves]
    nearest = int(np.argmin(misfits))
    return curves[nearest if misfits[-1] - misfits[nearest] > FALLS else -1]


def slowdowns_of(drafts: pd.DataFrame, idle: IdleEffect) -> Floats:
    """Return the slowdown of each draft by the gap before it, (drafts,)."""
    slowdowns: Floats = np.interp(drafts.gap_s, idle.gaps_s, idle.slowdowns)
    return slowdowns


def with_recoveries(idle: IdleEffect, warmed: Sequence[tuple[int, pd.DataFrame]]) -> IdleEffect:
    """Return the effect with the share of a draft's excess that warm-up tokens leave, from runs of one gap each.

    `warmed`: drafts by warm-up tokens; those without any show the whole excess. Counts that were not run are
    interpolated.
    """
    ratios = {tokens: float(drafts.ratio.median()) for tokens, drafts in sorted(warmed, key=lambda pair: pair[0])}
    gap_s = next((float(drafts.gap_s.median()) for tokens, drafts in warmed if tokens == 0), 0.0)
    slowdown = idle.slowdown(gap_s)
    if slowdown <= 1:
        return idle
    level = ratios[0] / slowdown
    left = [(ratio / level - 1) / (slowdown - 1) for ratio in ratios.values()]
    left = np.minimum.accumulate(np.clip(left, 0.0, 1.0)).tolist()
    shares = np.interp(np.arange(max(ratios) + 1), list(ratios), left)
    return msgspec.structs.replace(idle, recoveries=tuple(shares.tolist()))


def factors_in(runs: Sequence[Run], setup: FleetSetup, idle: IdleEffect) -> tuple[float, ...]:
    """Return factor(k) for k = 1, 2, ... from fleets of 1, 2, ... targets that run concurrently; it never falls.

    `idle`: what idleness adds to the work of drafts.
    """
    works_s, times_s = [], []
    for run in runs:
        steps = fitted_steps(run, setup)
        slowdowns = np.where(steps.name == "draft", slowdowns_of(steps, idle), 1.0)
        counts = steps.resolved & (steps.fitted_s > 0)
        works_s.append((steps.fitted_s * slowdowns)[counts])
        times_s.append(time_by_active(steps, len(runs))[counts])
    work_s, time_s = np.concatenate(works_s), np.concatenate(times_s)  # (steps,), (steps, most active)
    frequent = (time_s > 0).sum(axis=0) >= MIN_STEPS
    rates = nonnegative(time_s[:, frequent], work_s, work_s)
    factors = np.ones(len(frequent))
    factors[frequent] = np.divide(1.0, rates, out=np.ones_like(rates), where=rates > 0)  # 0: unknown
    return tuple(np.maximum.accumulate(factors).tolist())


def time_by_active(steps: pd.DataFrame, most: int) -> Floats:
    """Return for each step how long 1, 2, ... `most` steps were active while it ran; shape (steps, most)."""
    begun_s, ended_s = steps.begun_s.to_numpy(), steps.ended_s.to_numpy()
    bounds_s = np.sort(np.concatenate([begun_s, ended_s]))
    active = np.searchsorted(np.sort(begun_s), bounds_s, side="right") - np.searchsorted(
        np.sort(ended_s), bounds_s, side="right"
    )  # from each bound to the next
    spans_s = np.diff(bounds_s, append=bounds_s[-1])
    columns = []
    for count in range(1, most + 1):
        counted = (active == count) if count < most else (active >= count)
        until_s = np.concatenate([[0.0], np.cumsum(spans_s * counted)])  # time with `count` active before each bound
        columns.append(until_s[np.searchsorted(bounds_s, ended_s)] - until_s[np.searchsorted(bounds_s, begun_s)])
    return np.stack(columns, axis=1)


MIN_DELAYS = 20  # values from which a delay has a distribution of its own
TIMED_MESSAGES = {"Draft": "draft", "DraftRequest": "draft-request"}  # messages that show the link, and their events


def delays_of(runs: Sequence[Run], drafters: bool) -> StationDelays:
    """Return the delays of all drafters of some runs, or of all targets, without the first ones of each station."""
    stations = [station for run in runs for station in delays_in(run).items()]
    of_kind = [delays for name, delays in stations if name.startswith(DRAFTER) == drafters]
    return StationDelays(
        *([time_s for delays in of_kind for time_s in getattr(delays, name)[SETTLING_STEPS:]] for name in DELAYS)
    )


DELAYS = StationDelays.__struct_fields__


def overhead_of(delays: StationDelays) -> Overhead:
    """Return the overhead of a station.

    Where too few steps were queued, or too few woken, the distribution of all starts stands for theirs.
    """
    starts_s = delays.queued_s + delays.woken_s
    queued_s = delays.queued_s if len(delays.queued_s) >= MIN_DELAYS else starts_s
    woken_s = delays.woken_s if len(delays.woken_s) >= MIN_DELAYS else starts_s
    # An engine drafts in the same step as it verifies, and the border of the two takes no time. Drawn as a delay of the
    # next step, 0 would let it start before the request that follows a result.
    spread = delay_of([time_s for time_s in queued_s if time_s > 0]).spread
    queued = msgspec.structs.replace(delay_of(queued_s), spread=spread)
    return Overhead(queued, delay_of(woken_s), delay_of(delays.after_s))


def delay_of(times_s: ArrayLike) -> Delay:
    """Return the mean of some times in seconds, and how they spread around it."""
    times = np.asarray(times_s, dtype=float)
    mean_s = float(times.mean()) if times.size else 0.0
    return Delay(mean_s, spread_of(times / mean_s)) if mean_s else Delay()


def link_of(runs: Sequence[Run], pinged: LinkTime) -> LinkTime:
    """Return the link, one way: latency and jitter of drafts and requests in some runs, bandwidth of round trips."""
    ways_s = [
        way_s
        for run in runs
        for (_, kind, *_), of_message in playback_of(run, ()).ways_s.items()
        if kind in TIMED_MESSAGES
        for way_s in of_message
    ]
    rows = pd.concat([run.frame() for run in runs])
    sizes_bytes = rows[rows.event.isin(list(TIMED_MESSAGES.values()))].payload_bytes
    way = delay_of(ways_s)
    latency_s = max(way.mean_s - float(sizes_bytes.mean()) * pinged.s_per_byte, 0.0)
    return LinkTime(latency_s, pinged.bandwidth_bytes_per_s, way.spread)
