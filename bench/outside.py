"""Engines of others on this host: their closed loops and open loads, measured, and predicted from their step times.

With `--shared` the cells are shared prompts and conversations with the engine's prefix cache: which steps, hits and
evictions are not the station's. Else calibration loops on other prompts are run before all cells and among them, so
that a slow minute of the host falls on both. A cell has the error of the mechanism (simulated with a run's own steps
and acceptance), of the prediction from the profile alone, and the difference of two runs. Runs are kept, and a rerun of
the study finds them.
"""

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, StrMethodFormatter

from bench.harness import Aim, Options, Report, Row
from bench.others import ENGINES, KINDS, outside_engine
from bench.serving import DRAFTS, JUDGED, SHOWN, cell_row, judged_cell, total_row
from specfleet.calibration.assemble import profile_of_target
from specfleet.calibration.loops import depths_of, loop_of, recording_loop, rows_of
from specfleet.engine.launch.serve import serve
from specfleet.engine.outside.steps import DRAFTING, PROMPT
from specfleet.experiments.compare.compare import ComparedQuantity
from specfleet.experiments.console.printing import remark
from specfleet.figures.style import LINE_COLOURS, STYLE, new_figure, save
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.playback import playback_of
from specfleet.fleet.records.replay import replay, replay_stations
from specfleet.fleet.records.run import Run, read_run, write_run
from specfleet.fleet.scenario.reading import change_scenario, make_scenario, scenario_of
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.stations.build import stations
from specfleet.fleet.stations.verifier import VerifierStation
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.sim.run import simulate

LENGTHS = {"prompt_tokens": {"low": 64, "high": 256}, "new_tokens": {"low": 32, "high": 192}}
LIMITS = {"max_num_seqs": 16, "max_num_batched_tokens": 512}
MEAN_NEW_TOKENS = 112
DEEPEST, RECORDED = 8, 192  # of a calibration
LOADS = (0.3, 0.6, 0.9)
SHORT = {"none": ((0,), (1, 4, 16)), "small model": ((1, 2, 4, 8), (1, 4, 16)), "prompt lookup": ((4,), (1, 4, 16))}
WHOLE_ROWS = (1, 2, 4, 8, 16)
WHOLE = {
    "none": ((0,), WHOLE_ROWS), "small model": (tuple(range(1, 9)), WHOLE_ROWS),
    "prompt lookup": ((2, 4, 8), WHOLE_ROWS),
}  # fmt: skip
OPENED = {"none": 0, "small model": 4}  # drafts of the open loads
DRAWN = "predicted.json"  # tokens/s of an engine's cells
RERUN = 0.08  # difference of two runs from which a cell is run once more

CACHES = {"ample cache": 12768, "short cache": 2880}  # tokens: a short one loses contents, and rows their blocks
SHARING: dict[str, dict[str, Any]] = {
    "beginnings": {"shared": {"tokens": 128, "groups": 6, "zipf": 1.0}},
    "conversations": {"conversations": {"turns": {"low": 1, "high": 3}}},
    "both": {"shared": {"tokens": 96, "groups": 4}, "conversations": {"turns": {"low": 1, "high": 3}, "think_s": 0.1}},
}
SHARED = {"prompt_tokens": {"low": 32, "high": 160}, "new_tokens": {"low": 16, "high": 96}}
SHARED_DRAFTS = {"none": 0, "small model": 3}
SHARED_LOADS: Mapping[str, Mapping[str, Any]] = {
    "4 at once": {"streams": 4, "requests": 40}, "16 at once": {"streams": 16, "requests": 96},
    "open": {"arrivals": {"process": "poisson", "per_s": 4.0}, "requests": 60},
}  # fmt: skip

Grid = Mapping[str, tuple[Sequence[int], Sequence[int]]]
"""Depths and rows of the closed loops, by way to draft."""
Cells = dict[str, tuple[str, Scenario]]
"""Scenarios by name, each with its way to draft."""
BAND = 0.05  # around equality

