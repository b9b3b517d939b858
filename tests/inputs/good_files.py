"""Good files of every kind but scenarios, as our own code and the authors of others write them into a folder."""

import json
import random
import tomllib
from pathlib import Path

from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.records.run import write_run
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.times.profile import write_profile
from specfleet.sim.run import simulate
from tests.helpers.amusd_runs import any_machine, run_file
from tests.inputs.scenarios import scenario


def write_run_files(folder: Path) -> None:
    """Write a scenario and a run of it."""
    scenario("star")(folder)
    content = tomllib.loads((folder / "scenario.toml").read_text())
    write_run(simulate(make_scenario(content)), folder / "run.parquet")
    write_run(simulate(make_scenario(content)), folder / "other.parquet")


def write_signal_files(folder: Path) -> None:
    """Write a scenario, and the signals that it plays."""
    from specfleet.fleet.acceptance.signals import write_signals
    from specfleet.fleet.policies.outcome import Token

    scenario("aligned", acceptance={"model": "signals", "file": "signals.parquet"})(folder)
    rng = random.Random(1)
    sessions = [[Token(rng.random(), rng.random(), rng.random()) for _ in range(30)] for _ in range(3)]
    write_signals(sessions, folder / "signals.parquet")


def write_length_files(folder: Path) -> None:
    """Write a scenario and the lengths of its requests."""
    scenario("star", workload={"requests": 6, "lengths": "lengths.csv"})(folder)
    rows = "".join(f"{20 + request},{12 + 3 * request}\n" for request in range(6))
    (folder / "lengths.csv").write_text("num_prefill_tokens,num_decode_tokens\n" + rows)


def write_sweep(folder: Path) -> None:
    """Write a scenario and the folder of a sweep."""
    from specfleet import sweep

    scenario("ahead")(folder)
    sweep(folder / "scenario.toml", {"verifiers.count": [1, 2]}, out=folder / "swept", seeds=1, jobs=1)
    (cell,) = (folder / "swept" / "cells").glob("*1.json")
    assert cell.name == "verifiers.count=1.json"


def write_estimate(folder: Path) -> None:
    """Write what an estimate reads: a config.json and a device."""
    sizes = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "vocab_size": 100}
    config = {"model_type": "qwen3_moe", "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, **sizes}
    config |= {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "device.toml").write_text(shipped_files("devices")["h100"].read_text())


def write_estimated(folder: Path) -> None:
    """Write a scenario with an estimated profile."""
    from specfleet import estimate

    scenario("star", profile="estimated.json")(folder)
    write_profile(estimate("llama-3.1-8b@h100", "eagle3-llama-3.1-8b@h100"), folder / "estimated.json")


def write_amusd(folder: Path) -> None:
    """Write a run file of the AMUSD authors' form, as their program writes them for a made-up machine."""
    (folder / "runs.json").write_text(json.dumps(run_file(any_machine(7, tokens=400))))
