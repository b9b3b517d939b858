"""simulate, run, analytic: one scenario."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.printing import busy, flat, interval, number, print_json, print_table, remark
from fleet.errors import InputError
from specfleet.cli.options import AsJson, Changes, RunFile, ScenarioFile

if TYPE_CHECKING:
    from fleet.records.run import Run


def simulate(
    scenario: ScenarioFile,
    changes: Changes = None,
    pace: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Play back how fast the host was in this measured run.")
    ] = None,
    as_json: AsJson = False,
    out: RunFile = None,
) -> None:
    """Run a scenario in simulated time."""
    from fleet.records.paces import paces_of
    from fleet.records.run import read_run
    from fleet.scenario.reading import read_scenario
    from fleet.scenario.settle import settle
    from sim.run import simulate as run_simulation

    read = read_scenario(scenario, changes or ())
    paces = paces_of(read_run(pace), settle(read).control_s) if pace else {}
    show_run(run_simulation(read, paces), as_json, out)


def run(
    scenario: ScenarioFile,
    changes: Changes = None,
    as_json: AsJson = False,
    out: RunFile = None,
    signals: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Record the signals of a batch's drafted tokens here (Parquet).")
    ] = None,
) -> None:
    """Run the same scenario on the real engine, on this host."""
    from engine.runtime.memory import account_line, accounts_of
    from engine.runtime.serve import check_can_run, crowding, serve
    from fleet.chance.signals import write_signals
    from fleet.scenario.reading import read_scenario
    from fleet.scenario.settle import settle

    read = read_scenario(scenario, changes or ())
    fleet = settle(read)
    check_can_run(fleet)
    note = crowding(fleet)
    if note:
        remark(f"note: {note}")
    if signals is not None and (read.batch is None or read.drafters.shape.kind != "chain"):
        raise InputError(f"--signals {signals}: only chains of a [batch] tell signals, and {scenario} has none")
    for account in accounts_of(fleet):
        remark(f"cache of {account_line(account)}")
    with busy("the engine is running"):
        served = serve(read, signals=signals is not None)
    if signals is not None:
        write_signals(list(served.signals.values()), signals)
    show_run(served.run, as_json, out)


def analytic(scenario: ScenarioFile, changes: Changes = None, as_json: AsJson = False) -> None:
    """Evaluate the analytic model: S, Z, N_full, N_max, regime, throughput, bounds."""
    import msgspec

    from fleet.scenario.reading import read_scenario
    from sim.predict import predict

    content = msgspec.to_builtins(predict(read_scenario(scenario, changes or ())))
    if as_json:
        print_json(content)
        return
    print_table(f"analytic model of {scenario}", ("quantity", "value"), list(flat(content)))


def show_run(run: "Run", as_json: bool, out: Path | None) -> None:
    """Write the records if asked to, and print the metrics of a run."""
    from fleet.records.metrics import measure
    from fleet.records.run import write_run

    if out is not None:
        write_run(run, out)
    metrics = measure(run)
    header = run.header
    if as_json:
        described = {"scenario": header.scenario.name, "world": header.world, "seed": header.scenario.seed}
        print_json({**described, "metrics": metrics})
        return
    rows = [(name, number(metric.value), interval(metric), metric.unit) for name, metric in metrics.items()]
    print_table(
        f"{header.scenario.name}, world: {header.world}, seed {header.scenario.seed}, digest {run.digest()}",
        ("metric", "value", "95 % interval", "unit"),
        rows,
    )
    if out is not None:
        remark(f"records: {out}")