KNOWN = (*ENGINES, "own")
OPTIONS: Options = {
    "--engine": {"nargs": "+", "choices": KNOWN, "default": ["vllm"], "help": "engines, in turn; own: ours"},
    "--shared": {"action": "store_true", "help": "shared prompts and conversations, with vLLM's prefix cache"},
    "--whole": {"action": "store_true", "help": "all depths and rows"},
    "--most-rows": {"type": int, "default": WHOLE_ROWS[-1], "help": "of closed loops, but for calibration's"},
    "--drafts": {"nargs": "*", "choices": list(SHORT), "default": list(SHORT), "help": "ways to draft"},
    "--seeds": {"type": int, "default": 5, "help": "simulations of each prediction"},
}


def study(options: argparse.Namespace) -> Report:
    """Measure each engine, compare its cells with their simulations, and draw all engines of the folder."""
    if options.shared:
        return shared_study(options)
    tables: dict[str, list[Row]] = {}
    aims = list[Aim]()
    for engine in options.engine:
        title, errors, runs = judged(engine, options)
        rates = {name: row["throughput"] for name, row in errors.items()}
        drawn = [Cell(rate.engine, rate.sim, len(runs[name]) > 2) for name, rate in rates.items()]
        (options.out / engine / DRAWN).write_bytes(msgspec.json.encode((title, drawn)))
        tables[f"{title}: errors of tokens/s | TPOT"] = [
            cell_row(name, own) | {"": "restless" if len(runs[name]) > 2 else ""} for name, own in errors.items()
        ]
        tables[f"{title}: mean absolute errors"] = [total_row(quantity, errors) for quantity in SHOWN]
        of_engine = aims_of(errors, [run for own in runs.values() for run in own])
        aims += [msgspec.structs.replace(aim, name=f"{title}: {aim.name}") for aim in of_engine]
    every = (path.read_bytes() for path in sorted(options.out.glob(f"*/{DRAWN}")))
    figure = draw(dict(msgspec.json.decode(one, type=tuple[str, list[Cell]]) for one in every))
    save(figure, options.out / "predicted.png", "Tokens a second, predicted from step times on other prompts.")
    return Report(tables, aims)


def judged(
    engine: str, options: argparse.Namespace
) -> tuple[str, dict[str, dict[str, ComparedQuantity]], dict[str, list[Run]]]:
    """Measure an engine's cells; return its name with its version, and errors and runs of the cells by name."""
    known = {**KINDS, "own": ("model", "lookup")}[engine]
    kinds = [kind for kind in options.drafts if DRAFTS[kind].get("kind", "model") in known]
    with running_on(engine) as run_on:
        grid = within(WHOLE if options.whole else SHORT, options.most_rows)
        cells, runs, profiles = measured(kinds, grid, Kept(options.out / engine, run_on))
    errors = {
        name: judged_cell(name, msgspec.structs.replace(scenario, profile=profiles[kind]), runs[name], options.seeds)
        for name, (kind, scenario) in cells.items()
    }
    return next(iter(runs.values()))[0].header.engine or "our engine", errors, runs


def shared_study(options: argparse.Namespace) -> Report:
    """Run vLLM on loads that share, once each, and hold its steps, hits and evictions against ours."""
    with running_on("vllm") as run_on:
        kept = Kept(options.out / "vllm, shared", run_on)
        rows = [shared_row(name, kept.run(name, scenario)) for name, (_, scenario) in shared_cells(options).items()]
    differing = [row for row in rows if row["steps that differ"] != "none"]
    apart = max([abs(row["hits, %"] - row["simulated, %"]) for row in rows if row not in differing], default=np.nan)
    aims = [
        Aim("cells with steps, hits or evictions that are not the station's", len(differing), 0),
        Aim("hits, simulated from a run's own step times: points", apart, 1.0),
    ]
    return Report({"vLLM with its prefix cache": rows}, aims)


