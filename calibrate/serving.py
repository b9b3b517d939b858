"""Calibrate a target that drafts on its own device: its steps as it serves them, by rows and parts of prompts.

Small closed loops on calibration prompts, with drafts and without, show steps of one kind. The law of mixed steps
(`fleet/times/mixed.py`) adds these; how far it misses the mixed steps of the same loops stands in the profile.
"""

import datetime
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from calibrate.fits import fit_batch_step
from calibrate.overheads import delays_of, overhead_of
from engine.decoding.telemetry import host_facts
from engine.launch.serve import serve
from fleet.acceptance.models import Recorded
from fleet.records.delayed import not_delayed
from fleet.records.replay import replay_stations
from fleet.records.run import Run
from fleet.scenario.provenance import provenance_of
from fleet.scenario.scenario import Scenario
from fleet.stations.build import stations
from fleet.stations.messages import Instruction, StationEvent, StepDone
from fleet.stations.station import Station
from fleet.times.durations import extent, nodes_of
from fleet.times.mixed import extent_of, parts_of_draft, pass_s, together_s
from fleet.times.overhead import Overhead, Overheads, StationOverheads
from fleet.times.profile import STEPS, HardwareProfile
from fleet.times.station_times import VerifierTimes
from fleet.times.step import Step
from fleet.times.step_time import StepTime

Report = Callable[[str], None]
Served = list[tuple[Step, StepDone]]

ROWS = (1, 4, 16, 64)
LEAST_REQUESTS = 12  # of a loop


class ServingEffort(msgspec.Struct, frozen=True):
    """How much to measure: passes over all numbers of rows, and requests of each pass's largest loop."""

    passes: int = 3
    recorded: int = 192

    def rows(self, scenario: Scenario) -> tuple[int, ...]:
        """Return the numbers of rows that a target of the scenario can run at once, up to the largest of ROWS."""
        most = min(scenario.verifiers.max_num_seqs, ROWS[-1])
        return (*(rows for rows in ROWS if rows < most), most)

    def stages(self, scenario: Scenario) -> list[str]:
        """Return the names of the stages, in order."""
        every = [f"loops of {rows} requests" for rows in self.rows(scenario)]
        return [f"{stage}, pass {number} of {self.passes}" for number in range(1, self.passes + 1) for stage in every]


WHOLE, QUICK = ServingEffort(), ServingEffort(passes=1, recorded=96)


def calibrate_serving(
    scenario: Scenario, folder: Path, report: Report = lambda _stage: None, effort: ServingEffort = WHOLE
) -> HardwareProfile:
    """Measure a target of the scenario on this host, on the scenario's prompts, with its drafts and without."""
    runs: list[Run] = []
    stages = iter(effort.stages(scenario))
    for number in range(effort.passes):
        for rows in effort.rows(scenario):
            report(next(stages))
            largest = rows == effort.rows(scenario)[-1]
            requests = max(3 * rows, effort.recorded if largest else LEAST_REQUESTS)
            runs += [serve(loop_of(scenario, rows, requests, count, number), folder).run for count in (1, 0)]
    return profile_of_target(scenario, runs)


def loop_of(scenario: Scenario, rows: int, requests: int, drafters: int, seed: int) -> Scenario:
    """Return a closed loop of so many requests at once at one target, with or without drafts."""
    replace = msgspec.structs.replace
    place = scenario.drafters.place if drafters else "own"
    return replace(
        scenario,
        seed=seed,
        drafters=replace(scenario.drafters, count=drafters, place=place),
        verifiers=replace(scenario.verifiers, count=1, allocate=scenario.verifiers.allocate if drafters else None),
        workload=replace(scenario.workload, requests=requests, streams=rows, arrivals=None),
    )


