"""LLMServingSim's runs: a run that is simulated from its own tables is predicted without an error."""

import json
from argparse import Namespace
from pathlib import Path

import pandas as pd
import pytest

from bench.llmservingsim import RUNS, TABLES, predicted, scenario_of_run, study
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.reading import change_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.sim.fast.choice import unsupported_in
from tests.fleet.test_operators import write

MODEL = "meta-llama/Llama-3.1-8B"


def made(data: Path) -> Path:
    """Write tables, and a run without its times, whose cache holds two requests of five; return its folder."""
    tables, folder = data / TABLES / "RTX4090" / MODEL, data / RUNS / "RTX4090" / "Llama-3.1-8B"
    for place in (tables, folder):
        place.mkdir(parents=True)
    write(tables)
    limits = {"max_num_seqs": 4, "max_num_batched_tokens": 64}
    meta = {"engine_kwargs": {"model": MODEL, "tensor_parallel_size": 1, **limits}, "kv_cache": {"num_kv_tokens": 128}}
    (folder / "meta.json").write_text(json.dumps(meta))
    (folder / "timeseries.csv").write_text("t,running,waiting,kv_cache_pct\n1.0,4,1,90\n")
    return folder


def test_a_simulated_run_is_predicted_without_an_error(tmp_path: Path) -> None:
    folder = made(tmp_path)
    asked = pd.DataFrame({"queued_ts": [5.0, 5.1, 5.1, 5.2, 5.3], "input_toks": 30, "output_toks": 20})
    run, steps, preempted = predicted(scenario_of_run(tmp_path, folder, asked, tmp_path))
    assert preempted
    assert steps.kv_cache_pct.max() <= 100
    assert steps.waiting.max()
    rows = run.assign(input_toks=30).to_dict("records")
    (folder / "requests.jsonl").write_text("\n".join(map(json.dumps, rows)))
    report = study(Namespace(data=tmp_path, out=tmp_path / "out"))
    assert [aim.value for aim in report.aims] == pytest.approx([0, 0], abs=1e-6)
    assert (tmp_path / "out" / "llmservingsim.png").is_file()


def test_measured_attention_leaves_the_compiled_loop(tmp_path: Path) -> None:
    asked = pd.DataFrame({"queued_ts": [5.0], "input_toks": 30, "output_toks": 20})
    scenario = scenario_of_run(tmp_path, made(tmp_path), asked, tmp_path)
    fleet = resolve(change_scenario(scenario, {"verifiers.prefix_cache": False}))
    assert unsupported_in(fleet) == "tables of measured attention"


def test_folders_without_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give --data FOLDER"):
        study(Namespace(data=tmp_path, out=tmp_path))
