"""The command lines that run a plan's servers, and that measure one of them, quoted for a POSIX shell."""

import json
import math
from collections.abc import Sequence
from shlex import quote
from typing import Any

import numpy as np

from specfleet.experiments.plan.candidates import Candidate
from specfleet.experiments.plan.deployments import Deployment, Load
from specfleet.fleet.hardware.profile import devices_in
from specfleet.fleet.hardware.shipped import device_of, shape_of
from specfleet.fleet.scenario.lengths import Between
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import mean_lengths, read_lengths, streams_of

NAMES = {  # of methods, at vLLM and at SGLang
    "lookup": ("ngram", "NGRAM"), "beside": ("draft_model", "STANDALONE"), "eagle": ("eagle", "EAGLE"),
    "eagle3": ("eagle3", "EAGLE3"), "mtp": ("mtp", "EAGLE"),
}  # fmt: skip
ELSEWHERE = "no released server takes drafts from another host; `specfleet run` does"
ROUND = 1024  # to multiples of which the longest text is rounded up
MAX_SPREAD = 0.99  # of uniform lengths around their mean: vLLM takes shares below 1
UNIFORM = "  # vLLM draws uniform lengths, with the mean of those planned and, as far as it can, their variance"


def serve_command(one: Candidate, depth: int, in_flight: int) -> str:
    """Return vLLM's command for a method at a depth, with so many requests in flight; a line if it has none."""
    if refused := _refused(one):
        return refused
    limits = one.base.verifiers
    parts = ["vllm serve", *_model(one, "", "--tensor-parallel-size", "fp8"), f"--max-model-len {_longest(one, depth)}"]
    parts.append(f"--max-num-seqs {_rows(one, in_flight)} --max-num-batched-tokens {limits.max_num_batched_tokens}")
    if depth:
        method, drafter = _method(one), _drafter(one)
        config: dict[str, Any] = {"method": NAMES[method][0], "num_speculative_tokens": depth}
        config |= {"model": drafter} if drafter else {}
        if method == "beside" and shape_of(drafter).vocabulary != shape_of(one.target.rpartition("@")[0]).vocabulary:
            config["use_heterogeneous_vocab"] = True  # one tokenizer, padded to two sizes, which vLLM else refuses
        parts.append(f"--speculative-config {quote(json.dumps(config))}")
    return " ".join((*parts, _names(one)))


def sglang_command(one: Candidate, depth: int, in_flight: int) -> str:
    """Return SGLang's command for the same server; its scheduler differs, so its times do."""
    if refused := _refused(one):
        return refused
    parts = ["python -m sglang.launch_server", *_model(one, "--model-path ", "--tp", "fp8_e5m2")]
    parts.append(f"--context-length {_longest(one, depth)} --max-running-requests {_rows(one, in_flight)}")
    if depth:
        method, drafter = _method(one), _drafter(one)
        parts.append(f"--speculative-algorithm {NAMES[method][1]} --speculative-num-draft-tokens {depth + 1}")
        if method != "lookup":
            parts += [f"--speculative-draft-model-path {quote(drafter)}"] if drafter else []
            parts.append(f"--speculative-num-steps {depth} --speculative-eagle-topk 1")
    return " ".join((*parts, _names(one)))


