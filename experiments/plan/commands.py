"""The command lines that run a plan's servers, and that measure one of them, quoted for a POSIX shell."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import msgspec
import numpy as np

from specfleet.experiments.plan.candidates import Candidate
from specfleet.experiments.plan.deployments import Deployment, Load
from specfleet.fleet.data.shipped import shipped_models
from specfleet.fleet.hardware.one_pass import FLASH
from specfleet.fleet.hardware.profile import devices_in
from specfleet.fleet.hardware.shipped import CONFIG, device_of, shape_of
from specfleet.fleet.scenario.lengths import Between
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario, Workload
from specfleet.fleet.scenario.workload import mean_lengths, read_lengths, streams_of

NAMES = {  # of methods, at vLLM and at SGLang
    "lookup": ("ngram", "NGRAM"), "suffix": ("suffix", ""), "beside": ("draft_model", "STANDALONE"),
    "eagle": ("eagle", "EAGLE"), "eagle3": ("eagle3", "EAGLE3"), "mtp": ("mtp", "EAGLE"), "pard": ("draft_model", ""),
    "dflash": ("dflash", "DFLASH"), "dspark": ("dspark", "DSPARK"), "peagle": ("eagle3", ""),
}  # fmt: skip
PARALLEL = ("peagle", "pard")  # of methods, those that vLLM tells to draft in one pass
ADAPTIVE = ("EAGLE", "EAGLE3")  # algorithms of SGLang that change depth
SINCE = {"vllm": "0.24", "sglang": "0.5.13", "depth 0": "0.5.14"}  # versions that change depth by requests at once
ELSEWHERE = "no released server takes drafts from another host; `specfleet run` does"
LIMITS = {  # of servers: options of vLLM, of SGLang
    "max_num_seqs": ("--max-num-seqs {}", "--max-running-requests {}"),
    "max_num_batched_tokens": ("--max-num-batched-tokens {}", "--chunked-prefill-size {}"),
    "gpu_memory_utilization": ("--gpu-memory-utilization {}", "--mem-fraction-static {}"),
    "kv_block_size": ("--block-size {}", "--page-size {}"),
    "kv_tokens": ("--num-gpu-blocks-override {blocks}", "--max-total-tokens {}"),
}
ROUND = 1024  # to multiples of which the longest text is rounded up
MAX_SPREAD = 0.99  # of uniform lengths around their mean: vLLM takes shares below 1
OWN = '  # PROMPTS.jsonl has a line for each prompt: {"prompt": "TEXT"}'
ALIKE = "; they share texts as the planned ones do"
TURNS = "; each is sent by itself, without turns or users who think, so caches and loads differ from the plan"
UNIFORM = "  # vLLM draws uniform lengths, with the mean of those planned and, as far as it can, their variance"


class Schedule(NamedTuple):
    """Depths by requests at once at a target.

    - `table`: first, last and depth of each span, as vLLM reads them.
    - `simulated`: numbers of requests at which depths were simulated, rising.
    """

    table: list[list[int]]
    simulated: list[float]

    @property
    def deepest(self) -> int:
        """The longest drafts."""
        return max(depth for *_, depth in self.table)

    @property
    def text(self) -> str:
        """The schedule in words."""
        spans = [f"{depth or 'off'} at {first} to {last}" for first, last, depth in self.table[:-1]]
        spans.append(f"{self.table[-1][2] or 'off'} from {self.table[-1][0]} on")
        at = ", ".join(dict.fromkeys(f"{rows:.3g}" for rows in self.simulated))
        said = f"(simulated at {at}; elsewhere as at the nearest of them)"
        return f"depth {', '.join(spans)} requests at once at a target {said}"


def server_commands(
    candidate: Candidate, depth: int, load: str = "the planned load", schedule: Schedule | None = None
) -> tuple[str, ...]:
    """Return vLLM's and SGLang's command for a method at a depth, with the limits that were simulated.

    A line where no server runs it. SGLang's scheduler differs from vLLM's, so its times do. `load`: in words.
    `schedule`: depths by load, which SGLang has for heads alone. A running server keeps its own limits.
    """
    model, _, _ = candidate.target.rpartition("@")
    parallel, drafter = devices_in(candidate.target)[1], candidate.placed
    if candidate.method == "apart":
        split = f", but splits no target over {parallel} devices: there it replays steps" if parallel > 1 else ""
        return (ELSEWHERE + split,)
    if candidate.method in ("beside", "block") and drafter is not None and drafter.parallel != parallel:
        why = f"{parallel} devices cannot share {drafter.shape.heads} heads"
        if not drafter.shape.heads % parallel:
            why = f"released ones start none on {drafter.parallel} of {parallel} devices (draft_tensor_parallel_size)"
        return (f"vLLM and SGLang split a drafter as its target; {why}",)
    limits = candidate.base.verifiers
    deepest = schedule.deepest if schedule else depth
    names = _names(candidate, "are your server's" if candidate.server else f"as planned for {load}")
    # The model's own limit may exceed the cache.
    longest = -(-(read_lengths(candidate.base.workload).longest_text + deepest + 1) // ROUND) * ROUND
    room = limits.kv_tokens // limits.kv_block_size * limits.kv_block_size
    longest = min(longest, shape_of(model).positions or longest, room or longest)
    vllm = ["vllm serve", *_options(candidate, "", "--tensor-parallel-size", "fp8")]
    sglang = ["python -m sglang.launch_server", *_options(candidate, "--model-path ", "--tp", "fp8_e5m2")]
    if not candidate.server:
        vllm.append(f"--max-model-len {longest}")
        sglang.append(f"--context-length {longest}")
    served = _served(candidate)
    lines = [[*vllm, *served[0]], [*sglang, *served[1]]]
    needs = ["# ", "# "]
    if limits.prefill:
        needs = ["# prefill servers, too; ", "# prefill servers: --disaggregation-mode prefill; "]
    if depth:
        method, _ = _drafting(candidate)
        lines[0].append(speculative_config(candidate, deepest, schedule))
        needs[0] += f"vLLM {SINCE['vllm']} or newer; " * (schedule is not None)
        needs[0] += "pip install arctic-inference; " * (method == "suffix")
        if not NAMES[method][1]:
            missing = candidate.drafter or candidate.name
            return " ".join((*lines[0], needs[0] + names)), f"SGLang has nothing like {missing}; vLLM does"
        lines[1] += _sglang_drafts(candidate, depth)
        if schedule and NAMES[method][1] in ADAPTIVE:
            steps = {str(first): {"candidate_steps": [deep]} for first, _, deep in schedule.table}
            lines[1].insert(0, f"echo {quote(json.dumps(steps))} > k.json &&")
            lines[1].append("--speculative-adaptive --speculative-adaptive-config k.json")
            since = SINCE["sglang" if all(deep for *_, deep in schedule.table) else "depth 0"]
            needs[1] += f"SGLang {since} or newer; "
    return " ".join((*lines[0], needs[0] + names)), " ".join((*lines[1], needs[1] + names))


def _served(candidate: Candidate) -> tuple[list[str], list[str]]:
    """Return the options of limits, caches and roles, of vLLM and of SGLang."""
    vllm, sglang = _stated_limits(candidate, 0), _stated_limits(candidate, 1)
    if not candidate.base.verifiers.prefix_cache and shares(candidate.base.workload):
        vllm.append("--no-enable-prefix-caching")
        sglang.append("--disable-radix-cache")
    if candidate.base.verifiers.prefill:
        connector = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
        vllm.append(f"--kv-transfer-config {quote(json.dumps(connector))}")
        sglang.append("--disaggregation-mode decode")
    return vllm, sglang


def _sglang_drafts(candidate: Candidate, depth: int) -> Iterator[str]:
    """Yield SGLang's options for drafts of a depth."""
    method, drafts = _drafting(candidate)
    drawn = f"dspark-block-size {depth}" if method == "dspark" else f"num-draft-tokens {depth + 1}"
    yield f"--speculative-algorithm {NAMES[method][1]} --speculative-{drawn}"
    if method != "lookup" and drafts:
        yield f"--speculative-draft-model-path {quote(drafts)}"
    if method not in ("lookup", *FLASH):
        yield f"--speculative-num-steps {depth} --speculative-eagle-topk 1"


