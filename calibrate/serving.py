"""Calibrate a target that drafts on its own device: its steps as it serves them, by rows and parts of prompts.

Small closed loops on calibration prompts, with drafts and without, alternate between numbers of rows. The laws of
verification, decoding and prefill are fitted together, as `fleet/times/mixed.py` adds them, with one fixed time for a
pass; so are the drafter's, which reads prompts one by one.
"""

import datetime
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from calibrate.fits import columns_of, fit_relative, law_from, spread_of
from calibrate.overheads import delays_of, overhead_of
from calibrate.steadiness import passes_differ
from engine.decoding.telemetry import host_facts
from engine.launch.serve import serve
from fleet.acceptance.models import Recorded
from fleet.policies.shapes import Shape
from fleet.records.replay import replay_stations
from fleet.records.run import Run
from fleet.scenario.provenance import provenance_of
from fleet.scenario.scenario import Scenario
from fleet.stations.build import stations
from fleet.stations.messages import Instruction, StationEvent, StepDone
from fleet.stations.station import Station
from fleet.times.mixed import Part, extent_of, parts_of, parts_of_draft
from fleet.times.overhead import Overheads, StationOverheads
from fleet.times.profile import HardwareProfile
from fleet.times.step import Step
from fleet.times.step_time import StepTime

Report = Callable[[str], None]

ROWS = (1, 4, 16, 64)  # up to what a target runs at once
REQUESTS = 12  # of a loop, at least; three for each row
QUICK_PASSES, PASSES = 2, 5  # over all numbers of rows, so that a slow minute of the host falls on all of them
LAWS = {"target": ("verify", "decode", "verify_prefill"), "drafter": ("draft", "draft_prefill")}
SURE = 20  # steps of a kind in a pass whose mean counts
WIDTH = 9  # coefficients of a law
DRAFTING, PREFILLS = ("draft", "draft_prefill"), ("verify_prefill", "draft_prefill")


def stages_of(scenario: Scenario, passes: int) -> list[tuple[int, int]]:
    """Return the pass and the rows of each loop, in order."""
    most = min(scenario.verifiers.max_num_seqs, ROWS[-1])
    return [(number, rows) for number in range(passes) for rows in (*(few for few in ROWS if few < most), most)]


def calibrate_serving(scenario: Scenario, folder: Path, report: Report, passes: int = PASSES) -> HardwareProfile:
    """Measure a target of the scenario on this host, on the scenario's prompts, with its drafts and without."""
    runs: list[Run] = []
    for number, rows in stages_of(scenario, passes):
        report(f"{rows} requests at once, pass {number + 1} of {passes}")
        runs += [serve(loop_of(scenario, rows, depth, number), folder).run for depth in (depth_of(scenario, number), 0)]
    return profile_of_target(scenario, runs)


def depth_of(scenario: Scenario, number: int) -> int:
    """Return the depth of a pass's drafts, the scenario's or half of it: one depth tells no tokens from fixed times."""
    return scenario.drafters.depth // (1 + number % 2) or 1


def loop_of(scenario: Scenario, rows: int, depth: int, seed: int) -> Scenario:
    """Return a closed loop of so many requests at once at one target; `depth`: of drafts, 0 for none."""
    replace, place = msgspec.structs.replace, scenario.drafters.place if depth else "own"
    return replace(
        scenario,
        seed=seed,
        drafters=replace(scenario.drafters, count=int(depth > 0), place=place, depth=depth or scenario.drafters.depth),
        verifiers=replace(scenario.verifiers, count=1, allocate=scenario.verifiers.allocate if depth else None),
        workload=replace(scenario.workload, requests=max(REQUESTS, 3 * rows), streams=rows, arrivals=None),
    )