def profile_of_target(scenario: Scenario, runs: Sequence[Run]) -> HardwareProfile:
    """Return the profile that the loops give; all of them are of one scenario, with drafts and without."""
    steps = [pair for run in runs for pair in warm(served_steps(run))]
    drafts = [(step, *parts_of_draft(step, drafted_in(step, done)), done.duration_s) for step, done in steps
              if step.kind in ("draft", "draft_prefill")]  # fmt: skip
    places = {
        name: [
            (extent(step, tokens=nodes_in(step, scenario)), done.duration_s)
            for step, done in steps
            if step.kind in kinds
        ]
        for name, kinds in (("verify", ["verify"]), ("decode", ["decode"]), ("verify_prefill", ["prefill", "chunk"]))
    }
    places["draft"] = [(extent_of(rows), time_s) for _, read, rows, time_s in drafts if rows and not read]
    times, fits = dict[str, Any](draft=StepTime()), dict[str, Any]()  # prompt lookup may find nothing
    for name in STEPS:
        if name == "draft_prefill":  # mostly beside drafts
            alone = [
                (read, time_s - (together_s(times["draft"], rows) if rows else 0.0))
                for _, read, rows, time_s in drafts
                if len(read) == 1
            ]
            places[name] = [(extent_of(read), time_s) for read, time_s in alone if time_s > 0]
        if places[name]:
            times[name], fits[name] = fitted(places[name])
    facts = host_facts()
    profile = HardwareProfile(
        name=f"calibrated-serving-{facts['machine']}",
        **times,
        overhead=Overheads(StationOverheads(target=overhead_of(delays_of(runs, drafters=False)))),
        acceptance=Recorded(scenario.drafters.depth, tuple(accepted_in(runs))),
        positions=runs[0].header.fleet.drafters.positions,
        provenance=facts
        | {"written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}
        | provenance_of(scenario),
    )
    mixed = [(step, done.duration_s) for step, done in steps if step.kind == "mixed"]
    measured = {"steps": fits} | ({"mixed": mixed_error(profile, scenario, mixed)} if mixed else {})
    return msgspec.structs.replace(profile, measured=measured)


def fitted(places: Sequence[tuple[tuple[int, ...], float]]) -> tuple[StepTime, dict[str, Any]]:
    """Return the law of single steps by their extents, and how well it fits."""
    extents, times_s = zip(*places, strict=True)
    time, error = fit_batch_step(extents, times_s)
    quantiles_s = np.quantile(times_s, (0.1, 0.5, 0.9)).tolist()
    return time, {"steps": len(times_s), "quantiles_s": quantiles_s, "mean_absolute_error": error}


def accepted_in(runs: Sequence[Run]) -> Iterator[tuple[int, ...]]:
    """Yield the accepted tokens of each request's rounds."""
    for run in runs:
        rounds = run.frame().query("event == 'done' and kind == 'verify'")
        yield from (tuple(own.accepted.tolist()) for _, own in rounds.groupby("request"))


def mixed_error(profile: HardwareProfile, scenario: Scenario, steps: Sequence[tuple[Step, float]]) -> dict[str, float]:
    """Return how far the law of mixed steps, which none of them shaped, misses their measured times."""
    times = VerifierTimes(0, profile.verify, profile.verify_prefill, profile.decode, Overhead())
    ratios = not_delayed([time_s / pass_s(times, step, scenario.drafters.shape) for step, time_s in steps])
    return {"steps": len(steps), "bias": float(ratios.mean() - 1), "mean_absolute_error": float(abs(ratios - 1).mean())}


def nodes_in(step: Step, scenario: Scenario) -> list[int] | None:
    """Return the nodes of each verified draft, if they are more than its levels."""
    return nodes_of(step, scenario.drafters.shape) if step.kind == "verify" else None


def drafted_in(step: Step, done: StepDone) -> list[int]:
    """Return the draft tokens of each row of a draft: prompt lookup finds fewer than planned."""
    pairs = zip(step.members, done.outcomes, strict=True)
    return [outcome.drafted if outcome.drafted >= 0 else member.tokens for member, outcome in pairs]


def warm(steps: Served) -> Iterator[tuple[Step, StepDone]]:
    """Yield the steps without the first one of each kind, which is cold."""
    begun: set[str] = set()
    for step, done in steps:
        if step.kind in begun:
            yield step, done
        begun.add(step.kind)


def served_steps(run: Run) -> Served:
    """Return the finished steps of a run's one station, from its log."""
    noted = {name: _Noted(station) for name, station in stations(run.header.fleet).items()}
    replay_stations(run, noted)  # type: ignore[arg-type]  # it behaves as the station within
    return [pair for station in noted.values() for pair in station.served]


class _Noted:
    """Wraps a station and notes its finished steps."""

    def __init__(self, station: Station) -> None:
        self.station = station
        self.served: Served = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.station, name)

    def handle(self, event: StationEvent, now_s: float) -> list[Instruction]:
        """Note the step that ends."""
        if isinstance(event, StepDone) and self.station.running is not None:
            self.served.append((self.station.running, event))
        return self.station.handle(event, now_s)