def speculative_config(candidate: Candidate, depth: int, schedule: Schedule | None) -> str:
    """Return vLLM's option for drafts of a depth, or by load."""
    (method, drafts), drafter = _drafting(candidate), candidate.placed
    config: dict[str, Any] = {"method": NAMES[method][0], "num_speculative_tokens": depth}
    config |= {"num_speculative_tokens_per_batch_size": schedule.table} if schedule else {}
    config |= {"model": drafts} if drafts else {}
    config |= {"parallel_drafting": True} if method in PARALLEL else {}
    vocabulary = shape_of(candidate.target.rpartition("@")[0]).vocabulary
    if method in ("beside", "pard") and drafter and drafter.shape.vocabulary != vocabulary:
        config["use_heterogeneous_vocab"] = True  # one tokenizer, padded to two sizes, which vLLM else refuses
    return f"--speculative-config {quote(json.dumps(config))}"


def make_schedule(candidate: Candidate, depths: Sequence[tuple[float, int]]) -> Schedule | None:
    """Return the schedule for depths by requests at once at a target, rising; None where one depth serves all.

    Between two loads the depth changes at their geometric mean.
    """
    runs = [next(run) for _, run in groupby(depths, key=lambda pair: pair[1])]
    lasts = [list(run)[-1][0] for _, run in groupby(depths, key=lambda pair: pair[1])]
    if len(runs) < 2 or "@" not in candidate.target or candidate.method == "apart":
        return None
    ends = [max(int(math.sqrt(last * first)), 1) for last, (first, _) in zip(lasts, runs[1:], strict=False)]
    firsts, ends = [1, *(end + 1 for end in ends)], [*ends, candidate.base.verifiers.max_num_seqs]
    spans = [[first, end, deep] for first, end, (_, deep) in zip(firsts, ends, runs, strict=True) if first <= end]
    alike = [list(run) for _, run in groupby(spans, key=itemgetter(2))]  # others between them hold no whole number
    table = [[run[0][0], *run[-1][1:]] for run in alike]
    return Schedule(table, [rows for rows, _ in depths]) if len(table) > 1 else None


