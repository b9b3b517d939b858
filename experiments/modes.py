"""Every way to decode, predicted and measured: `python -m experiments.modes -o runs/modes`.

Each mode is a scenario. It is calibrated on calibration prompts, run on evaluation prompts, and simulated from the
profile, blind and at the runs' pace. Calibration and runs go over all modes in passes, so that a slow spell of the host
falls on all of them alike. Leaves `comparison.json`, a figure, and of every mode its profile, signals and runs.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from calibrate.batch_profile import BatchMeasured
from calibrate.batches import PASSES, finish, go_over
from calibrate.run import QUICK, calibrate
from engine.demo_pair.corpus import read_prompts
from engine.fleet import load_target
from engine.models import CausalLM
from engine.serve import serve
from engine.telemetry import host_facts
from experiments.compare import Row, compare_metrics, summarise
from experiments.worlds import with_seed
from figures import modes as modes_figure
from figures.style import save
from sim.run import simulate
from specfleet.metrics import combine, measure
from specfleet.pace import Pace, paces_of
from specfleet.printing import print_table, progress
from specfleet.profile import HardwareProfile, write_profile
from specfleet.records import Run, write_run
from specfleet.scenario import Scenario, make_scenario
from specfleet.window import Metric

SIZES = (1, 2, 4, 8, 16)
RULES: dict[str, dict[str, Any]] = {
    "slots": {"policy": "slots"},
    "EqSpec": {"policy": "realign"},
    "EqSpec, online": {"policy": "realign", "fixed": False},
    "ExSpec": {"policy": "same-length"},
    "rollback": {"policy": "rollback"},
}
DRAFTERS: dict[str, dict[str, Any]] = {
    "tree": {"shape": {"kind": "tree", "branching": [3, 1]}},
    "dynamic tree": {"shape": {"kind": "dynamic", "width": 3, "most": 10}},
    "EAGLE chain": {"kind": "eagle"},
    "EAGLE tree": {"kind": "eagle", "shape": {"kind": "tree", "branching": [3, 1]}},
    "prompt lookup": {"kind": "lookup"},
}
LENGTHS: dict[str, dict[str, Any]] = {
    "DSDE": {"policy": "dsde"},
    "AdaEDL": {"policy": "adaedl"},
    "heuristic": {"policy": "heuristic", "most": 10},
    "constant 3": {"policy": "fixed", "depth": 3},
}
FLEETS = {"fleet": {}, "fleet, tree": DRAFTERS["tree"], "fleet, EAGLE chain": DRAFTERS["EAGLE chain"]}
TARGETS = (1, 4)  # of a fleet: they stand for accelerators that verify a draft in VERIFY_S
VERIFY_S = 0.01
DEPTH, LENGTHS_SIZE = 5, 8
REQUESTS, FLEET_REQUESTS, SEEDS = 128, 48, 2  # of one run, and replications for it; each case is run once a pass


class Mode(msgspec.Struct, frozen=True):
    """A mode that is calibrated once, at its largest size, and the cases that are predicted from that."""

    name: str
    scenario: Scenario
    cases: dict[str, Scenario]

    @property
    def folder(self) -> str:
        """Name of the folder of what it leaves."""
        return self.name.replace(", ", "-").replace(" ", "-")


def mode_of(name: str, batch: Mapping[str, Any], drafters: Mapping[str, Any], sizes: tuple[int, ...]) -> Mode:
    """A mode with a case for each size."""

    def of_size(size: int) -> Scenario:
        rule = (
            batch["rule"] | {"size": size} | ({"window": 3 * size} if batch["rule"]["policy"] == "same-length" else {})
        )
        return make_scenario(
            {
                "name": f"{name}, {size}",
                "batch": {**batch, "rule": rule, "padded": False},
                "drafters": {"depth": DEPTH, **drafters},
                "workload": {
                    "requests": REQUESTS, "prompt_tokens": {"low": 96, "high": 192}, "new_tokens": 48,
                },
            }
        )  # fmt: skip

    return Mode(name, of_size(max(sizes)), {f"{size}": of_size(size) for size in sizes})


def fleet_of(name: str, drafters: Mapping[str, Any]) -> Mode:
    """A mode of several processes: one drafter for targets that replay."""
    stated = {"base_s": VERIFY_S}

    def of_count(count: int) -> Scenario:
        return make_scenario(
            {
                "name": f"{name}, {count}",
                "drafters": {"depth": DEPTH, **drafters},
                "verifiers": {"kind": "replayed", "count": count, "verify": stated, "prefill": stated},
                "workload": {"requests": FLEET_REQUESTS, "prompt_tokens": 128, "new_tokens": 96},
            }
        )

    return Mode(name, of_count(1), {f"{count}": of_count(count) for count in TARGETS})


def modes() -> Iterator[Mode]:
    """All modes: batch rules, then kinds and shapes of drafts one at a time, then length rules, then fleets."""
    for name, rule in RULES.items():
        yield mode_of(name, {"rule": rule}, {}, SIZES)
    for name, drafters in DRAFTERS.items():
        yield mode_of(name, {"rule": RULES["slots"]}, drafters, (1,))
    for name, allocate in LENGTHS.items():
        yield mode_of(name, {"rule": RULES["slots"], "allocate": allocate}, {}, (LENGTHS_SIZE,))
    for name, drafters in FLEETS.items():
        yield fleet_of(name, drafters)


class Progressed(msgspec.Struct):
    """What the passes gave of one mode so far: measurements of a batch, or a fleet's profile; runs of each case."""

    batch: BatchMeasured
    profile: HardwareProfile | None
    runs: dict[str, list[Run]]


