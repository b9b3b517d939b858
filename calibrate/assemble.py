"""Builds a profile from measurements: step fits, results of small fleets, and their provenance."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from msgspec import UNSET
from numpy.typing import ArrayLike

from specfleet.calibration.answers import fit_answers, not_separated
from specfleet.calibration.effects import (
    delays_of,
    factors_in,
    fit_idle,
    link_of,
    overhead_of,
    slowdowns_of,
    with_recoveries,
)
from specfleet.calibration.fleets import FleetSetup, steps_in
from specfleet.calibration.laws import Fitted, fit, fit_bandwidth, spread_of, timed_steps
from specfleet.calibration.measurements import Measurements
from specfleet.calibration.stages import provenance_of
from specfleet.engine.decoding.telemetry import host_facts
from specfleet.fleet.acceptance.models import Recorded
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.delays import not_delayed
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.labels import Missing
from specfleet.fleet.times.overhead import Overheads, StationOverheads
from specfleet.fleet.times.profile import STEPS, HardwareProfile
from specfleet.fleet.times.step_time import LinkTime, StepTime


def fitted_steps_of(scenario: Scenario, runs: Sequence[Run]) -> Fitted:
    """Return the laws of the loops of a scenario, by their steps, or by their answers where no more is seen."""
    if not all(run.header.steps for run in runs):
        return fit_answers(runs)
    steps = [step for run in runs for step in timed_steps(run)]
    return fit(steps, scenario.drafters.shape, scenario.verifiers.aligned is not None)


def profile_of_target(
    scenario: Scenario,
    runs: Sequence[Run],
    recorded: Run | None = None,
    left_out: Mapping[Missing, str] = {},
    host: Mapping[str, str] | None = None,
) -> HardwareProfile:
    """Return the profile that loops give; all of them are of one scenario, with drafts and without.

    - `recorded`: the run that has the acceptance; without it, the loops with the deepest drafts.
    - `left_out`: what was not measured, with the reasons.
    - `host`: facts of the host and of the measurement; None reads those of this one.
    """
    seen, facts = all(run.header.steps for run in runs), dict(host or host_facts() | provenance_of(scenario))
    fitted = fitted_steps_of(scenario, runs)
    laws: dict[str, Any] = fitted.laws
    depths = [drafts.depth * min(drafts.count, 1) for drafts in (run.header.fleet.drafters for run in runs)]
    accepted = tuple(accepted_in([recorded] if recorded else runs))
    finds = seen and (scenario.drafters.finds or bool(recorded and scenario.drafters.first))
    drafted = tuple(accepted_in([recorded] if recorded else runs, "tokens")) if finds else ()
    longest = max((length for session in accepted for length in session), default=0)
    if longest > scenario.drafters.depth:
        raise InputError(
            f"answers: a chunk has {longest + 1} tokens, and a round {scenario.drafters.depth + 1} at most; let the "
            "server send every step's tokens by themselves"
        )
    return HardwareProfile(
        name=f"calibrated-{facts['machine']}",
        overhead=Overheads(StationOverheads(target=overhead_of(delays_of(runs, drafters=False))))
        if seen
        else Overheads(),
        acceptance=Recorded(scenario.drafters.depth, accepted, drafted) if accepted else None,
        positions=runs[0].header.fleet.drafters.positions,
        one_pass=scenario.drafters.kind == "block" or UNSET,
        provenance=facts | ({"engine": runs[0].header.engine} if runs[0].header.engine else {}),
        measured={"steps": fitted.fits, "passes_differ": fitted.apart}
        | ({"left_out": dict(left_out)} if left_out else {}),
        sources={} if seen else not_separated(list(dict.fromkeys(depths)), scenario.workload.prompt_tokens),
        **laws,
    )


def accepted_in(runs: Sequence[Run], column: str = "accepted") -> Iterator[tuple[int, ...]]:
    """Yield the accepted tokens of each request's rounds, of the deepest drafts. `column`: tokens, for the drafted."""
    deepest = max(run.header.fleet.drafters.depth for run in runs)
    for run in runs:
        if run.header.fleet.drafters.depth < deepest:
            continue
        done = run.frame().query("event == 'done'")
        if run.header.fleet.drafters.first:  # 0 where the drafter drafted
            keys = pd.MultiIndex.from_frame(done[["request", "epoch"]])
            done = done.assign(tokens=done.tokens.where(keys.isin(keys[done.flag]), 0))
        rounds = done.query("kind == 'verify'")
        yield from (tuple(session[column].tolist()) for _, session in rounds.groupby("request"))


