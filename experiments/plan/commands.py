"""The command lines that run a plan's servers, and that measure one of them."""

import json
from typing import Any

from experiments.plan.budget import Deployment, Load
from experiments.plan.candidates import Candidate
from experiments.plan.prices import devices_of
from fleet.scenario.lengths import Between
from fleet.scenario.scenario import Workload
from fleet.scenario.workload import mean_lengths

METHODS = {"lookup": "ngram", "head": "eagle", "beside": "draft_model"}  # vLLM's names
SGLANG = {"lookup": "NGRAM", "head": "EAGLE", "beside": "STANDALONE"}
ELSEWHERE = "no released server takes drafts from another host; `specfleet run` does"


def serve_command(one: Candidate, depth: int, in_flight: int) -> str:
    """Return vLLM's command for a method at a depth, with so many requests in flight; a line if it has none."""
    if one.method == "apart":
        return ELSEWHERE
    parts = ["vllm serve", *_model(one, "", "--tensor-parallel-size", "fp8")]
    parts.append(f"--max-num-seqs {in_flight} --max-num-batched-tokens {one.base.verifiers.max_num_batched_tokens}")
    if depth:
        config: dict[str, Any] = {"method": METHODS[one.method], "num_speculative_tokens": depth}
        if one.drafter:
            config["model"] = one.drafter
        if one.drafter.startswith("eagle3"):
            config["method"] = "eagle3"
        if one.drafter.endswith("-mtp"):  # a part of the target's checkpoint
            config = {"method": "mtp", "num_speculative_tokens": depth}
        parts.append(f"--speculative-config '{json.dumps(config)}'")
    return " ".join(parts)


def sglang_command(one: Candidate, depth: int, in_flight: int) -> str:
    """Return SGLang's command for the same server; its scheduler differs, so its times do."""
    if one.method == "apart":
        return ELSEWHERE
    parts = ["python -m sglang.launch_server", *_model(one, "--model-path ", "--tp", "fp8_e5m2")]
    parts.append(f"--max-running-requests {in_flight}")
    if depth:
        algorithm = SGLANG[one.method] + "3" * one.drafter.startswith("eagle3")
        parts.append(f"--speculative-algorithm {algorithm} --speculative-num-draft-tokens {depth + 1}")
        if one.drafter:
            parts.append(f"--speculative-draft-model-path {one.drafter}")
            parts.append(f"--speculative-num-steps {depth} --speculative-eagle-topk 1")
    return " ".join(parts)


def bench_command(fleet: Deployment, load: Load, workload: Workload) -> str:
    """Return the command that measures one of a fleet's targets at its share of the load.

    Requests that reach `replicas` targets in turn have gamma gaps of that shape at each. Acceptance depends on the
    prompts, so speculation is measured with the user's own, not with random ones.
    """
    replicas, model = fleet.replicas, fleet.candidate.target.rpartition("@")[0]
    prompt, answer = mean_lengths(workload)
    rate = f"--max-concurrency {-(-load.in_flight // replicas)}"
    if load.per_s:
        rate = f"--request-rate {load.per_s / replicas:.4g} --burstiness {replicas}"
    spread = 0.0
    if isinstance(workload.new_tokens, Between):
        spread = (workload.new_tokens.high - workload.new_tokens.low) / 2 / answer
    random = f"--dataset-name random --random-input-len {prompt:.0f} --random-output-len {answer:.0f}"
    if spread:
        random += f" --random-range-ratio {spread:.2g}"
    own = f"--dataset-name custom --dataset-path PROMPTS.jsonl --custom-output-len {answer:.0f}"
    return (
        f"vllm bench serve --model {model} {rate} {own if fleet.depth else random} --ignore-eos "
        f"--num-prompts {workload.requests // replicas} "
        "--percentile-metrics ttft,tpot,e2el --metric-percentiles 50,90,99"
    )


def _model(one: Candidate, flag: str, parallel: str, cache: str) -> list[str]:
    """Return a server's options for the model, the devices that share it, and precisions."""
    model, _, where = one.target.rpartition("@")
    precisions = where.split(":")[1:]
    count = devices_of(one.target)[1]
    return [
        f"{flag}{model}",
        *([f"{parallel} {count}"] if count > 1 else []),
        *(["--quantization fp8"] if "fp8" in precisions else []),
        *([f"--kv-cache-dtype {cache}"] if "kv-fp8" in precisions else []),
    ]
