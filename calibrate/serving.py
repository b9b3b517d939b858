"""Calibrate a target that drafts on its own device: its steps as it serves them, by rows and parts of prompts.

Small closed loops on calibration prompts, with drafts and without, alternate between numbers of rows.
"""

import datetime
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from calibrate.answers import fit_answers, untold
from calibrate.overheads import delays_of, overhead_of
from calibrate.pass_laws import fit_aligned, fit_passes
from engine.decoding.telemetry import host_facts
from engine.launch.serve import serve
from fleet.acceptance.models import Recorded
from fleet.acceptance.signals import SIGNALS_FILE, write_signals
from fleet.policies.aligned import SameLength
from fleet.records.run import Run
from fleet.scenario.provenance import provenance_of
from fleet.scenario.scenario import Scenario, needs_of
from fleet.times.overhead import Overheads, StationOverheads
from fleet.times.profile import HardwareProfile

Report = Callable[[str], None]
RunOn = Callable[[Scenario], Run]
"""Runs a scenario on an engine."""

ROWS = (1, 4, 16, 64)  # up to what a target runs at once
REQUESTS = 12  # of a loop, at least; three for each row


class Effort(msgspec.Struct, frozen=True):
    """How much to measure: passes over all numbers of rows, and requests whose acceptance is recorded.

    Several passes let a slow minute of the host fall on all of them. Means of acceptance over 192 requests still differ
    by 5 % between sets of prompts.
    """

    passes: int = 4
    recorded: int = 384


WHOLE, QUICK = Effort(), Effort(2, 96)


def stages_of(scenario: Scenario, passes: int) -> list[tuple[int, int]]:
    """Return the pass and the rows of each loop, in order."""
    most = min(scenario.verifiers.max_num_seqs, ROWS[-1])
    return [(number, rows) for number in range(passes) for rows in (*(few for few in ROWS if few < most), most)]


def calibrate_serving(
    scenario: Scenario,
    folder: Path,
    report: Report = lambda _stage: None,
    effort: Effort = WHOLE,
    run_on: RunOn | None = None,
    depths: Sequence[int] = (),
) -> HardwareProfile:
    """Measure a target of the scenario on this host, on the scenario's prompts, with its drafts and without.

    `folder` gets `signals.parquet`, the signals of every drafted token, where drafts are chains of a model's tokens.
    `run_on` runs the loops on another engine, which has no signals. `depths`: those of the loops, in place of
    `depths_of`.
    """
    signals, runs = needs_of(scenario) == "signals", list[Run]()
    for number, rows in stages_of(scenario, effort.passes):
        report(f"{rows} requests at once, pass {number + 1} of {effort.passes}")
        for depth in depths or depths_of(scenario):
            loop = loop_of(scenario, rows, depth, number)
            runs.append(run_on(loop) if run_on else serve(loop, signals=signals and depth > 0).run)
    if not scenario.drafters.count:
        return profile_of_target(scenario, runs)
    report("acceptance")
    if run_on:
        return profile_of_target(scenario, runs, run_on(recording_loop(scenario, effort.recorded)))
    return profile_of_target(scenario, runs, record_acceptance(scenario, folder, effort.recorded))


