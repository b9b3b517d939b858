"""The commands of a plan start the server that was simulated."""

import json
import shlex
from pathlib import Path

import pytest

from experiments.plan.candidates import Asked, Candidate, candidates_of
from experiments.plan.commands import serve_command, sglang_command
from fleet.data.shipped import shipped_models
from fleet.files import write_file
from fleet.scenario.scenario import Scenario, Workload

DEPTH = 2


def candidate(target: str, draft: str = "") -> Candidate:
    load = Scenario(workload=Workload(prompt_tokens=800, new_tokens=250))
    return candidates_of(Asked(target, tuple(filter(None, [draft])), ("0.8",), load))[0][-1]


@pytest.mark.parametrize(
    ("target", "draft", "in_flight", "vllm", "sglang"),
    [
        ("llama-3.1-70b@2xh100", "", 8, "--max-model-len 2048 --max-num-seqs 8 ",
         "--context-length 2048 --max-running-requests 8 "),
        ("llama-3.1-8b@l4", "", 2500, "--max-num-seqs 256 --max-num-batched-tokens 2048 ",
         "--max-running-requests 256 "),
        ("llama-3.1-70b@h100:int4", "lookup", 8, "checkpoints: llama-3.1-70b in int4", "NGRAM"),
        ("llama-3.1-70b@h100:fp8:kv-fp8", "", 8, "llama-3.1-70b --quantization fp8 --kv-cache-dtype fp8 ",
         "--kv-cache-dtype fp8_e5m2 "),
        ("gpt-oss-20b@h100:fp8", "", 8, "serve gpt-oss-20b --max-model-len", "checkpoints: gpt-oss-20b in fp8"),
        ("qwen2.5-72b@4xh100", "qwen2.5-0.5b", 8, "a drafter as its target", "4 devices cannot share 14 heads"),
        ("qwen2.5-72b@2xh100:fp8", "qwen2.5-0.5b", 8, '"use_heterogeneous_vocab": true', "STANDALONE"),
        ("qwen2.5-3b@h100", "qwen2.5-0.5b", 8, '"model": "qwen2.5-0.5b"}', "STANDALONE"),
        ("deepseek-r1@8xb200:bf16:mlp-nvfp4", "deepseek-mtp", 8, '{"method": "mtp", "num_speculative_tokens": 2}',
         "EAGLE --speculative-num-draft-tokens 3 --speculative-num-steps 2 "),
    ],
)  # fmt: skip
def test_commands_start_the_simulated_server(target: str, draft: str, in_flight: int, vllm: str, sglang: str) -> None:
    one = candidate(target, draft)
    assert vllm in serve_command(one, DEPTH * bool(draft), in_flight)
    assert sglang in sglang_command(one, DEPTH * bool(draft), in_flight)


def test_a_heads_kind_is_that_of_its_config(tmp_path: Path) -> None:
    head = tmp_path / "head"
    write_file(head / "config.json", json.dumps(shipped_models()["eagle3-llama-3.1-8b"]))
    one = candidate("llama-3.1-8b@h100", str(head))
    words = shlex.split(serve_command(one, DEPTH, 8), comments=True)
    assert json.loads(words[-1]) == {"method": "eagle3", "num_speculative_tokens": DEPTH, "model": str(head)}
    assert "--speculative-algorithm EAGLE3 " in sglang_command(one, DEPTH, 8)
