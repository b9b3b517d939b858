"""simulate, run, analytic: one scenario."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.printing import busy, interval, number, print_json, print_table, remark, value_text
from specfleet.cli.options import AsJson, Changes, Precision, RunFile, ScenarioFile, precision_of, say_unmet, settings

if TYPE_CHECKING:
    from specfleet.results import Result


def simulate(
    scenario: ScenarioFile,
    changes: Changes = None,
    pace: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Play back how fast the host was in this measured run.")
    ] = None,
    precision: Precision = None,
    as_json: AsJson = False,
    out: RunFile = None,
) -> None:
    """Run a scenario in simulated time."""
    from specfleet.running import simulate

    aims = precision_of(precision)
    result = simulate(scenario, settings(changes), pace=pace, precision=aims, report=remark)
    show_run(result, as_json, out)
    say_unmet(result.unmet)


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
    from specfleet.running import run

    with busy("the engine is running"):
        result = run(scenario, settings(changes), signals=signals, report=remark)
    show_run(result, as_json, out)


def analytic(scenario: ScenarioFile, changes: Changes = None, as_json: AsJson = False) -> None:
    """Evaluate the equations: S, Z, N_full, N_max, throughput."""
    from specfleet.running import analytic

    prediction = analytic(scenario, settings(changes))
    if as_json:
        print_json(prediction)
        return
    rows = [(name, value_text(value)) for name, value in prediction.frame().itertuples(index=False)]
    print_table(f"analytic model of {scenario}", ("quantity", "value"), rows)


def show_run(result: "Result", as_json: bool, out: Path | None) -> None:
    """Write the records if asked to, and print the metrics of a run."""
    if out is not None:
        result.save(out)
    header, metrics = result.run.header, result.metrics
    if as_json:
        described = {"scenario": header.scenario.name, "world": header.world, "seed": header.scenario.seed}
        print_json({**described, "metrics": metrics, "unmet": result.unmet})
        return
    rows = [(name, number(metric.value), interval(metric), metric.unit) for name, metric in metrics.items()]
    print_table(result.title(), ("metric", "value", "95 % interval", "unit"), rows)
    if out is not None:
        remark(f"records: {out}")