def go_over_mode(mode: Mode, large: CausalLM, number: int, known: Progressed, out: Path) -> None:
    """One pass: calibrate, and run each case on its share of the evaluation prompts."""
    folder = out / mode.folder
    folder.mkdir(parents=True, exist_ok=True)
    measured_on = on_prompts(mode.scenario, "demo/calibration")
    if mode.scenario.batch is not None:
        go_over(measured_on, large, number, known.batch)
    elif known.profile is None:  # a fleet's calibration goes over its own passes
        known.profile = calibrate(measured_on, folder, QUICK)
    for name, scenario in mode.cases.items():
        run = serve(on_prompts(scenario, str(share_of_prompts(out, number))), folder).run
        write_run(run, folder / f"engine-{name}-{number}.parquet")
        known.runs.setdefault(name, []).append(run)


def on_prompts(scenario: Scenario, prompts: str) -> Scenario:
    """The scenario on other prompts."""
    return msgspec.structs.replace(scenario, workload=msgspec.structs.replace(scenario.workload, prompts=prompts))


def share_of_prompts(out: Path, number: int) -> Path:
    """Return the file of those evaluation prompts that pass `number` decodes."""
    path = out / f"evaluation-{number}.jsonl"
    if not path.exists():
        lines = [json.dumps({"prompt_ids": prompt}) for prompt in read_prompts("evaluation")[number::PASSES]]
        path.write_text("\n".join(lines) + "\n")
    return path


def compare_mode(mode: Mode, large: CausalLM, known: Progressed, folder: Path) -> tuple[list[Row], list[Row]]:
    """Finish the mode's profile and simulate its cases; return blind rows and rows at the runs' pace."""
    profile = known.profile or finish(on_prompts(mode.scenario, "demo/calibration"), large, known.batch, folder)
    write_profile(profile, folder / "profile.json")
    blind, paced = [], []
    for name, scenario in mode.cases.items():
        predicted = msgspec.structs.replace(scenario, profile=profile)
        if scenario.batch is not None and scenario.batch.allocate is not None:
            signals = make_scenario({"acceptance": {"model": "signals", "file": str(folder / "signals.parquet")}})
            predicted = msgspec.structs.replace(predicted, acceptance=signals.acceptance)
        runs = known.runs[name]
        measured, case = combine([measure(run) for run in runs]), {"mode": mode.name, "case": name}
        paces = [paces_of(run, profile.control_s) for run in runs]
        blind += compare_metrics(case, simulated(predicted, [{}] * len(runs)), measured)
        paced += compare_metrics(case, simulated(predicted, paces), measured)
    return blind, paced


