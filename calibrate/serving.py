"""Calibrate a target that drafts on its own device: its steps as it serves them, by rows and parts of prompts.

Small closed loops on calibration prompts, with drafts and without, alternate between numbers of rows. Engines of others
may run them; of running servers one for each draft length, which a server keeps.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from specfleet.calibration.answers import fit_answers, not_separated
from specfleet.calibration.effects import delays_of, overhead_of
from specfleet.calibration.pass_laws import fit_aligned, fit_passes
from specfleet.calibration.stages import USUAL, Asked, Report, Stage, provenance_of, silent, stages_on_host
from specfleet.engine.decoding.telemetry import host_facts
from specfleet.engine.launch.serve import EngineRun, serve
from specfleet.engine.outside.answers import run_on_server
from specfleet.engine.outside.engines import OutsideEngine, packages_of
from specfleet.fleet.acceptance.models import Recorded
from specfleet.fleet.acceptance.signals import write_signals
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.aligned import SameLength
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.names import Engine
from specfleet.fleet.scenario.scenario import Scenario, needs_of
from specfleet.fleet.scenario.workload import with_arrivals
from specfleet.fleet.times.labels import Missing
from specfleet.fleet.times.overhead import Overheads, StationOverheads
from specfleet.fleet.times.profile import HardwareProfile

ACCEPTANCE = "acceptance"  # the last stage
ROWS = (1, 4, 16, 64)  # up to what a target runs at once
REQUESTS = 12  # of a loop, at least; three for each row
STATED = re.compile(r"(\d{1,4})=(.+)", re.DOTALL)


class Effort(msgspec.Struct, frozen=True):
    """How much to measure: passes over all numbers of rows, and requests whose acceptance is recorded.

    Several passes let a slow minute of the host fall on all of them. Means of acceptance over 192 requests still differ
    by 5 % between sets of prompts.
    """

    passes: int = 4
    recorded: int = 384


WHOLE, QUICK = Effort(), Effort(2, 96)


class Elsewhere(NamedTuple):
    """Another engine that runs the loops.

    - `version`: what tells it apart from others, such as its packages.
    - `depths`: of its loops, where it cannot have those of `depths_of`.
    - `notes`: what did not add up; `run` appends to it.
    """

    run: Callable[[Scenario], Run]
    version: str
    depths: tuple[int, ...] = ()
    notes: list[str] | None = None


def stages_of(scenario: Scenario, passes: int) -> list[tuple[int, int]]:
    """Return the pass and the rows of each loop, in order."""
    most = min(scenario.verifiers.max_num_seqs, ROWS[-1])
    return [(number, rows) for number in range(passes) for rows in (*(few for few in ROWS if few < most), most)]


def calibrate_serving(
    scenario: Scenario,
    signals: Path,
    kept: Path,
    effort: Effort = WHOLE,
    report: Report = silent,
    note: Report = silent,
    elsewhere: Elsewhere | None = None,
    asked: Asked = USUAL,
) -> HardwareProfile:
    """Measure a target of the scenario on this host, on the scenario's prompts, with its drafts and without.

    `signals` gets those of every drafted token, where drafts are chains of a model's tokens.
    `kept` keeps the results of stages; `report`, `note` and `asked` as in `calibrate.run`. `elsewhere`: another engine
    that runs the loops; it has no signals, and room is its own matter.
    """
    version, noted = (elsewhere.version, elsewhere.notes) if elsewhere else ("", None)
    stages = stages_on_host(scenario, effort, kept, report, note, asked, version, noted)
    passes = {pass_name(number, rows, effort): (number, rows) for number, rows in stages_of(scenario, effort.passes)}
    stages.begin([*passes, ACCEPTANCE], [name for name, (_, rows) in passes.items() if rows > ROWS[0]])
    runs, most = list[Run](), ROWS[-1]
    depths = elsewhere.depths if elsewhere and elsewhere.depths else depths_of(scenario)
    for name, (number, rows) in passes.items():
        if rows > most:
            continue
        loops = [loop_of(scenario, rows, depth, number) for depth in depths]
        measure, fewer = partial(run_loops, loops, elsewhere), [few for few in ROWS if few < rows]
        measured = stages.take(Stage(name, measure, list[Run], "rows" if fewer else None))
        if measured is None:
            most = fewer[-1]
        runs += measured or []
    if not scenario.drafters.count:
        return profile_of_target(scenario, runs, None, stages.left_out, stages.provenance)
    loop = recording_loop(scenario, effort.recorded, most)
    recorded = stages.take(Stage(ACCEPTANCE, partial(record_acceptance, loop, elsewhere), EngineRun))
    assert recorded is not None
    if recorded.signals:
        write_signals(list(recorded.signals.values()), signals)
    return profile_of_target(scenario, runs, recorded.run, stages.left_out, stages.provenance)


def pass_name(number: int, rows: int, effort: Effort) -> str:
    """Return the name of a stage: all loops of a pass with so many requests at once."""
    return f"{rows} requests at once, pass {number + 1} of {effort.passes}"


def run_loops(loops: Sequence[Scenario], elsewhere: Elsewhere | None) -> list[Run]:
    """Run loops of one scenario, with drafts of several depths and without, one after the other."""
    if elsewhere:
        return [elsewhere.run(loop) for loop in loops]
    return [serve(loop, signals=loop.drafters.count > 0 and needs_of(loop) == "signals").run for loop in loops]


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
    workload = with_arrivals(scenario.workload, None)
    requests, size = max(REQUESTS, 3 * rows), rows if aligned else scenario.verifiers.max_num_seqs
    return replace(
        scenario,
        seed=seed,
        drafters=replace(scenario.drafters, count=int(depth > 0), place=place, depth=depth or scenario.drafters.depth),
        verifiers=replace(
            scenario.verifiers, count=1, allocate=allocate if depth else None, aligned=aligned, max_num_seqs=size
        ),
        workload=replace(workload, requests=requests, streams=requests if aligned else rows),
    )


def recording_loop(scenario: Scenario, requests: int, most: int = ROWS[-1]) -> Scenario:
    """Return a loop over so many calibration prompts with drafts of the scenario's depth, `most` at once."""
    rows = min(scenario.verifiers.max_num_seqs, most)
    recorded = loop_of(scenario, rows, scenario.drafters.depth, scenario.seed)
    replace = msgspec.structs.replace
    return replace(
        recorded,
        # What a draft is worth is no matter of the rows' alignment; one rule throws accepted tokens away.
        verifiers=replace(recorded.verifiers, aligned=None, allocate=None),
        workload=replace(recorded.workload, requests=requests, streams=min(rows, requests - 1)),
    )


