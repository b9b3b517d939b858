"""The functions that `import specfleet` offers for scenarios and results.

Each reads its scenario, calls the room that does the work, and wraps what comes back (`results.py`).
"""

import os
from collections.abc import Callable, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from specfleet.experiments.notes import notes_of, notes_on_held, notes_on_idle_gaps, notes_on_prediction
from specfleet.fleet.errors import InputError, OutputError
from specfleet.fleet.files import check_folder, check_writable
from specfleet.fleet.records import run as records
from specfleet.fleet.records.playback import MECHANISM, parse_parts, playback_of
from specfleet.fleet.records.progress import Progress
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.changes import Changes, flat, pairs_of
from specfleet.fleet.scenario.names import Engine, SimPath, World
from specfleet.fleet.scenario.reading import Given, scenario_of
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.stations.star import admission_of, route_of
from specfleet.results import Prediction, ResolvedFleet, Result, Sweep
from specfleet.sim.predict import predict
from specfleet.sim.run import Records, simulate_frugally
from specfleet.sim.run import simulate as simulate_scenario

if TYPE_CHECKING:  # these import pandas or matplotlib, which a simulation does without
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from specfleet.experiments.compare.compare import Comparison
    from specfleet.experiments.sweep.cell import CellResult
    from specfleet.experiments.sweep.sweep import Vary

RunGiven = Result | str | Path


def simulate(
    scenario: Given, changes: Changes | None = None, *, path: SimPath = "auto", records: Records = None, **keys: Any
) -> Result:
    """Run a scenario in simulated time.

    `scenario`: a file (TOML), the name of a shipped one, or a Scenario. `changes`: values by dotted key; further
    keywords are keys of the scenario, where a dict changes only what it names. `path`: "fast" is a compiled loop for
    stars and serving targets, "simpy" knows everything, and "auto" chooses; the records are the same. `records`:
    whether the result keeps them; left out, the loop keeps those of up to a million tokens. A file (Parquet) takes
    them; beyond a million tokens the loop writes them there as they come, in constant memory. Raises InputError for bad
    input, and for "fast" where it does not apply; OutputError where the file cannot be written.

    >>> import specfleet
    >>> result = specfleet.simulate("star", {"verifiers.count": 8}, seed=3, workload={"requests": 20})
    >>> result.scenario.seed, result.scenario.verifiers.count
    (3, 8)
    """
    result = Result(*simulate_frugally(scenario_of(scenario, changes, **keys), path, records))
    if isinstance(records, str | Path) and result.observed is None:
        try:
            result.save(records)
        except OutputError as error:
            error.result = result
            raise
    return result


def play_back(run: RunGiven, parts: Sequence[str] = MECHANISM, changes: Changes | None = None, **keys: Any) -> Result:
    """Simulate a run's own scenario, and play back parts of what was measured in it.

    `parts`: of steps (how long each took), acceptance (what each verification accepted), overhead (delays around steps,
    and of users between requests), links (how long each message was on its way), or "all", which gives the run again.
    What a simulation with some parts still misses is the error of the others. `changes` and keywords as in `simulate`.
    Raises InputError for a file that is no run, or that its scenario cannot lead to.

    >>> import specfleet
    >>> first = specfleet.simulate("star", workload={"requests": 20})
    >>> again = specfleet.play_back(first, ["all"], seed=7)
    >>> again.metrics["throughput"].value == first.metrics["throughput"].value
    True
    """
    measured = _run_of(run)
    playback = playback_of(measured, parse_parts([parts] if isinstance(parts, str) else parts))
    return Result(simulate_scenario(scenario_of(measured.header.scenario, changes, **keys), playback=playback))


