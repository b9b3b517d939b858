"""simulate, run, analytic: one scenario in the simulated world, in the real one, and in the equations."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from experiments.precision import Precision, precision_of, simulate_to
from fleet.errors import InputError, OutputError
from fleet.files import check_writable
from fleet.records import run as records
from fleet.records.counts import Counts
from fleet.records.playback import MECHANISM, parse_parts, playback_of
from fleet.scenario.changes import Changes
from fleet.scenario.names import SimPath
from fleet.scenario.settle import settle
from fleet.scenario.workload import unknown_ends
from sim.predict import predict
from sim.run import simulate as simulate_scenario
from specfleet.arguments import function_of, path_of
from specfleet.notes import notes_on_prediction
from specfleet.results import Prediction, Result, SettledFleet
from specfleet.scenario import Given, scenario_of


def simulate(
    scenario: Given,
    changes: Changes | None = None,
    *,
    precision: float | Precision | None = None,
    report: Callable[[str], None] = lambda _remark: None,
    path: SimPath = "auto",
    **keys: Any,
) -> Result:
    """Run a scenario in simulated time.

    `scenario`: a file (TOML), the name of a shipped one, or a Scenario. `changes`: values by dotted key; further
    keywords are keys of the scenario, where a dict changes only what it names. `precision`: how narrow 95 % intervals
    have to be, as half width over value: of the throughput, or by metric, {"tpot_p90_s": 0.05}. The run is then
    repeated with more requests until they are; what was not reached is in the result's `unmet`. `report` is told of
    that, and of ends of texts that the simulation does not know. `path`: "fast" is a compiled loop for plain stars,
    "simpy" knows everything, and "auto" chooses; the records are the same. Raises InputError for bad input, and for
    "fast" where it does not apply.

    >>> import specfleet
    >>> result = specfleet.simulate("star", {"verifiers.count": 8}, seed=3, workload={"requests": 20})
    >>> result.scenario.seed, result.scenario.verifiers.count
    (3, 8)
    """
    function_of(report, "report")
    aims = precision_of(precision)
    chosen = scenario_of(scenario, changes, **keys)
    note = unknown_ends(settle(chosen))
    if note:
        report(f"note: {note}")
    unmet: tuple[str, ...] = ()
    if aims:
        recorded, _, _, unmet = simulate_to(chosen, aims, report, path)
    else:
        recorded = None
    return Result(recorded or simulate_scenario(chosen, path=path), unmet)


def play_back(
    run: Result | str | Path,
    parts: Sequence[str] = MECHANISM,
    changes: Changes | None = None,
    **keys: Any,
) -> Result:
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
    measured = run if isinstance(run, Result) else Result(records.read_run(path_of(run, "run")))
    playback = playback_of(measured.run, parse_parts([parts] if isinstance(parts, str) else parts))
    return Result(simulate_scenario(scenario_of(measured.scenario, changes, **keys), playback=playback))


def run(
    scenario: Given,
    changes: Changes | None = None,
    *,
    signals: str | Path | None = None,
    power: str | Path | None = None,
    report: Callable[[str], None] = lambda _remark: None,
    watch: Callable[[Counts], None] | None = None,
    **keys: Any,
) -> Result:
    """Run the same scenario on the real engine, on this host; it needs `specfleet[engine]`.

    `scenario`, `changes` and keywords as in `simulate`. `signals`: a file (Parquet) for the signals of every token that
    a batch drafted. `power`: one for samples of the device's clock, power and memory, right before each draft and twice
    a second; the metrics then have the energy a token. Where a file cannot be written after the run, the OutputError's
    `result` is the run. `report` is told of crowded cores, of the memory that caches take, and of power that cannot be
    measured, before the run; `watch`, twice a second, what it has done so far (`fleet.records.counts.Counts`).

        if __name__ == "__main__":  # its processes import the script that starts them
            result = specfleet.run("star", verifiers={"count": 1}, workload={"requests": 4})
    """
    from engine.runtime.memory import account_line, accounts_of
    from engine.runtime.runnable import check_can_run
    from engine.runtime.serve import crowding, serve
    from engine.runtime.served import measured_device
    from fleet.chance.signals import write_signals
    from fleet.records.power import write_samples

    chosen = scenario_of(scenario, changes, **keys)
    files = {
        what: path_of(given, what) for what, given in (("signals", signals), ("power", power)) if given is not None
    }
    function_of(report, "report")
    if watch is not None:
        function_of(watch, "watch")
    fleet = settle(chosen)
    check_can_run(fleet)
    if signals is not None and (chosen.batch is None or chosen.drafters.shape.kind != "chain"):
        raise InputError(f"signals = {signals}: only chains of a [batch] tell signals; {chosen.name!r} has none")
    accounts = accounts_of(fleet)
    note = crowding(fleet)
    if note:
        report(f"note: {note}")
    for file in files.values():
        check_writable(file)
    for account in accounts:
        report(f"cache of {account_line(account)}")
    device = measured_device(fleet, report) if power is not None else ""
    served = serve(chosen, signals=signals is not None, watch=watch, power=device)
    result = Result(served.run)
    try:
        if signals is not None:
            write_signals(list(served.signals.values()), files["signals"])
        if power is not None and device:
            write_samples(served.samples, files["power"])
    except OutputError as error:
        error.result = result
        raise
    return result


def analytic(scenario: Given, changes: Changes | None = None, **keys: Any) -> Prediction:
    """Evaluate the analytic model: S, Z, N_full, N_max, regime, throughput, bounds; it knows one star and no prefill.

    `scenario`, `changes` and keywords as in `simulate`. Raises InputError where the scenario is no star.

    >>> import specfleet
    >>> specfleet.analytic("star", verifiers={"count": 1}).regime
    'under-loaded'
    """
    chosen = scenario_of(scenario, changes, **keys)
    return Prediction(**msgspec.structs.asdict(predict(chosen)), notes=notes_on_prediction(chosen))


def show(scenario: Given, changes: Changes | None = None, **keys: Any) -> SettledFleet:
    """Settle a scenario: its stations, and their times, links and rules, as both worlds will build them.

    `scenario`, `changes` and keywords as in `simulate`.

    >>> import specfleet
    >>> specfleet.show("star").drafters.allocate
    Fixed(depth=5)
    """
    return SettledFleet(**msgspec.structs.asdict(settle(scenario_of(scenario, changes, **keys))))


def read_run(path: str | Path) -> Result:
    """Read the records of a run, as `Result.save` or `-o` wrote them; InputError if they cannot be read.

    >>> import specfleet, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     specfleet.simulate("star", workload={"requests": 20}).save(f"{folder}/run.parquet")
    ...     specfleet.read_run(f"{folder}/run.parquet").scenario.name
    'star'
    """
    return Result(records.read_run(path_of(path, "run")))