def profile_of_target(scenario: Scenario, runs: Sequence[Run]) -> HardwareProfile:
    """Return the profile that the loops give; all of them are of one scenario, with drafts and without."""
    steps = [(*pair, run.header.scenario.seed) for run in runs for pair in warm_steps(run)]  # a seed for each pass
    paces: list[list[NDArray[np.float64]]] = []
    times, fits, facts = dict[str, Any](draft=StepTime()), dict[str, Any](), host_facts()
    for side, names in LAWS.items():
        own = [
            (step, done, number, columns)
            for step, done, number in steps
            if any(columns := columns_at(side, step, done, scenario.drafters.shape))
        ]
        times_s, passes = np.array([done.duration_s for _, done, *_ in own]), np.array([each[2] for each in own])
        design = np.array([columns for *_, columns in own])
        if side == "target":  # one fixed time for its three laws
            design[:, 0] = design[:, ::WIDTH].sum(axis=1)
            design[:, WIDTH::WIDTH] = 0
        coefficients, ratios = fit_relative(design, times_s)
        if side == "target":
            coefficients[::WIDTH] = coefficients[0]
        spread = spread_of(ratios)
        for place, name in enumerate(names):
            law = law_from(coefficients[place * WIDTH : (place + 1) * WIDTH], spread)
            if name in PREFILLS:  # of several prompts in one step, each takes its own time
                law = msgspec.structs.replace(law, per_row_token_s=law.per_token_s)
            times[name] = law
        for kind in {step.kind for step, *_ in own}:
            of_kind = np.array([step.kind == kind for step, *_ in own])
            paces.append([ratios[of_kind & (passes == number)] for number in sorted(set(passes.tolist()))])
            fits[kind] = {
                "steps": int(of_kind.sum()), "quantiles_s": np.quantile(times_s[of_kind], (0.1, 0.5, 0.9)).tolist(),
                "mean_absolute_error": float(np.abs(1 / ratios[of_kind] - 1).mean()),
            }  # fmt: skip
    return HardwareProfile(
        name=f"calibrated-serving-{facts['machine']}",
        **times,
        overhead=Overheads(StationOverheads(target=overhead_of(delays_of(runs, drafters=False)))),
        acceptance=Recorded(scenario.drafters.depth, tuple(accepted_in(runs))),
        positions=runs[0].header.fleet.drafters.positions,
        provenance=facts
        | {"written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}
        | provenance_of(scenario),
        measured={
            "steps": fits,
            "passes_differ": passes_differ([each for each in paces if min(map(len, each)) >= SURE]),
        },
    )


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
    return [*(columns_of(*extent_of(rows)) if rows else [0.0] * WIDTH), *read_columns(read, len(read))]


def read_columns(parts: Sequence[Part], passes: int) -> list[float]:
    """Return the variables of parts of prompts with so many fixed times."""
    fed, context = sum(part.fed for part in parts), sum(part.context for part in parts)
    pairs = sum(part.fed * part.context for part in parts)
    return [float(number) for number in (passes, fed, context, pairs, *[0] * (WIDTH - 4))]


def accepted_in(runs: Sequence[Run]) -> Iterator[tuple[int, ...]]:
    """Yield the accepted tokens of each request's rounds, of the deepest drafts."""
    deepest = max(run.header.fleet.drafters.depth for run in runs)
    for run in runs:
        if run.header.fleet.drafters.depth < deepest:
            continue
        rounds = run.frame().query("event == 'done' and kind == 'verify'")
        yield from (tuple(own.accepted.tolist()) for _, own in rounds.groupby("request"))


def warm_steps(run: Run) -> Iterator[tuple[Step, StepDone]]:
    """Yield the finished steps of a run without the first one of each kind, which is cold."""
    noted = {name: _Noted(station) for name, station in stations(run.header.fleet).items()}
    replay_stations(run, noted)  # type: ignore[arg-type]  # it behaves as the station within
    begun: set[str] = set()
    for step, done in [pair for station in noted.values() for pair in station.finished]:
        if step.kind in begun:
            yield step, done
        begun.add(step.kind)


class _Noted:
    """Wraps a station and notes its finished steps."""

    def __init__(self, station: Station) -> None:
        self.station = station
        self.finished: list[tuple[Step, StepDone]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.station, name)

    def handle(self, event: StationEvent, now_s: float) -> list[Instruction]:
        """Note the step that ends."""
        if isinstance(event, StepDone) and self.station.running is not None:
            self.finished.append((self.station.running, event))
        return self.station.handle(event, now_s)