def run(
    scenario: Given,
    changes: Changes | None = None,
    *,
    signals: str | Path | None = None,
    power: str | Path | None = None,
    engine: Engine | None = None,
    server: str | None = None,
    report: Callable[[str], None] = lambda _remark: None,
    watch: Callable[[Progress], None] | None = None,
    **keys: Any,
) -> Result:
    """Run the same scenario on the real engine, on this host; without `server` it needs `specfleet[engine]`.

    `scenario`, `changes` and keywords as in `simulate`. `signals`: a file (Parquet) for the signals of every token that
    a target's device drafted. `power`: one for samples of the devices' clock, power, load and memory, before each draft
    and twice a second; the metrics then have the energy a token. `engine`: one of others, such as "vllm", in an
    environment of its own. `server`: the address of a running, OpenAI-compatible one, such as "http://localhost:8000".
    Neither has signals, power or counters. Where a file cannot be written after the run, the OutputError's `result` is
    the run. `report` is called with lines on crowded cores, and on power that cannot be measured, before the run;
    `watch`, twice a second, with its progress (`specfleet.fleet.records.progress`).

        if __name__ == "__main__":  # its processes import the script that starts them
            result = specfleet.run("star", verifiers={"count": 1}, workload={"requests": 4})
    """
    chosen = scenario_of(scenario, changes, **keys)
    others = [name for name in (engine, server) if name is not None]
    if len(others) > 1 or (others and (signals is not None or power is not None)):
        raise InputError(f"{others[0]}: has no signals and no power, and is one engine; leave out the others")
    if server is not None:
        from specfleet.engine.outside.answers import run_on_server

        return Result(run_on_server(chosen, server, report))
    if engine is not None:
        from specfleet.engine.outside.engines import OutsideEngine

        with OutsideEngine(engine, report) as outside:
            return Result(outside.run(chosen))
    from specfleet.engine.launch.serve import serve
    from specfleet.fleet.acceptance.signals import write_signals
    from specfleet.fleet.records.power import write_samples

    drafters = chosen.drafters
    is_chain = drafters.shape.kind == "chain" and not (drafters.finds or drafters.first)
    if signals is not None and not (drafters.count and drafters.place == "target" and is_chain):
        raise InputError(
            f"signals = {signals}: only a model's chains on a target's device have signals; set drafters.place "
            "= 'target', and leave drafters.shape out, drafters.first, and kinds 'lookup' and 'suffix'"
        )
    for file in (signals, power):
        if file is not None:
            check_writable(Path(file))
    served = serve(chosen, signals=signals is not None, watch=watch, power=power is not None, report=report)
    result = Result(served.run)
    try:
        if signals is not None:
            write_signals(list(served.signals.values()), Path(signals))
        if power is not None and served.samples:
            write_samples(served.samples, Path(power))
    except OutputError as error:
        error.result = result
        raise
    return result


def analytic(scenario: Given, changes: Changes | None = None, **keys: Any) -> Prediction:
    """Evaluate the analytic model: S, Z, N_full, N_max, regime, throughput; it knows one star and no prefill.

    `scenario`, `changes` and keywords as in `simulate`. Raises InputError where the scenario is no star.

    >>> import specfleet
    >>> specfleet.analytic("star", verifiers={"count": 1}).regime
    'under-loaded'
    """
    chosen = scenario_of(scenario, changes, **keys)
    star = predict(chosen)
    return Prediction(**msgspec.structs.asdict(star), notes=notes_on_prediction(chosen, star))


def show(scenario: Given, changes: Changes | None = None, **keys: Any) -> ResolvedFleet:
    """Settle a scenario: its stations, and their times, links and rules, as both worlds will build them.

    `scenario`, `changes` and keywords as in `simulate`.

    >>> import specfleet
    >>> specfleet.show("star").drafters.depth
    7
    """
    fleet = resolve(scenario_of(scenario, changes, **keys))
    drafters = msgspec.structs.replace(fleet.drafters, admit=admission_of(fleet), route=route_of(fleet))
    return ResolvedFleet(**msgspec.structs.asdict(fleet) | {"drafters": drafters})


def read_run(path: str | Path) -> Result:
    """Read the records of a run, as `Result.save` or `-o` wrote them; InputError if they cannot be read.

    >>> import specfleet, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     specfleet.simulate("star", workload={"requests": 20}).save(f"{folder}/run.parquet")
    ...     specfleet.read_run(f"{folder}/run.parquet").scenario.name
    'star'
    """
    return Result(records.read_run(Path(path)))


