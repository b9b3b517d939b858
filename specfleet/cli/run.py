"""simulate, run, analytic, show: one scenario."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specfleet.cli import options
from specfleet.experiments.console import printing
from specfleet.experiments.console.exits import keeping, printing_anyway
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.names import SimPath
from specfleet.fleet.shown import number

if TYPE_CHECKING:
    from specfleet.results import Result


def simulate(
    scenario: options.ScenarioOrNone = None,
    changes: options.Changes = None,
    seed: options.Seed = None,
    of: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Simulate this run's own scenario, and play back what was measured in it."),
    ] = None,
    play_back: Annotated[
        str | None,
        typer.Option(metavar="PARTS", help="With --of: steps,acceptance (the default), overhead, links, or all."),
    ] = None,
    path: options.PathOption = "auto",
    everything: options.Everything = False,
    by: options.By = None,
    as_json: options.AsJson = False,
    out: options.RunFile = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Say which path it took, and why.")] = False,
) -> None:
    """Run a scenario in simulated time."""
    from specfleet import simulate
    from specfleet.sim.fast.choice import path_text

    _one_output(by, as_json)
    with keeping(out), printing_anyway(lambda result: show_run(result, as_json, None, everything, by)):
        if of is not None or play_back is not None or scenario is None:
            result = _played_back(scenario, of, play_back, options.settings(changes, seed), path)
        else:
            given = options.settings(changes, seed)
            result = simulate(scenario, given, path=path, records=out)
            streams, targets = result.scenario.workload.streams, result.scenario.verifiers.count
            if streams and "verifiers.count" in given and "workload.streams" not in given:
                each = f"{streams / targets:.3g} at each of {targets} targets"
                printing.remark(f"note: workload.streams = {streams} requests in flight stay: {each}")
        if verbose:
            header = result.run.header
            printing.remark(path_text(header.path, header.fleet, bool(header.played)))
        show_run(result, as_json, out, everything, by, is_written=of is None)


def _one_output(by: options.Part | None, as_json: bool) -> None:
    if by is not None and as_json:
        raise InputError(f"--by {by}: prints a table; leave --json out, or see `targets()` of a result in Python")


def _played_back(
    scenario: Path | None, of: Path | None, parts: str | None, changes: dict[str, Any], path: SimPath
) -> "Result":
    """Simulate with --of."""
    from specfleet import play_back
    from specfleet.fleet.records.playback import MECHANISM

    if of is None:
        raise InputError("name a SCENARIO, or a run with --of RUN" if parts is None else "--play-back needs --of RUN")
    if scenario is not None:
        raise InputError(f"--of {of} brings its own scenario; leave out {scenario}, or change keys with --set")
    if path != "auto":
        raise InputError("--of plays back one run; leave out --path")
    return play_back(of, MECHANISM if parts is None else [parts], changes)


def run(
    scenario: options.ScenarioFile,
    changes: options.Changes = None,
    seed: options.Seed = None,
    everything: options.Everything = False,
    by: options.By = None,
    as_json: options.AsJson = False,
    out: options.RunFile = None,
    signals: Annotated[
        Path | None,
        options.file_option(
            "--signals", metavar="FILE", help="Record signals of a target's own drafts here (Parquet)."
        ),
    ] = None,
    power: options.Power = None,
    engine: options.EngineName = None,
    server: Annotated[
        str | None, typer.Option(metavar="URL", help="Send the requests to this OpenAI-compatible server instead.")
    ] = None,
) -> None:
    """Run the same scenario on the real engine, on this host.

    Meanwhile one line says what it is doing; where there is no terminal, a line a minute does.
    """
    from specfleet import run, scenario_of
    from specfleet.experiments.watching import living_line, tokens_of
    from specfleet.fleet.scenario.resolve import resolve

    _one_output(by, as_json)
    with keeping(out, signals, power), printing_anyway(lambda result: show_run(result, as_json, out, everything, by)):
        chosen = scenario_of(scenario, options.settings(changes, seed))
        if engine is not None or server is not None:
            result = run(chosen, signals=signals, power=power, engine=engine, server=server, report=printing.remark)
        else:
            with living_line(chosen.name, tokens_of(resolve(chosen))) as watch:
                result = run(chosen, signals=signals, power=power, report=printing.remark, watch=watch)
        show_run(result, as_json, out, everything, by)


def analytic(scenario: options.ScenarioFile, changes: options.Changes = None, as_json: options.AsJson = False) -> None:
    """Evaluate the equations: S, Z, N_full, N_max, throughput."""
    from specfleet import analytic
    from specfleet.experiments.console.headline import acceptance_text
    from specfleet.meaning.entries import known_entries

    prediction = analytic(scenario, options.settings(changes))
    if as_json:
        printing.print_json(prediction)
        return
    of_model = (entry for entry in reversed(known_entries()) if entry.kind == "quantity of the analytic model")
    facts = {entry.name: entry.facts for entry in of_model}
    rows = []
    for name, value in prediction.frame().itertuples(index=False):
        first, *_, last = name.split(".") * 2  # a number, or one of several below a symbol of their own
        rows.append((name, facts[first].get("symbol", ""), printing.value_text(value), facts[last].get("unit", "")))
    title = f"analytic model of {scenario}: constant times, prefill left out"
    printing.print_table(title, ("quantity", "symbol", "value", "unit"), rows, texts=2)
    printing.say(acceptance_text(prediction.mean_acceptance_length))
    printing.print_notes(prediction.notes)


def show(scenario: options.ScenarioFile, changes: options.Changes = None, as_json: options.AsJson = False) -> None:
    """Print the resolved fleet: stations, times, links, rules.

    Both worlds build from exactly that.
    """
    from specfleet import show
    from specfleet.fleet.scenario.show import describe_fleet, without_demo

    fleet = show(scenario, options.settings(changes))
    if as_json:
        printing.print_json(fleet)
    else:
        rows = without_demo(fleet, describe_fleet(fleet))
        places = ["", *(place for place, _, _ in rows)]  # of the row above
        once = [
            ("" if place == above else place, what, value)
            for above, (place, what, value) in zip(places, rows, strict=False)
        ]
        printing.print_table(f"{scenario}, resolved", ("where", "what", "value"), once, texts=3)


def show_run(
    result: "Result", as_json: bool, out: Path | None, everything: bool = False, by: options.Part | None = None,
    is_written: bool = False,
) -> None:  # fmt: skip
    """Write the records to `out` unless they are there, and print the metrics of a run, even if they cannot be."""
    try:
        if out is not None and not is_written:
            result.save(out)
    finally:
        print_run(result, as_json, everything)
        if by == "target" and not as_json:
            print_targets(result)
    if out is not None and not as_json:
        printing.remark(f"records: {out}")


def print_run(result: "Result", as_json: bool, everything: bool = False) -> None:
    """Print the five lines that come first of a run, or all its metrics."""
    from specfleet.experiments.console.headline import acceptance_text, headline
    from specfleet.fleet.records.metrics.glossary import PERCENTILES
    from specfleet.fleet.records.metrics.window import percentile_values

    metrics = result.metrics
    if as_json:
        printing.print_json(result.to_dict())
        return
    if everything:
        rows = [
            (
                name,
                number(metric.value),
                printing.interval(metric),
                *("" if value is None else number(value) for value in percentile_values(metric)),
                metric.unit,
            )
            for name, metric in metrics.items()
        ]
        printing.print_table(result.title(), ("metric", "value", "95 % interval", *PERCENTILES, "unit"), rows)
        if "mean_acceptance_length" in metrics:
            printing.say(acceptance_text(metrics["mean_acceptance_length"].value))
    else:
        printing.say(f"{result.title()}; 95 % intervals; --all prints all {len(metrics)} metrics")
        printing.say("\n".join(f"{name:<11} {text}" for name, text in headline(metrics).items()))
    if result.overload is not None:
        printing.say(
            f"{result.overload.line()}. Waits and latencies grow with the run's length: no steady state, no intervals"
        )
    printing.print_notes(result.notes)


def print_targets(result: "Result") -> None:
    """Print a row for each target: throughput, what it would have alone, and the times of its requests and rounds."""
    table = result.targets()
    columns = {
        "throughput": "tokens/s", "share_of_alone": "share of N = 1", "ttft_s": "TTFT, s",
        "tpot_p50_s": "TPOT P50, s", "tpot_p99_s": "TPOT P99, s", "wait_s": "wait, s",
    }  # fmt: skip
    shown = [name for name in columns if name in table]
    rows = [(str(row.tag + 1), *(number(getattr(row, name)) for name in shown)) for row in table.itertuples()]
    printing.print_table("each target", ("target", *(columns[name] for name in shown)), rows)
