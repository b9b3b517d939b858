"""Go over all modes; leave `comparison.json`, a figure, and of every mode its profile, signals and runs."""

import argparse
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from calibrate.batch_profile import BatchMeasured
from calibrate.batches import WHOLE
from engine.decoding.telemetry import host_facts
from engine.node.build import load_target
from experiments.compare import Row, summarise
from experiments.modes.cases import DEPTH, FLEET_REQUESTS, REQUESTS, VERIFY_S, modes
from experiments.modes.passes import SEEDS, Progress, compare_mode, run_pass
from experiments.terminal.exits import keeping
from experiments.terminal.numbers import positive
from experiments.terminal.printing import print_table, progress, remark
from figures import modes as figure
from figures.style import save
from fleet.files import check_folder, write_file
from fleet.scenario.settle import settle


def main() -> int:
    """Compare all modes, or those that are named; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.modes", description=__doc__)
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/modes"))
    parser.add_argument("--only", nargs="*", choices=[mode.name for mode in modes()], help="these; else all")
    parser.add_argument("--tolerance", type=positive, default=0.1, help="of throughput; exit 1 beyond")
    options = parser.parse_args()
    check_folder(options.out)
    with keeping(options.out):
        return compare(options)


def compare(options: argparse.Namespace) -> int:
    """Go over the modes, print what came out, and leave it in the folder; return the exit status."""
    chosen = [mode for mode in modes() if not options.only or mode.name in options.only]
    large = load_target(settle(chosen[0].scenario))  # all modes have the same
    known = {mode.name: Progress(BatchMeasured(), None, {}) for mode in chosen}
    with progress("modes", WHOLE.passes * len(chosen)) as advance:
        for number in range(WHOLE.passes):
            for mode in chosen:
                advance(f"{mode.name}, pass {number + 1} of {WHOLE.passes}")
                run_pass(mode, large, number, known[mode.name], options.out)
    rows: list[Row] = []
    with progress("predictions", len(chosen)) as advance:
        for mode in chosen:
            advance(mode.name)
            rows += compare_mode(mode, large, known[mode.name], options.out / mode.folder)
    table = pd.DataFrame([row_of(row) for row in rows])
    processor = host_facts()[0]["processor"]
    caption = (
        f"Demo pair on {processor}, one thread, float32, greedy, depth {DEPTH}: committed tokens a second, measured "
        f"in {WHOLE.passes} runs of {REQUESTS} evaluation prompts (fleets: {FLEET_REQUESTS}), and simulated ({SEEDS} "
        "replications of each) from a profile of calibration prompts. "
        f"Targets of fleets stand for accelerators that verify in {1000 * VERIFY_S:.0f} ms. Bars: 95 % intervals over "
        "the runs, the band is 10 %."
    )
    throughputs = table[table.quantity == "throughput"]
    show(table)
    write_file(options.out / "comparison.json", msgspec.json.format(msgspec.json.encode(summarise(rows))))
    save(figure.draw(throughputs), options.out / "modes.png", caption)
    beyond = throughputs[throughputs.error.abs() > options.tolerance]
    if len(beyond):
        remark(f"{len(beyond)} of {len(throughputs)} cases beyond {options.tolerance:.0%} in throughput")
    return 1 if len(beyond) else 0


def row_of(row: Row) -> dict[str, Any]:
    """A row of the table that is printed and drawn."""
    low, high = row.engine_interval
    return {
        "quantity": row.quantity, **row.case, "sim": row.sim, "engine": row.engine, "error": row.error,
        "engine_low": low, "engine_high": high,
    }  # fmt: skip


def show(table: pd.DataFrame) -> None:
    """Print throughput and acceptance of all cases."""
    wide = table.pivot_table(index=["mode", "case"], columns="quantity", values="error", sort=False)
    speeds = table[table.quantity == "throughput"].set_index(["mode", "case"])
    print_table(
        "simulation against engine",
        ("mode", "case", "engine, tokens/s", "sim, tokens/s", "error", "error of acceptance"),
        [
            (
                mode, case, f"{speeds.engine[mode, case]:.0f}", f"{speeds.sim[mode, case]:.0f}",
                *(f"{wide.loc[(mode, case), name]:+.1%}" for name in ("throughput", "acceptance_length")),
            )
            for mode, case in speeds.index
        ],
    )  # fmt: skip