def shared_cells(options: argparse.Namespace) -> Cells:
    """Return what prompts share, by ways to draft, sizes of the cache, and loads."""
    return {
        f"{kind}, {what}, {cache}, {load}": (
            kind,
            scenario_with(
                kind, depth, SHARED | shared | SHARED_LOADS[load],
                {"kv_tokens": tokens, "kv_block_size": 32, "prefix_cache": True},
            ),
        )
        for kind, depth in SHARED_DRAFTS.items() if kind in options.drafts
        for cache, tokens in CACHES.items()
        for what, shared in SHARING.items()
        for load in SHARED_LOADS
    }  # fmt: skip


def shared_row(name: str, run: Run) -> Row:
    """Return the line of such a cell; a run whose steps are not the station's keeps its answers alone."""
    if not run.header.steps:
        return {"cell": name, "steps that differ": "some"}
    scenario = change_scenario(run.header.scenario, {"profile": "a100"})  # of which the run's own times take the place
    played = simulate(scenario, playback_of(run))
    frame = run.frame()
    begun = frame[(frame.event == "start") & ~frame.kind.isin(DRAFTING)]
    again = begun.kind.isin(PROMPT) & (begun.base < (begun.base + begun.tokens).groupby(begun.request).shift())
    row: Row = {"cell": name, "steps": frame.step.nunique(), "steps that differ": "none"}
    row["preempted"] = int(again.sum())
    for title, own in (("", run), ("simulated, ", played)):
        row[f"{title or 'hits, '}%"] = 100 * measure(own)["prefix_hit_share"].value
        row[f"{title}evictions"] = evictions(own)
    return row


def evictions(run: Run) -> int:
    """Return how many contents a run's prefix cache loses, by its log."""
    fleet = run.header.fleet
    fresh = {name: station for name, station in stations(fleet).items() if isinstance(station, VerifierStation)}
    assert not replay_stations(run, fresh)
    return sum(station.rows.cache.evicted for station in fresh.values() if station.rows.cache)


def within(grid: Grid, most_rows: int) -> Grid:
    """Return the part of a grid with so many rows at most."""
    return {kind: (depths, [one for one in rows if one <= most_rows]) for kind, (depths, rows) in grid.items()}


def measured(
    drafts: Sequence[str], grid: Grid, kept: "Kept"
) -> tuple[Cells, dict[str, list[Run]], dict[str, HardwareProfile]]:
    """Run all cells twice, among calibrations; return cells and runs by name, and profiles by way to draft."""
    kinds = list(dict.fromkeys(("none", *drafts)))  # plain loops are part of all calibrations
    loops = {kind: list(kept.calibration(kind, 0)) for kind in kinds}
    each_pass = sum(map(len, loops.values()))
    cells = closed_cells(drafts, grid) | open_cells(drafts, loops)
    runs: dict[str, list[Run]] = {name: [] for name in cells}
    for number in (1, 2):
        further = ((kind, run) for kind in kinds for run in kept.calibration(kind, number))
        for before, (name, (_, scenario)) in enumerate(cells.items()):
            runs[name].append(kept.run(f"{name}, run {number}", scenario))
            due = each_pass * (before + 1) // len(cells) - each_pass * before // len(cells)
            for kind, run in islice(further, due):
                loops[kind].append(run)
    for name, (_, scenario) in cells.items():
        first, second = (measure(run)["throughput"].value for run in runs[name])
        if abs(first / second - 1) > RERUN:
            runs[name].append(kept.run(f"{name}, run 3", scenario))
    drafted = {kind: loops[kind] for kind in kinds if kind != "none"}
    return cells, runs, {kind: kept.profile(kind, loops["none"] + drafted.get(kind, [])) for kind in kinds}


@contextmanager
def running_on(engine: str) -> Iterator[Callable[[Scenario], Run]]:
    """Yield what runs a scenario on an engine; ours has the same core as others."""
    if engine != "own":
        with outside_engine(engine, remark) as outside:
            yield outside.run
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield lambda scenario: serve(scenario).run
    finally:
        os.sched_setaffinity(0, before)