def sweep(
    scenario: Given,
    vary: "Vary",
    changes: Changes | None = None,
    *,
    out: str | Path | None = None,
    world: World = "sim",
    seeds: int = 3,
    jobs: int | None = None,
    done: "Callable[[CellResult], None]" = lambda _result: None,
    path: SimPath = "auto",
    power: bool = False,
    cluster: str = "",
    shard: str = "",
    **keys: Any,
) -> Sweep:
    """Run a scenario with every combination of the values that `vary` names, in either world.

    `scenario`, `changes` and keywords as in `simulate`. `vary`: values by dotted key, or texts such as
    "verifiers.count=1:16". `out`: a folder that keeps the results, where a rerun finds them. `seeds`: replications a
    cell. `jobs`: simulations at once, by default one a core. `done` is called after each cell. `path`: as in
    `simulate`. `power`: whether the engine samples its devices, for `figure devices`. `cluster`: the address of a Dask
    scheduler, and its workers run the cells. `shard`: a share of the cells, such as "1/8"; a sweep of all into the same
    folder finds them. A cell that fails loses no other: see `Sweep.errors`. Raises InputError for bad input before
    anything runs, and OutputError where a cell cannot be written; its `result` is the sweep until then.

    >>> import specfleet
    >>> small = {"workload.requests": 20}
    >>> swept = specfleet.sweep("star", {"verifiers.count": [1, 2]}, small, seeds=2, jobs=1)
    >>> swept.frame()[["verifiers.count", "throughput"]].shape
    (2, 2)
    """
    from specfleet.experiments.jobs import read_shard
    from specfleet.experiments.sweep import sweep as sweeps

    for name, value, kind in (("world", world, World), ("path", path, SimPath)):
        if value not in get_args(kind):
            raise InputError(f"{name} = {value!r} is not known; allowed: {', '.join(get_args(kind))}")
    for name, count in (("seeds", seeds), ("jobs", jobs)):
        if count is not None and not (isinstance(count, Integral) and count >= 1):
            raise InputError(f"{name} = {count}: needs a whole number from 1")
    if world == "engine" and path != "auto":
        raise InputError("path: only simulations have one; leave it out, or world = sim")
    if world == "sim" and power:
        raise InputError("power: only devices that run a model are sampled; leave it out, or world = engine")
    if world == "engine" and cluster:
        raise InputError("cluster: the engine runs on this host; leave it out, or give each host a --shard")
    folder, share = None if out is None else Path(out), read_shard(shard, out)
    if folder is not None:
        check_folder(folder)
    pairs = [*pairs_of(changes or ()), *keys.items()]
    axes = sweeps.vary_of(vary, [key for key, _ in flat(dict(pairs))])
    cells = sweeps.distinct((cell, scenario_of(scenario, [*pairs, *cell.items()])) for cell in sweeps.cells_of(axes))
    workers = cluster or jobs or os.cpu_count() or 1
    try:
        swept = sweeps.sweep(cells, folder, world, seeds, workers, done, path, power, share)
        gaps = notes_on_idle_gaps(cell.analytic.get("idle_slowdown", 1.0) for cell in swept)
        noted = dict.fromkeys(note for _, made in cells for note in notes_of(made, world))
        return Sweep(swept, (*noted, *gaps, *notes_on_held(made for _, made in cells)))
    except OutputError as error:
        error.result = Sweep(error.result)
        raise


def compare(first: RunGiven, second: RunGiven, *, reruns: Sequence[RunGiven] = ()) -> "Comparison":
    """Hold a simulated and a measured run against each other, quantity by quantity; errors refer to the measured one.

    What the two did not share comes first, as `differences`. Of two runs of the same world, errors refer to the second.
    Takes results or their files. A run of the engine is also simulated with its steps and acceptance played back, which
    leaves the error of the mechanism; `reruns` of it give the host's own, and intervals. `second` may also be the file
    (JSON) of a client that timed a server: AIPerf's records, or those of vLLM's or SGLang's benchmark with the details
    of each request. Raises InputError for reruns of another scenario, or of a client's file.

    >>> import specfleet
    >>> result = specfleet.simulate("star", workload={"requests": 20})
    >>> specfleet.compare(result, result).mape["throughput"]
    0.0
    """
    from specfleet.experiments.compare.compare import compare_runs
    from specfleet.experiments.compare.loads import SUFFIXES, compare_client

    if not isinstance(second, Result) and Path(second).suffix in SUFFIXES:
        if reruns:
            raise InputError(f"{second}: a client's file has no reruns; compare each file by itself")
        return compare_client(_run_of(first), Path(second))
    return compare_runs(_run_of(first), _run_of(second), _named(reruns))


