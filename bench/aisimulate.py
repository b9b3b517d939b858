"""NVIDIA's aisimulate beside our estimates: mean TPOT and TTFT of measured runs, with the same requests and limits.

Its command is installed apart (`pip install aisimulate`). Runs are drawn at random among those that are not doubtful;
one that aisimulate refuses is counted, and the next one takes its place.
"""

import argparse
import json
import random
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from bench.harness import Aim, Options, Report, Row, data_file, data_option
from bench.serving_rows import FILE, MeasuredRun, is_mixture, predicted, read_runs, serving_scenario
from specfleet.fleet.hardware.shipped import shape_of
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import streams_of

SEED, LARGE = 57, 1 << 18  # tokens of a wave of answers, from which on a run takes long
BLOCK = 512  # tokens of a block of a trace
MODES = ("gemm_quant_mode", "moe_quant_mode")
NAMES = {  # of theirs, which come with a config.json
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Meta-Llama-3.1-8B",
    "meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
}
OPTIONS: Options = {
    **data_option(FILE),
    "--rows": {"type": int, "default": 15, "help": "runs of each group"},
    "--command": {"default": "aisimulate", "help": "where NVIDIA's command is"},
}


def study(options: argparse.Namespace) -> Report:
    """Compare the errors of both, group by group."""
    file = data_file(options.data, FILE)
    cells = pd.read_csv(file, keep_default_na=False, low_memory=False, index_col="id")
    groups = defaultdict[str, list[MeasuredRun]](list)
    for run in sorted(read_runs(file)[0], key=lambda run: run.name):
        if not run.lacks and not run.doubt and run.concurrency * run.new_tokens <= LARGE:
            kind = f", {'mixtures' if is_mixture(run.model) else 'dense'}" if run.backend == "vllm" else ""
            groups[f"{run.backend}{kind}"].append(run)
    rows, summary = list[Row](), list[Row]()
    for group, runs in sorted(groups.items()):
        random.Random(SEED).shuffle(runs)
        made, refused = list[Row](), 0
        while runs and len(made) < options.rows:
            run = runs.pop()
            theirs = theirs_ms(options.command, run, cells.loc[run.name].to_dict())
            refused += theirs is None
            made += [] if theirs is None else [compared(group, run, theirs)]
        rows += made
        errors = {name: 100 * statistics.fmean(abs(row[name]) for row in made) for name in ERRORS} if made else {}
        summary.append({"group": group, "runs": len(made), "refused": refused, **errors})
    behind = sum(row.get(ERRORS[0], 1.0) >= row.get(ERRORS[1], 0.0) for row in summary)
    return Report({"runs": rows, "errors, %": summary}, [Aim("groups in which their TPOT is nearer", behind, 1)])


ERRORS = ("TPOT, ours", "TPOT, theirs", "TTFT, ours", "TTFT, theirs")


def compared(group: str, run: MeasuredRun, theirs_tpot_ttft_ms: tuple[float, float]) -> Row:
    """Return the signed errors of both on one run."""
    ours, (tpot_ms, ttft_ms) = predicted(run), theirs_tpot_ttft_ms
    signed = (ours.tpot_ms / run.tpot_ms, tpot_ms / run.tpot_ms, ours.ttft_ms / run.ttft_ms, ttft_ms / run.ttft_ms)
    return {"group": group, "run": run.name, **{name: of - 1 for name, of in zip(ERRORS, signed, strict=True)}}


def theirs_ms(command: str, run: MeasuredRun, cells: dict[str, Any]) -> tuple[float, float] | None:
    """Return aisimulate's mean TPOT and TTFT of a run; None where it refuses it.

    `cells`: the run's row of NVIDIA's file, with the names of its model, device and precisions there.
    """
    scenario, modes = serving_scenario(run), {name: cells[name] for name in MODES if cells[name]}
    limits, experts = scenario.verifiers, min(int(float(cells["moe_ep_size"] or 1)), run.devices)
    parallel = {"tensor": run.devices}
    if is_mixture(run.model):
        parallel |= {"moe_tensor": run.devices // experts, "moe_expert": experts}
    scheduler = {"max_batched_tokens": limits.max_num_batched_tokens, "max_sequences": limits.max_num_seqs}
    model = NAMES.get(cells["model_path"], cells["model_path"])
    engine = {"model": model, "hardware": cells["system"], "backend": run.backend}
    engine["workers"] = {"aggregated": {"parallelism": parallel, "scheduler": scheduler}}
    tries = [engine | modes] * (not shape_of(run.model).quantised)
    if is_mixture(run.model) and (run.precision != "fp4" or shape_of(run.model).quantised):
        tries.append(engine)  # the checkpoint's own precisions
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.jsonl"
        trace.write_text("\n".join(map(json.dumps, requests_in(scenario))))
        source = {"type": "trace", "paths": [str(trace)], "format": "mooncake", "block_size": BLOCK}
        traffic = {"source": source, "load": {"type": "concurrency", "concurrency": run.concurrency}}
        for tried in tries:
            (Path(folder) / "run.yaml").write_text(json.dumps({"traffic": traffic, "engine": tried}))  # JSON is YAML
            options = ("-c", f"{folder}/run.yaml", "--output-dir", f"{folder}/out", "--overwrite", "--format", "json")
            made = subprocess.run((command, "predict", *options), check=False, capture_output=True, text=True)  # noqa: S603
            if not made.returncode:
                answer = json.loads(made.stdout.splitlines()[-1])
                return float(answer["mean_tpot_ms"]), float(answer["mean_ttft_ms"])
    return None


def requests_in(scenario: Scenario) -> Iterator[dict[str, Any]]:
    """Yield the requests that ours has, as Mooncake's trace has them, without a block in common."""
    first = 0
    for request in sorted(chain(*streams_of(resolve(scenario)).values()), key=lambda request: request.number):
        after = first - (-request.prompt_tokens // BLOCK)
        lengths = {"input_length": request.prompt_tokens, "output_length": request.new_tokens}
        yield {"timestamp": 0, **lengths, "hash_ids": list(range(first, after))}
        first = after