class Kept:
    """Runs in a folder by name: those that are there are not run again."""

    def __init__(self, folder: Path, run_on: Callable[[Scenario], Run]) -> None:
        self.folder = folder
        self.run_on = run_on

    def run(self, name: str, scenario: Scenario) -> Run:
        """Return the run of that name, from its file or from the engine."""
        path = self.folder / f"{name}.parquet"
        if path.exists() and (kept := read_run(path)).header.scenario == scenario:
            return kept
        remark(name)
        run = self.run_on(scenario)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_run(run, path)
        return run

    def calibration(self, kind: str, number: int) -> Iterator[Run]:
        """Yield the loops of one pass of a calibration: by rows and depths; those without drafts are of all kinds."""
        scenario = calibrated(kind)
        for rows in rows_of(scenario):
            for depth in [depth for depth in depths_of(scenario) if bool(depth) == (kind != "none")]:
                loop = loop_of(scenario, rows, depth, number)
                yield self.run(f"calibration {number + 1}, {kind}, {rows} at once, depth {depth}", loop)

    def profile(self, kind: str, loops: Sequence[Run]) -> HardwareProfile:
        """Return the profile that all passes give, with the acceptance of further calibration prompts."""
        scenario, recorded = calibrated(kind), None
        if scenario.drafters.count:
            recorded = self.run(f"calibration, acceptance, {kind}", recording_loop(scenario, RECORDED))
        return profile_of_target(scenario, loops, recorded)


def calibrated(kind: str) -> Scenario:
    """Return what is calibrated of a way to draft: its deepest drafts, on other prompts."""
    return scenario_with(kind, DEEPEST, {"prompts": "demo/calibration"})


def scenario_with(
    kind: str, depth: int, workload: Mapping[str, Any], limits: Mapping[str, Any] | None = None
) -> Scenario:
    """Return a target with that way to draft under a load, and perhaps with further limits."""
    tables = {"drafters": {"depth": depth or 1} | DRAFTS[kind], "verifiers": {**LIMITS, **(limits or {})}}
    return scenario_of(make_scenario({"name": kind} | tables | {"workload": LENGTHS | workload}))


def closed_cells(drafts: Sequence[str], grid: Grid) -> Cells:
    """Return the closed loops: ways to draft by depths and rows."""
    return {
        f"{kind}{f' k={depth}' if depth else ''}, {rows} at once": (
            kind, scenario_with(kind, depth, {"streams": rows, "requests": 24 + 8 * rows})
        )
        for kind in drafts
        for depth in grid[kind][0]
        for rows in grid[kind][1]
    }  # fmt: skip


def open_cells(drafts: Sequence[str], loops: Mapping[str, Sequence[Run]]) -> Cells:
    """Return Poisson arrivals at shares of the rate that a calibration has with most rows."""
    cells: Cells = {}
    for kind in [kind for kind in drafts if kind in OPENED]:
        speculates = kind != "none"
        full = max(loops[kind], key=lambda run: run.header.fleet.streams)
        per_s = measure(full)["throughput"].value / MEAN_NEW_TOKENS
        for load in LOADS:
            arrivals = {"process": "poisson", "per_s": float(np.round(load * per_s, 2))}
            scenario = scenario_with(kind, OPENED[kind], {"arrivals": arrivals, "requests": round(40 + 60 * load)})
            cells[f"{kind}{f' k={OPENED[kind]}' if speculates else ''}, load {load:g}"] = kind, scenario
    return cells