def bench_command(fleet: Deployment, load: Load, scenario: Scenario) -> str:
    """Return the command that measures one of a fleet's targets at its share of the load.

    Requests that reach `replicas` targets in turn have gamma gaps at each, of so many times the shape of the fleet's.
    With prefill servers it measures their router, with the whole load.
    Acceptance depends on the prompts, so speculation is measured with the user's own, not with random ones.
    """
    workload = scenario.workload
    served = _served_model(fleet.candidate)
    replicas = 1 if fleet.prefills else fleet.replicas
    prompt, answer = mean_lengths(workload)
    rate = f"--max-concurrency {-(-load.at_once(replicas) // replicas)}"
    if load.per_s:
        rate = f"--request-rate {load.per_s / replicas:.4g} --burstiness {replicas * load.burstiness:g}"
    streams = streams_of(resolve(scenario)).values()
    texts = [(request.prompt_tokens, request.new_tokens) for requests in streams for request in requests]
    shared = workload.shared
    prefix = shared.beginning(prompt) if shared else 0.0
    if shared:  # a random prompt begins with a text that all have
        texts = [(tokens - shared.beginning(tokens), new) for tokens, new in texts]
    spreads = dict(zip(("input", "output"), map(_spread, zip(*texts, strict=True)), strict=True))
    random = f"--dataset-name random --random-input-len {prompt - prefix:.0f} --random-output-len {answer:.0f}"
    random += f" --random-prefix-len {prefix:.0f}" * (prefix > 0)
    if any(spreads.values()):
        random += f" --random-range-ratio '{json.dumps(spreads)}'"
    custom = f"--dataset-name custom --dataset-path PROMPTS.jsonl --custom-output-len {answer:.0f}"
    laws = (workload.prompt_tokens, workload.new_tokens)
    alike = TURNS if workload.conversations else ALIKE * shares(workload)
    has_own = fleet.depth or workload.conversations or workload.id_tokens or (shared and shared.groups > 1)
    is_uniform = not workload.lengths and not any(isinstance(law, Between) and law.mean for law in laws)
    return (
        f"vllm bench serve --model {quote(served)} {rate} {custom if has_own else random} --ignore-eos "
        f"--num-prompts {workload.requests // replicas} "
        "--percentile-metrics ttft,tpot,e2el --metric-percentiles 50,90,99"
        f"{OWN + alike if has_own else '' if is_uniform else UNIFORM}"
    )


