"""The commands of a plan start the server that was simulated."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from specfleet.experiments.plan.candidates import Candidate
from specfleet.experiments.plan.commands import bench_command, server_commands
from specfleet.experiments.plan.deployments import Deployment, Load
from specfleet.fleet.data.shipped import shipped_models
from specfleet.fleet.files import write_file
from specfleet.fleet.scenario.lengths import Between
from specfleet.fleet.scenario.scenario import Scenario, Workload
from tests.helpers.plans import candidates

DEPTH = 2


def candidate(target: str, draft: str = "") -> Candidate:
    load = Scenario(workload=Workload(prompt_tokens=800, new_tokens=250))
    return candidates(target, *filter(None, [draft]), scenario=load)[-1]


@pytest.mark.parametrize(
    ("target", "draft", "vllm", "sglang"),
    [
        ("llama-3.1-70b@2xh100", "", "--max-model-len 2048 --max-num-seqs 1024 ",
         "--context-length 2048 --max-running-requests 1024 "),
        ("llama-3.1-8b@l4", "", "--max-num-seqs 256 --max-num-batched-tokens 2048 ",
         "--max-running-requests 256 "),
        ("llama-3.1-8b@h100", "", "--max-num-seqs 1024 --max-num-batched-tokens 8192 ", ""),
        ("llama-3.1-8b@a100-80gb", "", "--max-num-seqs 256 --max-num-batched-tokens 2048 ", ""),
        ("llama-3.1-70b@h100:int4", "lookup", "serve PATH_OF-llama-3.1-70b-int4 --max", "NGRAM"),
        ("llama-3.1-70b@h100:fp8:kv-fp8", "", "Llama-3.1-70B --quantization fp8 --kv-cache-dtype fp8 ",
         "--kv-cache-dtype fp8_e5m2 "),
        ("gpt-oss-20b@h100:fp8", "", "serve PATH_OF-gpt-oss-20b-fp8 --max-model-len",
         "--model-path PATH_OF-gpt-oss-20b-fp8 "),
        ("qwen2.5-72b@4xh100", "qwen2.5-0.5b", "a drafter as its target", "4 devices cannot share 14 heads"),
        ("qwen2.5-72b@2xh100:fp8", "qwen2.5-0.5b", '"use_heterogeneous_vocab": true', "STANDALONE"),
        ("qwen2.5-3b@h100", "qwen2.5-0.5b", '"model": "Qwen/Qwen2.5-0.5B"}', "STANDALONE"),
        ("deepseek-r1@8xb200:bf16:mlp-nvfp4", "deepseek-mtp", '{"method": "mtp", "num_speculative_tokens": 2}',
         "EAGLE --speculative-num-draft-tokens 3 --speculative-num-steps 2 "),
        ("qwen3-8b@h100", "dflash-qwen3-8b", '{"method": "dflash", "num_speculative_tokens": 2, "model": ',
         "DFLASH --speculative-num-draft-tokens 3 --speculative-draft-model-path z-lab/Qwen3-8B-DFlash-b16 #"),
        ("qwen3-8b@h100", "dspark-qwen3-8b", '{"method": "dspark", "num_speculative_tokens": 2, "model": ',
         "DSPARK --speculative-dspark-block-size 2 --speculative-draft-model-path PATH_OF-dspark-qwen3-8b #"),
        ("qwen3-8b@h100", "pard-qwen3-0.6b", '"model": "amd/PARD-Qwen3-0.6B", "parallel_drafting": true}',
         "SGLang has nothing like pard-qwen3-0.6b; vLLM does"),
        ("gpt-oss-20b@h100", "", "serve openai/gpt-oss-20b --max-model-len", "checkpoints have the planned sizes"),
        ("Qwen/Qwen3-8B@h100", "", "serve Qwen/Qwen3-8B --max-model-len", "limits as planned for the planned load"),
        ("llama-3.1-8b@h100", "suffix", '{"method": "suffix", "num_speculative_tokens": 2}', "like suffix"),
    ],
)  # fmt: skip
def test_commands_start_the_simulated_server(target: str, draft: str, vllm: str, sglang: str) -> None:
    one = candidate(target, draft)
    commands = server_commands(one, DEPTH * bool(draft))
    assert vllm in commands[0]
    assert sglang in commands[-1]


@pytest.mark.parametrize(
    ("changes", "lengths", "spreads", "is_uniform"),
    [
        ({}, "800 --random-output-len 250", None, True),
        ({"new_tokens": Between(225, 275)}, "800 --random-output-len 250", {"input": 0.0, "output": 0.1}, True),
        ({"new_tokens": Between(1, 999, 250, 0.3)}, "800 --random-output-len 250", {"input": 0, "output": 0.52}, False),
        ({"lengths": "sharegpt"}, "161 --random-output-len 338", {"input": 0.99, "output": 0.99}, False),
        ({"lengths": "texts.csv"}, "200 --random-output-len 20", {"input": 0.86, "output": 0.0}, False),
    ],
)  # fmt: skip
def test_the_load_of_a_measurement_is_as_long_and_as_spread(
    changes: dict[str, Any], lengths: str, spreads: Any, is_uniform: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("texts.csv").write_text("num_prefill_tokens,num_decode_tokens\n100,20\n300,20\n")
    load = Workload(**({"prompt_tokens": 800, "new_tokens": 250} | changes))
    fleet = Deployment(candidates("llama-3.1-8b@h100", scenario=Scenario(workload=load))[0], 2)
    command = bench_command(fleet, Load(per_s=4.0), fleet.scenario(Load(per_s=4.0), 2000))
    assert f"--random-input-len {lengths} " in command
    words = shlex.split(command, comments=True)
    ratios = [json.loads(words[place + 1]) for place, word in enumerate(words) if word == "--random-range-ratio"]
    assert ratios == ([] if spreads is None else [pytest.approx(spreads, abs=0.03)])
    assert ("# vLLM draws uniform lengths" in command) is not is_uniform
    assert words[-2:] == ["--metric-percentiles", "50,90,99"]


@pytest.mark.parametrize(
    ("load", "rate"),
    [
        (Load(each=8), "--max-concurrency 8 "),
        (Load(in_flight=9), "--max-concurrency 5 "),
        (Load(per_s=4), "--request-rate 2 "),
    ],
)
def test_one_of_two_targets_is_measured_at_its_share(load: Load, rate: str) -> None:
    fleet = Deployment(candidate("llama-3.1-8b@h100"), 2)
    assert rate in bench_command(fleet, load, fleet.scenario(load, 2000))


@pytest.mark.parametrize("name", ["my models; touch x", "it's $HOME", "two\nlines"])
def test_names_are_quoted_for_a_shell(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    write_file(folder / "config.json", json.dumps(shipped_models()["llama-3.1-8b"]))
    one = candidate(f"{folder}@h100", str(folder))
    fleet, load = Deployment(one, 1, DEPTH), Load(per_s=4.0)
    for command in (*server_commands(one, DEPTH), bench_command(fleet, load, fleet.scenario(load, 2000))):
        assert str(folder) in shlex.split(command, comments=True)


def test_a_heads_kind_is_that_of_its_config(tmp_path: Path) -> None:
    head = tmp_path / "head"
    write_file(head / "config.json", json.dumps(shipped_models()["eagle3-llama-3.1-8b"]))
    one = candidate("llama-3.1-8b@h100", str(head))
    vllm, sglang = server_commands(one, DEPTH)
    words = shlex.split(vllm, comments=True)
    assert json.loads(words[-1]) == {"method": "eagle3", "num_speculative_tokens": DEPTH, "model": str(head)}
    assert "--speculative-algorithm EAGLE3 " in sglang