def aims_of(judged: Mapping[str, Mapping[str, ComparedQuantity]], runs: Sequence[Run]) -> list[Aim]:
    """Return the bounds: steps and mechanism, predictions against reruns, and the best depth at each number of rows."""
    totals = {name: total_row(name, judged) for name in SHOWN}
    closed = {name: row for name, row in judged.items() if "load" not in name}
    opened = {name: row for name, row in judged.items() if "load" in name}
    aims, stepped = [], [run for run in runs if run.header.steps]
    if stepped:
        wrong = sum(bool(replay(run)) for run in stepped)
        aims = [Aim("runs whose steps are not those that the station plans", wrong, 0)]
    for name, some, most in (
        ("throughput", closed, 0.5), ("tpot_s", closed, 1.0), ("tpot_p99_s", closed, 5.0), ("tpot_s", opened, 2.0),
    ):  # fmt: skip
        if any(row[name].mechanism is not None for row in some.values()):
            what = "closed loops" if some is closed else "open loads"
            aims.append(Aim(f"{name}, {what}: mechanism, %", total_row(name, some)["mechanism, %"], most))
    for name in JUDGED:
        most = max(5.0, 1.25 * totals[name]["host, %"])
        aims.append(Aim(f"{name}: blind, %", totals[name]["blind, %"], most))
        beyond = max(over(row[name]) for row in judged.values())
        aims.append(Aim(f"{name}: worst cell beyond the larger of 12 % and twice its rerun error, %", beyond, 0.0))
    return [*aims, Aim("numbers of rows whose best depth is another, beyond rerun error", misranked(closed), 0)]


def over(row: ComparedQuantity) -> float:
    """Return by how many hundredths a prediction exceeds its bound; 0 within."""
    assert row.parameters is not None
    assert row.host is not None
    return 100 * max(row.parameters.absolute - max(0.12, 2 * row.host.absolute), 0.0)


def misranked(closed: Mapping[str, Mapping[str, ComparedQuantity]]) -> int:
    """Count the numbers of rows at which the cell with the best prediction is slower than the best by more than reruns.

    Cells without speculation take part: whether it pays is one of the rankings.
    """
    wrong = 0
    for rows in dict.fromkeys(name.rpartition(", ")[2] for name in closed):
        own = [row["throughput"] for name, row in closed.items() if name.rpartition(", ")[2] == rows]
        best, chosen = max(own, key=lambda row: row.engine), max(own, key=lambda row: row.sim)
        apart = max(row.host.absolute for row in (best, chosen) if row.host is not None)
        wrong += best.engine / chosen.engine - 1 > apart
    return wrong


class Cell(NamedTuple):
    """What was measured and predicted of a cell, and whether its own runs differ by more than 8 %."""

    measured: float
    predicted: float
    is_restless: bool


def draw(cells: Mapping[str, Sequence[Cell]], quantity: str = "tokens a second") -> Figure:
    """Draw predicted over measured values by engine, on logarithmic axes; restless cells are hollow."""
    values = [value for own in cells.values() for cell in own for value in (cell.measured, cell.predicted)]
    low, high = 0.8 * min(values), 1.25 * max(values)
    with rc_context(STYLE):
        figure = new_figure(4.8, 4.8)
        axes = figure.subplots()
        axes.fill_between(
            [low, high], [low * (1 - BAND), high * (1 - BAND)], [low * (1 + BAND), high * (1 + BAND)],
            color="#999999", alpha=0.3, lw=0, label=f"within {BAND:.0%}",
        )  # fmt: skip
        axes.plot([low, high], [low, high], color="#444444", lw=0.8)
        for number, (engine, own) in enumerate(cells.items(), 1):
            for is_restless, fill, label in ((False, LINE_COLOURS[number], engine), (True, "none", "")):
                some = [cell for cell in own if cell.is_restless == is_restless]
                measured, predicted = [cell.measured for cell in some], [cell.predicted for cell in some]
                axes.plot(measured, predicted, "o", ms=5, alpha=0.8, color=LINE_COLOURS[number], mfc=fill, label=label)
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
        for axis in (axes.xaxis, axes.yaxis):  # plain numbers, and not powers of ten
            axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            axis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1, 0.4)))
        axes.set_xlabel(f"measured {quantity}")
        axes.set_ylabel(f"predicted {quantity}")
        axes.plot([], [], "o", ms=5, color="#444444", mfc="none", label="two runs over 8% apart")
        figure.legend(loc="outside upper center", ncols=2, fontsize=8)
    return figure
