"""From measurements to a profile: step fits, what fleets showed, and what a reader needs to judge both."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from calibrate.acceptance import describe_acceptance
from calibrate.contention import factors_in
from calibrate.core_waits import before_starts, core_waits_in
from calibrate.fits import Point, Residual, fit_link, fit_step, spread_of
from calibrate.idle import fit_idle, with_recoveries, without_idleness
from calibrate.inservice import FleetSetup, Rounds, rounds_in, spread_numbers
from calibrate.load import at_one_level, fit_recent_load, spread_in_service
from calibrate.reference import at_pace
from calibrate.turns import turns_in
from calibrate.under_way import links_under_way, with_bandwidth
from fleet.chance.acceptance import Recorded
from fleet.records.paces import paces_of
from fleet.records.run import Run
from fleet.scenario.names import verifier_name
from fleet.times.effects import Turns
from fleet.times.pace import Pace, slowness_at
from fleet.times.profile import HardwareProfile

Floats = NDArray[np.float64]
Points = dict[str, list[Point]]
"""Measured points of each kind of step, by the names of a profile."""

GAP_BINS = 8


class Measured(msgspec.Struct, frozen=True):
    """What a calibration measured.

    `loaded`: fleets by how many targets loaded the drafter, None for a saturated one; `idling`: some with all lengths
    of gaps; `warmed`: by warm-up tokens. `turns[k-1]`, `contended[k-1]`: k real targets and their drafter on one
    device; `plain`: a target that decodes by itself. `round_trips_s`: by payload in bytes. `accepted`: accepted
    lengths of the rounds of each prompt.
    """

    points: Points
    loaded: list[tuple[int | None, Run]]
    idling: list[Run]
    warmed: list[tuple[int, Run]]
    turns: list[Run]
    one_process: Run
    contended: list[Run]
    plain: Run
    round_trips_s: list[tuple[int, list[float]]]
    accepted: list[list[int]]


def profile_from(measured: Measured, setup: FleetSetup) -> HardwareProfile:
    """Return the profile that the measurements give, referred to their typical pace; `setup` holds the final fits."""

    def rounds_of(run: Run) -> Rounds:
        return rounds_in(run, setup.times["draft"], setup.control_s)

    busy = [rounds_of(run) for targets, run in measured.loaded if targets is None]
    idling = [rounds_of(run) for run in measured.idling]
    pausing = [*idling, *(rounds_of(run) for targets, run in measured.loaded if targets is not None)]
    idle = fit_idle([*busy, *pausing])
    warm = [without_idleness(rounds, idle) for rounds in [*busy, *pausing]]
    effect = fit_recent_load(warm)
    level = at_one_level(warm)
    turnarounds_s = np.concatenate([rounds.turnaround_s for rounds in level[: len(busy)]])
    wake_ups_s, dispatches_s = (
        np.concatenate([getattr(rounds, name) for rounds in level]) for name in ("wake_up_s", "dispatch_s")
    )
    link, busy_link = links_under_way([rounds.returns for rounds in level], idle)
    slowness = float(np.median(np.concatenate([rounds.slowness for rounds in [*busy, *pausing]])))
    payloads_bytes, round_trips_s = zip(*measured.round_trips_s, strict=True)
    pinged = fit_link(payloads_bytes, round_trips_s)

    def turns_of(run: Run) -> Turns:
        turns = turns_in(run, setup, idle)
        return msgspec.structs.replace(turns, link=turns.link and with_bandwidth(turns.link, pinged))

    turns = [turns_of(run) for run in measured.turns]
    depth = setup.scenario.drafters.depth
    profile = HardwareProfile(
        name="calibrated",
        draft=msgspec.structs.replace(setup.times["draft"], spread=spread_in_service(effect, warm)),
        verify=setup.times["verify"],
        decode=setup.times["decode"],
        draft_prefill=setup.times["draft_prefill"],
        verify_prefill=setup.times["verify_prefill"],
        turnaround_s=float(turnarounds_s.mean()),
        dispatch_s=float(dispatches_s.mean()),
        decode_turnaround_s=decode_turnaround_s(measured.plain, setup.control_s),
        wake_up_s=float(wake_ups_s.mean()),
        delay_spread=spread_of(np.concatenate([times / times.mean() for times in (turnarounds_s, wake_ups_s)])),
        link=with_bandwidth(link, pinged),
        busy_link=busy_link and with_bandwidth(busy_link, pinged),
        idle=with_recoveries(idle, [(tokens, rounds_of(run)) for tokens, run in measured.warmed]),
        recent_load=effect,
        core_waits=core_waits_in([run for _, run in measured.loaded] + measured.idling),
        turns=tuple(turns),
        one_process=turns_of(measured.one_process),
        contention=factors_in(measured.contended, setup, [*turns, turns[-1]]),
        acceptance=Recorded(depth, tuple(map(tuple, measured.accepted))),
        control_s=setup.control_s,
        measured=tables_of(measured.points)
        | {
            "round_trips": [{"payload_bytes": size} | spread_numbers(times) for size, times in measured.round_trips_s],
            "idle": [
                {"gap_s": float(gap_s.mean())} | spread_numbers(draft_s) for gap_s, draft_s in by_gap(busy, idling)
            ],
            "warm_up": [
                {"warm_tokens": tokens} | spread_numbers(rounds_of(run).paced_s) for tokens, run in measured.warmed
            ],
            "turnaround": spread_numbers(turnarounds_s),
            "wake_up": spread_numbers(wake_ups_s),
            "dispatch": spread_numbers(dispatches_s),
            "acceptance": describe_acceptance(measured.accepted, depth),
        },
    )
    return at_pace(profile, slowness)


def decode_turnaround_s(plain: Run, control_s: float) -> float:
    """Return the mean time from the end of a plain decoding step to the start of the next, at the reference pace.

    Waits for a core are not in it. 0 where no two of them follow each other.
    """
    rows = plain.frame().sort_values("seq")
    pace = paces_of(plain, control_s).get(verifier_name(0), Pace((1.0,)))
    starts = rows[(rows.event == "start") & (rows.kind == "decode")].set_index("step")
    starts_s = starts.time_s - before_starts(plain).xs(verifier_name(0)).reindex(starts.index)
    ends = rows[(rows.event == "done") & (rows.kind == "decode")].set_index("step").time_s
    gaps_s = starts_s.reindex(ends.index + 1).to_numpy() - ends.to_numpy()
    known = ~np.isnan(gaps_s)
    return float((gaps_s / slowness_at(pace, ends.to_numpy()))[known].mean()) if known.any() else 0.0


def merged(known: Sequence[Point], measured: Sequence[Point]) -> list[Point]:
    """Return the points of two passes over one grid as points of both."""
    if not known:
        return list(measured)
    return [Point(a.tokens, a.context, a.times_s + b.times_s) for a, b in zip(known, measured, strict=True)]


def by_gap(busy: Sequence[Rounds], idling: Sequence[Rounds]) -> list[tuple[Floats, Floats]]:
    """Group drafts by the gap before them, at the reference pace: the saturated runs, then bins of the idling ones."""
    (busy_gaps_s, busy_s), (gaps_s, paced_s) = (
        (np.concatenate([rounds.gap_s for rounds in runs]), np.concatenate([rounds.paced_s for rounds in runs]))
        for runs in (busy, idling)
    )
    order = np.array_split(np.argsort(gaps_s), GAP_BINS)
    return [(busy_gaps_s, busy_s), *((gaps_s[part], paced_s[part]) for part in order)]


def tables_of(points: Mapping[str, Sequence[Point]]) -> dict[str, Any]:
    """Raw quantiles and residual of every grid point of each kind of step."""
    return {name: _table(of_name, fit_step(of_name)[1]) for name, of_name in points.items()}


def _table(points: Sequence[Point], residuals: Sequence[Residual]) -> list[dict[str, Any]]:
    """Raw quantiles and residual of every grid point."""
    return [
        {
            "tokens": point.tokens,
            "context": point.context,
            "quantiles_s": np.quantile(point.times_s, (0.1, 0.5, 0.9)).tolist(),
            "fitted_s": residual.fitted_s,
            "held_out": residual.held_out,
        }
        for point, residual in zip(points, residuals, strict=True)
    ]
