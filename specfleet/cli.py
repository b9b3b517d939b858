"""The command line: the roof of the house. Each command imports its floor inside the function."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import msgspec
import typer

from experiments.printing import flat, interval, number, print_comparison, print_json, print_table, progress, screen
from fleet.errors import InputError

if TYPE_CHECKING:
    from fleet.records.run import Run
    from fleet.records.window import Metric
    from fleet.times.profile import HardwareProfile

app = typer.Typer(
    name="specfleet",
    help="Plan, simulate and measure distributed speculative decoding of large language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO", help="Scenario file (TOML).")]
Changes = Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the scenario.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
RunFile = Annotated[Path | None, typer.Option("-o", "--out", metavar="RUN", help="Write the records here (Parquet).")]


def main() -> NoReturn:
    """Entry point: bad input and missing optional parts become one line on standard error and exit status 2."""
    try:
        app(standalone_mode=False)
    except InputError as error:
        fail(str(error))
    except typer.Exit as end:
        sys.exit(end.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        fail("interrupted", status=130)
    except ModuleNotFoundError as error:
        if error.name not in {"torch", "transformers", "zmq", "tokenizers", "safetensors"}:
            raise
        fail(f"{error.name} is not installed; the engine needs it: pip install 'specfleet[engine]'")
    except Exception as error:
        show = getattr(error, "format_message", None)  # a usage error of the command line parser
        if show is None:
            raise
        fail(show())
    sys.exit(0)


def fail(message: str, status: int = 2) -> NoReturn:
    """Print one line on standard error and exit."""
    print(f"specfleet: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(status)


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
        screen.print(f"records: {out}")


@app.command()
def simulate(
    scenario: ScenarioFile,
    changes: Changes = [],  # noqa: B006
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

    read = read_scenario(scenario, changes)
    paces = paces_of(read_run(pace), settle(read).control_s) if pace else {}
    show_run(run_simulation(read, paces), as_json, out)


@app.command()
def run(
    scenario: ScenarioFile,
    changes: Changes = [],  # noqa: B006
    as_json: AsJson = False,
    out: RunFile = None,
    signals: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Record the signals of a batch's drafted tokens here (Parquet).")
    ] = None,
) -> None:
    """Run the same scenario on the real engine, on this host."""
    from engine.runtime.memory import accounts_of, tell
    from engine.runtime.serve import check_can_run, crowding, serve
    from fleet.chance.signals import write_signals
    from fleet.scenario.reading import read_scenario
    from fleet.scenario.settle import settle

    read = read_scenario(scenario, changes)
    fleet = settle(read)
    check_can_run(fleet)
    note = crowding(fleet)
    if note:
        screen.print(f"note: {note}")
    if signals is not None and (read.batch is None or read.drafters.shape.kind != "chain"):
        raise InputError(f"--signals {signals}: only chains of a [batch] tell signals, and {scenario} has none")
    for account in accounts_of(fleet):
        screen.print(f"cache of {tell(account)}")
    with screen.status("the engine is running"):
        served = serve(read, signals=signals is not None)
    if signals is not None:
        write_signals(list(served.signals.values()), signals)
    show_run(served.run, as_json, out)


@app.command()
def analytic(scenario: ScenarioFile, changes: Changes = [], as_json: AsJson = False) -> None:  # noqa: B006
    """Evaluate the analytic model: S, Z, N_full, N_max, regime, throughput, bounds."""
    from fleet.scenario.reading import read_scenario
    from sim.predict import predict

    prediction = predict(read_scenario(scenario, changes))
    content = msgspec.to_builtins(prediction)
    if as_json:
        print_json(content)
        return
    rows = [(name, text) for name, text in flat(content)]
    print_table(f"analytic model of {scenario}", ("quantity", "value"), rows)


@app.command()
def sweep(
    scenario: ScenarioFile,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Folder of the results.")],
    vary: Annotated[list[str], typer.Option(help="KEY=FIRST:LAST[:STEP] or KEY=A,B,C; may be repeated.")],
    world: Annotated[Literal["sim", "engine"], typer.Option(help="sim or engine.")] = "sim",
    seeds: Annotated[int, typer.Option(min=1, help="Replications a cell.")] = 3,
    jobs: Annotated[int, typer.Option(min=1, help="Cells at once (simulation only).")] = os.cpu_count() or 1,
    changes: Changes = [],  # noqa: B006
) -> None:
    """Vary any keys of a scenario; a rerun computes only what is missing."""
    from experiments.sweep import Result, cells_of
    from experiments.sweep import sweep as run_sweep

    with progress("sweep", len(list(cells_of(vary)))) as advance:

        def done(result: Result) -> None:
            advance(", ".join(f"{key}={value}" for key, value in result.cell.items()))

        results = run_sweep(scenario, vary, out, world, seeds, jobs, changes, done)
    rows = [
        (
            ", ".join(f"{key}={value}" for key, value in result.cell.items()),
            *([_interval(result.metrics.get(name)) for name in ("throughput", "rounds_per_s")]),
            result.error,
        )
        for result in results
    ]
    print_table(f"sweep in {out}", ("cell", "throughput, tokens/s", "rounds/s", "error"), rows)
    if any(result.error for result in results):
        fail(f"{sum(bool(result.error) for result in results)} of {len(results)} cells failed", status=1)


def _interval(metric: "Metric | None") -> str:
    return "-" if metric is None else f"{number(metric.value)} ({interval(metric)})"


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(metavar="RUN")],
    second: Annotated[Path, typer.Argument(metavar="RUN")],
    tolerance: Annotated[float, typer.Option(help="Largest relative error of throughput and rounds/s.")] = 0.05,
    as_json: AsJson = False,
) -> None:
    """Hold a simulated and a measured run against each other; exit status 1 beyond the tolerance."""
    from experiments.compare import compare_metrics, summarise, worst
    from fleet.records.metrics import measure
    from fleet.records.run import read_run

    runs = [read_run(first), read_run(second)]
    if runs[0].header.world == "engine" and runs[1].header.world == "sim":
        runs.reverse()  # the measured one is what errors refer to
    case = {"scenario": runs[1].header.scenario.name, "N": runs[1].header.scenario.verifiers.count}
    comparison = summarise(compare_metrics(case, *map(measure, runs)), runs[0].header.profile_digest)
    if as_json:
        print_json(comparison)
    else:
        print_comparison("comparison", comparison)
    beyond = [name for name in ("throughput", "rounds_per_s") if worst(comparison, name) > tolerance]
    if beyond:
        fail(f"{' and '.join(beyond)} differ by more than {tolerance:.1%}", status=1)


@app.command()
def calibrate(
    out: Annotated[Path, typer.Option("-o", "--out", metavar="PROFILE", help="Profile to write (JSON).")],
    draft: Annotated[str, typer.Option(help="Folder of the draft model, or demo.")] = "demo",
    target: Annotated[str, typer.Option(help="Folder of the target model, or demo.")] = "demo",
    depth: Annotated[int, typer.Option(min=1, help="Depth at which acceptance is recorded.")] = 5,
    precision: Annotated[str, typer.Option(help="float32, float64, bfloat16 or float16.")] = "float32",
    prompts: Annotated[str, typer.Option(help="demo/calibration, or a JSON Lines file.")] = "demo/calibration",
    prompt_tokens: Annotated[int, typer.Option(min=2)] = 128,
    new_tokens: Annotated[int, typer.Option(min=1)] = 96,
    quick: Annotated[bool, typer.Option("--quick", help="A smaller grid and fewer repetitions.")] = False,
    scenario: Annotated[
        Path | None,
        typer.Option(
            metavar="SCENARIO",
            help="Measure what it describes; of the options above, only --prompts and --quick apply then.",
        ),
    ] = None,
    changes: Changes = [],  # noqa: B006  (typer makes a list for each call)
    as_json: AsJson = False,
) -> None:
    """Measure a model pair on this host and write its hardware profile, with fits and residuals."""
    from calibrate.batches import STAGES as BATCH_STAGES
    from calibrate.batches import calibrate_batch
    from calibrate.run import QUICK, STAGES, Effort
    from calibrate.run import calibrate as measure_profile
    from fleet.scenario.reading import make_scenario, read_scenario

    if scenario is not None:
        measured = read_scenario(scenario, [*changes, f"workload.prompts={prompts}"])
    else:
        if changes:
            raise InputError("--set changes keys of a scenario; give one with --scenario")
        measured = make_scenario(
            {
                "name": "calibration",
                "precision": precision,
                "drafters": {"model": draft, "depth": depth},
                "verifiers": {"model": target},
                "workload": {"prompts": prompts, "prompt_tokens": prompt_tokens, "new_tokens": new_tokens},
            },
            "specfleet calibrate",
        )
    if measured.batch is not None:
        with progress("calibration", len(BATCH_STAGES)) as advance:
            profile = calibrate_batch(measured, out.parent, advance)
        screen.print(f"signals of drafted tokens, where the drafts are chains: {out.parent / 'signals.parquet'}")
    else:
        with progress("calibration", len(STAGES)) as advance:
            profile = measure_profile(measured, out.parent, QUICK if quick else Effort(), advance)
    _show_profile(profile, out, as_json)


def _show_profile(profile: "HardwareProfile", out: Path, as_json: bool) -> None:
    """Write a calibrated profile and print its fits, with how well they fit."""
    from fleet.times.describe import describe
    from fleet.times.profile import write_profile

    write_profile(profile, out)
    if as_json:
        print_json(profile)
    else:
        print_table(
            f"profile {profile.name}", ("quantity", "value", "fit's error (fitted | held out)"), describe(profile)
        )
        print("provenance: " + "; ".join(f"{key}: {value}" for key, value in profile.provenance.items()))
        screen.print(f"profile: {out} (digest {profile.digest()})")


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="Name of a table or figure of a paper; empty lists them.")] = "",
    profile: Annotated[Path | None, typer.Option(help="A calibrated profile, where this host stands in.")] = None,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="A run file of the authors (amusd-a100).")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="FILE", help="Draw the rows, too.")] = None,
    as_json: AsJson = False,
) -> None:
    """Reproduce a paper's table or figure: paper, ours, error, row by row."""
    from experiments.draw import save_reproduction
    from experiments.reproduce import REPRODUCTIONS
    from experiments.reproduce.rows import Inputs
    from fleet.times.profile import read_profile

    if name not in REPRODUCTIONS:
        if not name:
            print("\n".join(REPRODUCTIONS))
            return
        raise InputError(f"reproduce {name}: unknown; allowed: {', '.join(REPRODUCTIONS)}")
    measured = read_profile(str(profile.resolve()), Path()) if profile else None
    with screen.status(f"reproducing {name}"):
        reproduction = REPRODUCTIONS[name](Inputs(measured, str(trace) if trace else None))
    if out is not None:
        save_reproduction(reproduction, out)
        screen.print(f"figure: {out}")
    if as_json:
        print_json(reproduction)
        return
    rows = [
        (
            row.quantity,
            ", ".join(f"{key}={value}" for key, value in row.case.items()),
            row.kind,
            number(row.paper) if row.paper is not None else "-",
            number(row.ours) if row.ours is not None else "-",
            f"{row.error:+.1%}" if row.error is not None else "-",
        )
        for row in reproduction.rows
    ]
    print_table(name, ("quantity", "case", "kind", "paper", "ours", "error"), rows)
    for assumption in reproduction.assumptions:
        print(f"assumed: {assumption}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR")] = Path("runs/demo"),
    short: Annotated[bool, typer.Option("--short", help="A smaller grid, for continuous integration.")] = False,
) -> None:
    """Calibrate the demo pair here, sweep N in both worlds, compare, draw: the main job."""
    from experiments.demo.cells import FULL, SHORT
    from experiments.demo.run import run_demo

    effort = SHORT if short else FULL
    with progress("demo", effort.stages) as advance:
        result = run_demo(out, effort, advance)
    print_comparison("simulation at the pace of each run, against engine", result.comparison)
    print("\n".join(result.story))