def profile_of_pair(target: HardwareProfile, measured: Measurements, scenario: Scenario) -> HardwareProfile:
    """Return the profile of a pair with devices of its own.

    - `target`: what its loops give.
    - `scenario`: of its small fleets.

    InputError without accepted lengths: targets refused every draft of a sampled fleet.
    """
    if target.acceptance is None:
        raise InputError("acceptance: no draft was verified; give models of one tokenizer, or workload.temperature = 0")
    setup = FleetSetup(scenario, {name: getattr(target, name) for name in STEPS})
    concurrent, in_turn = measured.of("contended"), measured.of("turns")
    drafting = [*measured.of("saturated"), *(with_gaps := measured.of("with_gaps"))]
    delays = delays_of(drafting, drafters=True)
    own = StationOverheads(
        overhead_of(delays), overhead_of(delays_of(concurrent[:1] or measured.of("loops"), drafters=False))
    )
    sliced = StationOverheads(*(overhead_of(delays_of(in_turn, drafters)) for drafters in (True, False)))
    drafts = pd.concat([steps_in(run, setup) for run in drafting], ignore_index=True)
    idle = fit_idle(drafts, float(np.median(delays.queued_s or [0.0])))
    ratios = {"draft": drafts.ratio / slowdowns_of(drafts, idle)}
    alone = [run for run in measured.of("loops") if run.header.fleet.streams == 1]
    showing = {"verify": concurrent[:1] or alone, "decode": alone, "verify_prefill": alone, "draft_prefill": drafting}
    ratios |= {name: pd.concat([steps_in(run, setup, name).ratio for run in runs]) for name, runs in showing.items()}
    times: dict[str, Any] = setup.times | {name: in_service(setup.times[name], own) for name, own in ratios.items()}
    delayed = sum(len(of_kind) - not_delayed(of_kind).size for of_kind in ratios.values())
    pinged = LinkTime(bandwidth_bytes_per_s=fit_bandwidth(*zip(*measured.round_trips_s, strict=True)))
    rules = [(run, run.header.scenario.drafters.warm_up) for run in measured.of("warmed")]
    warmed = [(getattr(rule, "tokens", 0), steps_in(run, setup)) for run, rule in rules]
    factors = factors_in(concurrent, FleetSetup(scenario, times), idle) if concurrent else (1.0,)
    return msgspec.structs.replace(
        target,
        **times,
        overhead=Overheads(own, sliced if in_turn else None),
        link=link_of(with_gaps, pinged),
        idle=with_recoveries(idle, warmed),
        contention=tuple(factor / factors[0] for factor in factors),  # a step that runs alone takes its own time
        measured=target.measured
        | {"delayed_share": delayed / max(sum(map(len, ratios.values())), 1)}
        | ({"alone": factors[0]} if concurrent else {}),
    )


def in_service(time: StepTime, ratios: ArrayLike) -> StepTime:
    """Return the time of a step as it is in service: with the mean and the spread of measured over fitted times.

    Steps that the host delayed do not count. Without any step, or with a law of no time, it stays.
    """
    kept = not_delayed(np.asarray(ratios, dtype=float)[np.isfinite(ratios)])
    if not kept.size:
        return time
    return msgspec.structs.replace(time.slowed(float(kept.mean())), spread=spread_of(kept))