def shares(workload: Workload) -> bool:
    """Return whether prompts have texts in common."""
    return bool(workload.shared or workload.conversations or workload.id_tokens)


def _spread(tokens: Sequence[float]) -> float:
    """Return the share by which lengths vary around their mean if they are uniform: n numbers vary by (n² - 1) / 12."""
    share = (math.sqrt(1 + 12 * float(np.var(tokens))) - 1) / (2 * float(np.mean(tokens)))
    return min(round(share, 2), MAX_SPREAD)


def _drafting(candidate: Candidate) -> tuple[str, str]:
    """Return the method, and the drafter's checkpoint: nothing where it is a part of the target's, or none."""
    method = (candidate.placed and candidate.placed.shape.head) or candidate.method
    if candidate.method == "block":
        method = {"block": "pard", "eagle3": "peagle"}.get(method, method)
    return method, "" if method == "mtp" else _checkpoint(candidate.drafter)


def _checkpoint(model: str, precisions: str = "") -> str:
    """Return a model as servers take it: a folder, a shipped shape's hub name unless precisions differ, PATH_OF."""
    if model not in shipped_models():
        return str(Path(model).parent) if Path(model).name == CONFIG else model
    named = re.search(r" of ([\w-]+/[\w.-]*\w)", shipped_models()[model]["source"])
    return named[1] if named and not precisions else "-".join(["PATH_OF", model, *precisions.split(", ")]).rstrip("-")


def _served_model(candidate: Candidate) -> str:
    """Return the target's model as servers take it: by its name at a running one, else its checkpoint."""
    running = candidate.server.model if candidate.server else ""
    return running or _checkpoint(candidate.target.rpartition("@")[0], _published_in(candidate))


def _options(candidate: Candidate, flag: str, parallel: str, cache: str) -> list[str]:
    """Return a server's options for the model, the devices that share it, and precisions."""
    where = candidate.target.rpartition("@")[2]
    kind, count = devices_in(candidate.target)
    return [
        f"{flag}{quote(_served_model(candidate))}",
        *([f"{parallel} {count}"] if count > 1 else []),
        *(["--dtype half"] if "bf16" not in device_of(kind).compute else []),
        *(["--quantization fp8"] if "fp8" in where.split(":") and not _published_in(candidate) else []),
        *([f"--kv-cache-dtype {cache}"] if "kv-fp8" in where.split(":") else []),
    ]


def _published_in(candidate: Candidate) -> str:
    """Return the precisions that only a checkpoint brings; a server makes fp8 of weights in 16 bits."""
    model, _, where = candidate.target.rpartition("@")
    precisions = [part for part in where.split(":")[1:] if part not in ("bf16", "kv-bf16", "kv-fp8")]
    return "" if precisions == ["fp8"] and not shape_of(model).quantised else ", ".join(precisions)


def _stated_limits(candidate: Candidate, engine: int) -> list[str]:
    """Return the options for limits that a user states, and for those that servers always get, which a running one
    has; `engine`: 0 for vLLM, 1 for SGLang."""
    limits, always = candidate.base.verifiers, () if candidate.server else tuple(LIMITS)[: 2 - engine]
    blocks, values = limits.kv_tokens // limits.kv_block_size, msgspec.structs.asdict(limits)
    values["max_num_seqs"] = min(limits.max_num_seqs, limits.max_num_batched_tokens)  # a step has a token for each
    names = [name for name in LIMITS if name in (*candidate.stated, *always) and values[name]]
    return [LIMITS[name][engine].format(values[name], blocks=blocks) for name in names]


def _names(candidate: Candidate, limits: str) -> str:
    """Say, in a comment of the shell, what the limits do, and that names of shipped shapes stand for checkpoints."""
    shipped = {candidate.target.rpartition("@")[0], candidate.drafter} & shipped_models().keys()
    return f"limits {limits}{'; checkpoints have the planned sizes, put yours in their place' if shipped else ''}"