def bench_command(fleet: Deployment, load: Load, scenario: Scenario) -> str:
    """Return the command that measures one of a fleet's targets at its share of the load.

    Requests that reach `replicas` targets in turn have gamma gaps of that shape at each. Acceptance depends on the
    prompts, so speculation is measured with the user's own, not with random ones.
    """
    replicas, model, workload = fleet.replicas, fleet.candidate.target.rpartition("@")[0], scenario.workload
    prompt, answer = mean_lengths(workload)
    rate = f"--max-concurrency {-(-load.in_flight // replicas)}"
    if load.per_s:
        rate = f"--request-rate {load.per_s / replicas:.4g} --burstiness {replicas}"
    texts = [(one.prompt_tokens, one.new_tokens) for own in streams_of(resolve(scenario)).values() for one in own]
    spreads = dict(zip(("input", "output"), map(_spread, zip(*texts, strict=True)), strict=True))
    random = f"--dataset-name random --random-input-len {prompt:.0f} --random-output-len {answer:.0f}"
    if any(spreads.values()):
        random += f" --random-range-ratio '{json.dumps(spreads)}'"
    own = f"--dataset-name custom --dataset-path PROMPTS.jsonl --custom-output-len {answer:.0f}"
    laws = (workload.prompt_tokens, workload.new_tokens)
    is_uniform = not workload.lengths and not any(isinstance(one, Between) and one.mean for one in laws)
    return (
        f"vllm bench serve --model {quote(model)} {rate} {own if fleet.depth else random} --ignore-eos "
        f"--num-prompts {workload.requests // replicas} "
        "--percentile-metrics ttft,tpot,e2el --metric-percentiles 50,90,99"
        f"{'' if is_uniform or fleet.depth else UNIFORM}"
    )


def _spread(tokens: Sequence[int]) -> float:
    """Return the share by which lengths vary around their mean if they are uniform: n numbers vary by (n² - 1) / 12."""
    share = (math.sqrt(1 + 12 * float(np.var(tokens))) - 1) / (2 * float(np.mean(tokens)))
    return min(round(share, 2), MAX_SPREAD)


def _refused(one: Candidate) -> str:
    """Say why no server runs a candidate; nothing of one that servers run."""
    if one.method == "apart":
        return ELSEWHERE
    parallel, heads = devices_in(one.target)[1], shape_of(one.drafter).heads if one.method == "beside" else 0
    if heads % parallel:
        return f"vLLM and SGLang split a drafter as its target; {parallel} devices cannot share {heads} heads"
    return ""


def _method(one: Candidate) -> str:
    return shape_of(one.drafter).head or one.method if one.drafter else one.method


def _drafter(one: Candidate) -> str:
    """Return the checkpoint of the drafter; nothing where it is a part of the target's, or none."""
    return "" if _method(one) == "mtp" else one.drafter


def _rows(one: Candidate, in_flight: int) -> int:
    """Return the requests that share a step, as they were simulated; a step has at least a token for each."""
    limits = one.base.verifiers
    return min(in_flight, limits.max_num_seqs, limits.max_num_batched_tokens)


def _longest(one: Candidate, depth: int) -> int:
    """Return the tokens of the longest text with its drafts, rounded up: the model's own limit may exceed the cache."""
    return -(-(read_lengths(one.base.workload).longest_text + depth + 1) // ROUND) * ROUND


def _model(one: Candidate, flag: str, parallel: str, cache: str) -> list[str]:
    """Return a server's options for the model, the devices that share it, and precisions."""
    model, _, where = one.target.rpartition("@")
    kind, count = devices_in(one.target)
    return [
        f"{flag}{quote(model)}",
        *([f"{parallel} {count}"] if count > 1 else []),
        *(["--dtype half"] if "bf16" not in device_of(kind).compute else []),
        *(["--quantization fp8"] if "fp8" in where.split(":") and not _published_in(one) else []),
        *([f"--kv-cache-dtype {cache}"] if "kv-fp8" in where.split(":") else []),
    ]


def _published_in(one: Candidate) -> str:
    """Return the precisions that only a checkpoint brings; a server makes fp8 of weights in 16 bits."""
    model, _, where = one.target.rpartition("@")
    precisions = [part for part in where.split(":")[1:] if part not in ("bf16", "kv-bf16", "kv-fp8")]
    return "" if precisions == ["fp8"] and not shape_of(model).experts_in else ", ".join(precisions)


def _names(one: Candidate) -> str:
    """Say, in a comment of the shell, which a line break would end, for which checkpoints the names stand."""
    model, precisions = one.target.rpartition("@")[0], _published_in(one)
    names = [f"{model} in {precisions}" if precisions else model, _drafter(one)]
    return f"# names stand for folders or hub names of checkpoints: {' '.join(', '.join(filter(None, names)).split())}"