def depths_of(scenario: Scenario) -> tuple[int, ...]:
    """Return the depths of the loops of each pass; 0 is plain decoding, which aligned rows do without.

    Drafts have the scenario's depth, or a quarter: one depth cannot part tokens from fixed times, and depths of
    different passes would be parted by the host's speed.
    """
    depth = scenario.drafters.depth
    drafted = tuple(dict.fromkeys((depth, depth // 4 or 1))) if scenario.drafters.count else ()
    return (*drafted, *(() if scenario.verifiers.aligned else (0,)))


def loop_of(scenario: Scenario, rows: int, depth: int, seed: int) -> Scenario:
    """Return a closed loop of so many requests at once at one target; `depth`: of drafts, 0 for none.

    Of aligned rows, all requests wait from the beginning.
    """
    replace, place = msgspec.structs.replace, scenario.drafters.place if depth else "own"
    allocate, aligned = scenario.verifiers.allocate, scenario.verifiers.aligned
    if isinstance(aligned, SameLength):
        aligned = replace(aligned, window=3 * rows)
    requests, size = max(REQUESTS, 3 * rows), rows if aligned else scenario.verifiers.max_num_seqs
    return replace(
        scenario,
        seed=seed,
        drafters=replace(scenario.drafters, count=int(depth > 0), place=place, depth=depth or scenario.drafters.depth),
        verifiers=replace(
            scenario.verifiers, count=1, allocate=allocate if depth else None, aligned=aligned, max_num_seqs=size
        ),
        workload=replace(scenario.workload, requests=requests, streams=requests if aligned else rows, arrivals=None),
    )


def recording_loop(scenario: Scenario, requests: int) -> Scenario:
    """Return a loop over so many calibration prompts with drafts of the scenario's depth."""
    rows = min(scenario.verifiers.max_num_seqs, ROWS[-1])
    recorded = loop_of(scenario, rows, scenario.drafters.depth, scenario.seed)
    replace = msgspec.structs.replace
    return replace(
        recorded,
        # What a draft is worth is no matter of the rows' alignment; one rule throws accepted tokens away.
        verifiers=replace(recorded.verifiers, aligned=None, allocate=None),
        workload=replace(recorded.workload, requests=requests, streams=min(rows, requests - 1)),
    )


def record_acceptance(scenario: Scenario, folder: Path, requests: int) -> Run:
    """Decode so many calibration prompts with drafts of the scenario's depth; return the run."""
    recorded, drafters = recording_loop(scenario, requests), scenario.drafters
    signals = drafters.shape.kind == "chain" and drafters.kind != "lookup"
    served = serve(recorded, signals=signals)
    if signals:
        write_signals(list(served.signals.values()), folder / SIGNALS_FILE)
    return served.run


def profile_of_target(scenario: Scenario, runs: Sequence[Run], recorded: Run | None = None) -> HardwareProfile:
    """Return the profile that the loops give; all of them are of one scenario, with drafts and without.

    - `recorded`: the run that has the acceptance; left out, the loops with the deepest drafts.
    """
    fit = fit_aligned if scenario.verifiers.aligned else fit_passes
    seen, facts = all(run.header.steps for run in runs), host_facts()
    fitted = fit(runs, scenario.drafters.shape) if seen else fit_answers(runs)
    laws: dict[str, Any] = fitted.laws
    depths = [drafts.depth * min(drafts.count, 1) for drafts in (run.header.fleet.drafters for run in runs)]
    accepted = tuple(accepted_in([recorded] if recorded else runs))
    return HardwareProfile(
        name=f"calibrated-serving-{facts['machine']}",
        overhead=Overheads(StationOverheads(target=overhead_of(delays_of(runs, drafters=False))))
        if seen
        else Overheads(),
        acceptance=Recorded(scenario.drafters.depth, accepted) if accepted else None,
        positions=runs[0].header.fleet.drafters.positions,
        provenance=facts
        | ({"engine": runs[0].header.engine} if runs[0].header.engine else {})
        | {"written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}
        | provenance_of(scenario),
        measured={"steps": fitted.fits, "passes_differ": fitted.apart},
        sources={} if seen else untold(list(dict.fromkeys(depths))),
        **laws,
    )


def accepted_in(runs: Sequence[Run]) -> Iterator[tuple[int, ...]]:
    """Yield the accepted tokens of each request's rounds, of the deepest drafts."""
    deepest = max(run.header.fleet.drafters.depth for run in runs)
    for run in runs:
        if run.header.fleet.drafters.depth < deepest:
            continue
        rounds = run.frame().query("event == 'done' and kind == 'verify'")
        yield from (tuple(own.accepted.tolist()) for _, own in rounds.groupby("request"))
