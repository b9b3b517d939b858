"""Passes over the modes: calibrate on calibration prompts, run on evaluation prompts; then predict from the profile.

Calibration and runs alternate, so that a host that is slow for a while slows all modes alike.
"""

import json
from pathlib import Path

import msgspec

from calibrate.batch_profile import BatchMeasured
from calibrate.batches import WHOLE, finish, measure_pass
from calibrate.run import QUICK, calibrate
from engine.decoding.models import CausalLM
from engine.demo_pair.corpus import read_prompts
from engine.launch.serve import serve
from experiments.compare import Row, compare_metrics
from experiments.modes.cases import Mode
from experiments.worlds import with_seed
from fleet.chance.signals import SIGNALS_FILE
from fleet.files import write_file
from fleet.records.metrics import combine, measure
from fleet.records.run import Run, write_run
from fleet.records.window import Metric
from fleet.scenario.reading import make_scenario
from fleet.scenario.scenario import Scenario
from fleet.times.profile import HardwareProfile, write_profile
from sim.run import simulate

SEEDS = 2  # replications for each run


class Progress(msgspec.Struct):
    """What the passes gave of one mode so far: measurements of a batch, or a fleet's profile; runs of each case."""

    batch: BatchMeasured
    profile: HardwareProfile | None
    runs: dict[str, list[Run]]


def run_pass(mode: Mode, large: CausalLM, number: int, known: Progress, out: Path) -> None:
    """One pass: calibrate, and run each case on its share of the evaluation prompts."""
    folder = out / mode.folder
    measured_on = on_prompts(mode.scenario, "demo/calibration")
    if mode.scenario.batch is not None:
        measure_pass(measured_on, large, number, known.batch)
    elif known.profile is None:  # a fleet's calibration goes over its own passes
        known.profile = calibrate(measured_on, folder, QUICK)
    prompts = str(share_of_prompts(out, number))
    for name, scenario in mode.cases.items():
        shared = on_prompts(scenario, prompts)
        # Replayed targets draw their times as the simulator does: what the scenario states, the rest from a profile.
        run = serve(msgspec.structs.replace(shared, profile=known.profile or scenario.profile), folder).run
        write_run(run, folder / f"engine-{name}-{number}.parquet")
        known.runs.setdefault(name, []).append(run)


def on_prompts(scenario: Scenario, prompts: str) -> Scenario:
    """The scenario on other prompts."""
    return msgspec.structs.replace(scenario, workload=msgspec.structs.replace(scenario.workload, prompts=prompts))


def share_of_prompts(out: Path, number: int) -> Path:
    """Write those evaluation prompts that pass `number` decodes; return their file."""
    path = out / f"evaluation-{number}.jsonl"
    lines = [json.dumps({"prompt_ids": prompt}) for prompt in read_prompts("evaluation")[number :: WHOLE.passes]]
    write_file(path, "\n".join(lines) + "\n")
    return path


def compare_mode(mode: Mode, large: CausalLM, known: Progress, folder: Path) -> list[Row]:
    """Finish the mode's profile and simulate its cases; return their rows."""
    profile = known.profile or finish(on_prompts(mode.scenario, "demo/calibration"), large, known.batch, folder)
    write_profile(profile, folder / "profile.json")
    rows = []
    for name, scenario in mode.cases.items():
        predicted = msgspec.structs.replace(scenario, profile=profile)
        if scenario.batch is not None and scenario.batch.allocate is not None:
            signals = make_scenario({"acceptance": {"model": "signals", "file": str(folder / SIGNALS_FILE)}})
            predicted = msgspec.structs.replace(predicted, acceptance=signals.acceptance)
        runs = known.runs[name]
        measured, case = combine([measure(run) for run in runs]), {"mode": mode.name, "case": name}
        rows += compare_metrics(case, simulated(predicted, SEEDS * len(runs)), measured)
    return rows


def simulated(scenario: Scenario, seeds: int) -> dict[str, Metric]:
    """Metrics over replications."""
    return combine([measure(simulate(with_seed(scenario, seed))) for seed in range(seeds)])