def three_errors(
    run: RunGiven, changes: Changes | None = None, *, reruns: Sequence[RunGiven] = (), seeds: int = 20, **keys: Any
) -> "Comparison":
    """Predict a measured run from its own scenario, and say where the error comes from, quantity by quantity.

    `mechanism`: with the run's steps and acceptance played back; `parameters`: blind, from the profile alone, over
    `seeds`; `host`: the run against its `reruns`. `changes` and keywords as in `simulate`; a run without a profile is
    given one so: `profile="mine.json"`. Raises InputError where the scenario names no profile, and for reruns of
    another scenario.

    >>> import specfleet
    >>> first = specfleet.simulate("star", workload={"requests": 20})
    >>> (row,) = [row for row in specfleet.three_errors(first, seeds=2).rows if row.quantity == "throughput"]
    >>> abs(row.mechanism.value) < 0.01
    True
    """
    from specfleet.experiments.compare.compare import predict_run

    measured = _run_of(run)
    scenario = scenario_of(measured.header.scenario, changes, **keys)
    return predict_run(measured, scenario, _named(reruns), seeds)


def figure(
    name: str,
    results: "Result | Sweep | str | Path",
    out: str | Path | None = None,
    metric: str = "",
    *,
    panels: bool = False,
    width_inches: float | None = None,
    caption: bool = True,
    ax: "Axes | None" = None,
) -> "Figure":
    """Draw a figure from results or their files, and write it to `out` if given; return the matplotlib figure.

    "sweep" and "devices" are drawn from a sweep or its folder, "timeline" from a run, "plan" from a plan (JSON).
    "sweep" shows `metric`, throughput by default, along the first varied key, a line for each value of the second and a
    panel for each of the third, or with `panels` the other way round; "devices" the clock, power and load of the
    devices of a sweep with `power`. `width_inches`: such as that of a paper's column, 3.3. `caption`: whether one is
    below. `ax`: a panel of your own matplotlib layout to draw in. Raises InputError for anything else.

    >>> import specfleet
    >>> result = specfleet.simulate("star", workload={"requests": 20})
    >>> len(specfleet.figure("timeline", result).axes)
    1
    """
    from specfleet.experiments.draw import draw
    from specfleet.experiments.sweep.sweep import table

    drawn: Any = results
    if isinstance(results, Result):
        drawn = results.run
    elif isinstance(results, Sweep):
        drawn = table(results.cells)
    return draw(name, drawn, out, metric, panels=panels, width_inches=width_inches, caption=caption, ax=ax).figure


def join(runs: Sequence[RunGiven]) -> Result:
    """Join the records of a fleet's nodes that ran on several hosts; one clock, as far as their messages show it.

    `fleet.records.join.join_runs` also returns clocks and links. Raises InputError for records that do not belong
    together.

        run = specfleet.join(["drafter.parquet", "target-1.parquet", "target-2.parquet"])
        specfleet.three_errors(run, profile="mine.json")
    """
    from specfleet.fleet.records.join import join_runs

    return Result(join_runs(_named(runs)).run)


def _run_of(run: RunGiven) -> Run:
    return run.run if isinstance(run, Result) else records.read_run(Path(run))


def _named(runs: Sequence[RunGiven]) -> list[tuple[str, Run]]:
    """Return runs with the names that errors give them: their files, else their scenarios."""
    return [(run.scenario.name, run.run) if isinstance(run, Result) else (str(run), _run_of(run)) for run in runs]