@app.command()
def figure(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="throughput, timeline, draft-time, residuals or reproduction.")
    ],
    results: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS", help="A sweep's folder, a run (Parquet), a calibrated profile or a reproduction (JSON)."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE")],
) -> None:
    """Draw a figure from results."""
    from experiments.draw import FIGURES

    if name not in FIGURES:
        raise InputError(f"figure {name}: unknown; allowed: {', '.join(FIGURES)}")
    FIGURES[name](results, out)
    screen.print(f"figure: {out}")


@app.command()
def drafter(
    scenario: ScenarioFile,
    port: Annotated[int, typer.Option(help="Public port.")] = 5555,
    host: Annotated[str, typer.Option(help="Address to bind.")] = "0.0.0.0",  # noqa: S104  (a drafter serves other hosts)
    changes: Changes = [],  # noqa: B006
    out: RunFile = None,
) -> None:
    """Start the drafter of a real fleet on this host; ends with Ctrl-C, then writes its records."""
    from engine.runtime.nodes import serve_drafter
    from fleet.scenario.reading import read_scenario

    serve_drafter(read_scenario(scenario, changes), host, port, out)


@app.command()
def verifier(
    scenario: ScenarioFile,
    connect: Annotated[str, typer.Option(help="HOST:PORT of the drafter's public port.")] = "127.0.0.1:5555",
    target: Annotated[int, typer.Option(min=1, help="This target's number in the fleet, from 1.")] = 1,
    changes: Changes = [],  # noqa: B006
    out: RunFile = None,
) -> None:
    """Start one target of a real fleet on this host; it decodes its share of the requests."""
    from engine.runtime.nodes import serve_verifier
    from fleet.scenario.reading import read_scenario

    serve_verifier(read_scenario(scenario, changes), connect, target - 1, out)


if __name__ == "__main__":
    main()