def simulated(scenario: Scenario, paces: Sequence[Mapping[str, Pace]]) -> dict[str, Metric]:
    """Metrics over replications, some for each run's pace."""
    return combine(
        [
            measure(simulate(with_seed(scenario, SEEDS * number + seed), pace))
            for number, pace in enumerate(paces)
            for seed in range(SEEDS)
        ]
    )


def main() -> None:
    """Compare all modes, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/modes"))
    parser.add_argument("--only", nargs="*", choices=[mode.name for mode in modes()], help="these; else all")
    parser.add_argument("--tolerance", type=float, default=0.1, help="of throughput, at the run's pace; exit 1 beyond")
    options = parser.parse_args()
    chosen = [mode for mode in modes() if not options.only or mode.name in options.only]
    options.out.mkdir(parents=True, exist_ok=True)
    large = load_target(chosen[0].scenario)  # all modes have the same
    known = {mode.name: Progressed(BatchMeasured(), None, {}) for mode in chosen}
    with progress("modes", PASSES * len(chosen)) as advance:
        for number in range(PASSES):
            for mode in chosen:
                advance(f"{mode.name}, pass {number + 1} of {PASSES}")
                go_over_mode(mode, large, number, known[mode.name], options.out)
    blind: list[Row] = []
    paced: list[Row] = []
    with progress("predictions", len(chosen)) as advance:
        for mode in chosen:
            advance(mode.name)
            own_blind, own_paced = compare_mode(mode, large, known[mode.name], options.out / mode.folder)
            blind += own_blind
            paced += own_paced
    comparison = {"paced": summarise(paced), "blind": summarise(blind)}
    (options.out / "comparison.json").write_bytes(msgspec.json.format(msgspec.json.encode(comparison)))
    table = pd.DataFrame([row_of(row, how) for how, rows in (("paced", paced), ("blind", blind)) for row in rows])
    processor = host_facts()[0]["processor"]
    caption = (
        f"Demo pair on {processor}, one thread, float32, greedy, speculation length {DEPTH}: tokens a second, measured "
        f"in {PASSES} runs of {REQUESTS} evaluation prompts (fleets: {FLEET_REQUESTS}), and simulated ({SEEDS} "
        "replications of each) from a profile of calibration prompts, at the pace that the host had in the runs. "
        f"Targets of fleets stand for accelerators that verify in {1000 * VERIFY_S:.0f} ms. Bars: 95 % intervals over "
        "the runs, the band is 10 %."
    )
    paced_rows = table[(table.how == "paced") & (table.quantity == "throughput")]
    save(modes_figure.draw(paced_rows), options.out / "modes.png", caption)
    show(table)
    beyond = paced_rows[paced_rows.error.abs() > options.tolerance]
    if len(beyond):
        sys.exit(f"{len(beyond)} of {len(paced_rows)} cases beyond {options.tolerance:.0%} in throughput")


def row_of(row: Row, how: str) -> dict[str, Any]:
    """A row of the table that is printed and drawn."""
    low, high = row.engine_interval
    return {
        "how": how, "quantity": row.quantity, **row.case, "sim": row.sim, "engine": row.engine, "error": row.error,
        "engine_low": low, "engine_high": high,
    }  # fmt: skip


def show(table: pd.DataFrame) -> None:
    """Print throughput and acceptance of all cases."""
    wide = table.pivot_table(index=["mode", "case"], columns=["quantity", "how"], values="error", sort=False)
    speeds = table[(table.quantity == "throughput") & (table.how == "paced")].set_index(["mode", "case"])
    print_table(
        "simulation against engine",
        ("mode", "case", "engine, tokens/s", "sim, tokens/s", "error at pace", "error blind", "error of acceptance"),
        [
            (
                mode, case, f"{speeds.engine[mode, case]:.0f}", f"{speeds.sim[mode, case]:.0f}",
                *(f"{wide.loc[(mode, case), column]:+.1%}" for column in (
                    ("throughput", "paced"), ("throughput", "blind"), ("acceptance_length", "paced"),
                )),
            )
            for mode, case in speeds.index
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