def record_acceptance(loop: Scenario, elsewhere: Elsewhere | None) -> EngineRun:
    """Run a loop for its acceptance, with the signals of drafted tokens where drafts are chains of a model's."""
    if elsewhere:
        return EngineRun(elsewhere.run(loop), {})
    return serve(loop, signals=loop.drafters.shape.kind == "chain" and loop.drafters.kind != "lookup")


def profile_of_target(
    scenario: Scenario,
    runs: Sequence[Run],
    recorded: Run | None = None,
    left_out: Mapping[Missing, str] = {},
    host: Mapping[str, str] | None = None,
) -> HardwareProfile:
    """Return the profile that the loops give; all of them are of one scenario, with drafts and without.

    - `recorded`: the run that has the acceptance; without it, the loops with the deepest drafts.
    - `left_out`: what was not measured, with the reasons.
    - `host`: facts of the host and of its stages; None reads those of this one.
    """
    fit = fit_aligned if scenario.verifiers.aligned else fit_passes
    seen, facts = all(run.header.steps for run in runs), dict(host or host_facts())
    fitted = fit(runs, scenario.drafters.shape) if seen else fit_answers(runs)
    laws: dict[str, Any] = fitted.laws
    depths = [drafts.depth * min(drafts.count, 1) for drafts in (run.header.fleet.drafters for run in runs)]
    accepted = tuple(accepted_in([recorded] if recorded else runs))
    longest = max((length for session in accepted for length in session), default=0)
    if longest > scenario.drafters.depth:
        raise InputError(
            f"answers: a chunk has {longest + 1} tokens, and a round {scenario.drafters.depth + 1} at most; let the "
            "server send every step's tokens by themselves"
        )
    return HardwareProfile(
        name=f"calibrated-serving-{facts['machine']}",
        overhead=Overheads(StationOverheads(target=overhead_of(delays_of(runs, drafters=False))))
        if seen
        else Overheads(),
        acceptance=Recorded(scenario.drafters.depth, accepted) if accepted else None,
        positions=runs[0].header.fleet.drafters.positions,
        provenance=facts
        | ({"engine": runs[0].header.engine} if runs[0].header.engine else {})
        | provenance_of(scenario),
        measured={"steps": fitted.fits, "passes_differ": fitted.apart}
        | ({"left_out": dict(left_out)} if left_out else {}),
        sources={} if seen else not_separated(list(dict.fromkeys(depths)), scenario.workload.prompt_tokens),
        **laws,
    )


def accepted_in(runs: Sequence[Run]) -> Iterator[tuple[int, ...]]:
    """Yield the accepted tokens of each request's rounds, of the deepest drafts."""
    deepest = max(run.header.fleet.drafters.depth for run in runs)
    for run in runs:
        if run.header.fleet.drafters.depth < deepest:
            continue
        rounds = run.frame().query("event == 'done' and kind == 'verify'")
        yield from (tuple(session.accepted.tolist()) for _, session in rounds.groupby("request"))


def servers_of(stated: Sequence[str], scenario: Scenario) -> dict[int, str]:
    """Return the address of the server for each draft length in tokens; 0 is plain decoding.

    - `stated`: "LENGTH=URL", or "URL" for the scenario's own length.

    Raises InputError for two servers of one length, and where none has the scenario's.
    """
    planned = scenario.drafters.depth if scenario.drafters.count else 0
    urls: dict[int, str] = {}
    for text in stated:
        named = STATED.fullmatch(text)
        depth, url = (int(named[1]), named[2]) if named else (planned, text)
        if depth in urls:
            raise InputError(f"--server {text}: {urls[depth]} drafts {depth} tokens, too; name one of them")
        if depth > planned:
            raise InputError(f"--server {text}: drafts more than the scenario's drafters.depth = {planned}; raise it")
        urls[depth] = url
    if planned not in urls:
        lacks = f"none drafts the scenario's {planned} tokens; add --server {planned}=URL"
        raise InputError(f"--server {stated[0]}: {lacks}")
    return urls


@contextmanager
def other_engine(engine: Engine | None, urls: Mapping[int, str]) -> Iterator[Elsewhere | None]:
    """Yield what runs the loops of a calibration: an engine of others, or servers by their draft lengths; else None."""
    notes = list[str]()

    def report(line: str) -> None:
        if line.startswith("note: "):  # other lines are of progress
            notes.append(line.removeprefix("note: "))

    def run(loop: Scenario) -> Run:
        return run_on_server(loop, urls[loop.drafters.depth if loop.drafters.count else 0], report)

    if urls:
        yield Elsewhere(run, " ".join(urls.values()), tuple(urls), notes)
    elif engine is not None:
        with OutsideEngine(engine, report) as outside:
            yield Elsewhere(outside.run, packages_of(engine), notes=notes)
    else:
        yield None
