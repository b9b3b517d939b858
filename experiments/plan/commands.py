"""The command line of a server that runs a plan."""

import json
from typing import Any

from experiments.plan.candidates import Candidate

METHODS = {"lookup": "ngram", "head": "eagle", "beside": "draft_model"}  # vLLM's names
ELSEWHERE = "no released server takes drafts from another host; `specfleet run` does"


def serve_command(one: Candidate, depth: int, in_flight: int) -> str:
    """Return vLLM's command for a method at a depth, with so many requests in flight; a line if it has none."""
    if one.method == "apart":
        return ELSEWHERE
    model, _, where = one.target.rpartition("@")
    devices, _, precision = where.partition(":")
    count = devices.partition("x")[0]
    parts = ["vllm serve", model]
    if "x" in devices and count.isdecimal():
        parts.append(f"--tensor-parallel-size {count}")
    if precision.partition(":")[0] == "fp8":
        parts.append("--quantization fp8")
    if precision.endswith("kv-fp8"):
        parts.append("--kv-cache-dtype fp8")
    batching = one.base.verifiers
    parts.append(f"--max-num-seqs {in_flight} --max-num-batched-tokens {batching.max_num_batched_tokens}")
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
