"""Records of a server's load, made of a simulated one: vLLM's metrics, its log and benchmark, and AIPerf's."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from specfleet.calibration.readers.load import Load
from specfleet.calibration.readers.recording import Recording
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.run import simulate
from tests.helpers import engines

ROUND_S, TOKEN_S, DEPTH = 0.02, 0.0001, 3
BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 10.0)


class Served(NamedTuple):
    """A request that was served: times in seconds, lengths in tokens, and its rounds by drafted and accepted tokens."""

    start_s: float
    first_s: float
    end_s: float
    prompt: int
    answer: int
    session: list[tuple[int, int]]
    steps_s: list[float]
    prefill_s: float

    @property
    def gaps_s(self) -> list[float]:
        return [after - before for before, after in pairwise(self.steps_s)]

    @property
    def tpot_s(self) -> float:
        return (self.end_s - self.first_s) / (self.answer - 1)


def hit_share(run: Run) -> float:
    """`prefix_hit_share` of all requests; the metric's window holds other ones where times differ."""
    rows = run.frame()
    begun = rows[(rows.event == "start") & rows.kind.isin(["prefill", "chunk"])].groupby("request").base.first()
    return float(begun.sum() / rows[rows.event == "join"].tokens.sum())


def scenario_of_server(
    requests: int = 120, streams: int = 4, depth: int = DEPTH, prefill_first: bool = False, **workload: Any
) -> Scenario:
    """Return a server: a step takes ROUND_S, and TOKEN_S for each token of a prompt."""
    step = {"base_s": ROUND_S}
    profile = {
        "name": "known", "draft": {}, "verify": step, "decode": step, "verify_prefill": step | {"per_token_s": TOKEN_S},
    }  # fmt: skip
    loop = {} if "arrivals" in workload else {"streams": streams}
    lengths = {"requests": requests, "prompt_tokens": 200, "new_tokens": {"low": 40, "high": 120}}
    sides = {"depth": depth, "place": "target"} if depth else {"count": 0}
    content = {
        "profile": profile, "drafters": sides, "verifiers": {"prefill_first": prefill_first},
        "workload": lengths | loop | workload,
    }  # fmt: skip
    if depth:
        content["acceptance"] = {"model": "geometric", "beta": 0.6}
    return make_scenario(content)


def served(requests: int = 120, streams: int = 4, depth: int = DEPTH, **workload: Any) -> list[Served]:
    """Return the requests of a simulated server."""
    return served_in(simulate(scenario_of_server(requests, streams, depth, **workload)))


def served_in(run: Run) -> list[Served]:
    """Return the requests of a run, in the order of their arrivals."""
    rows, drafters = run.frame(), run.header.scenario.drafters
    depth = drafters.depth if drafters.count else 0
    requests = []
    for _, of in rows.groupby(["tag", "request"]):
        join, done = of[of.event == "join"].iloc[0], of[of.event == "done"]
        ends_s = done[done.kind.isin(["prefill", "verify", "decode"])].time_s.tolist()
        session = [(depth, int(accepted)) for accepted in done[done.kind.isin(["verify", "decode"])].accepted]
        times_s, lengths = (float(join.time_s), ends_s[0], ends_s[-1]), (int(join.tokens), int(join.goal - join.tokens))
        requests.append(Served(*times_s, *lengths, session, ends_s, float(done.duration_s.iloc[0])))
    return sorted(requests)


def metrics_text(requests: Sequence[Served], depth: int = DEPTH, older: bool = False, engine: int = 0) -> str:
    """A scrape of vLLM's /metrics after these requests; `older`: with the names of versions until 0.10."""
    labels = f'engine="{engine}",model_name="m"'
    gaps = [gap for request in requests for gap in request.gaps_s]
    histograms = {
        "time_to_first_token_seconds": [request.first_s - request.start_s for request in requests],
        "time_per_output_token_seconds" if older else "inter_token_latency_seconds": gaps,
        "e2e_request_latency_seconds": [request.end_s - request.start_s for request in requests],
        "request_decode_time_seconds": [request.end_s - request.first_s for request in requests],
        "request_inference_time_seconds": [request.end_s - request.start_s for request in requests],
        "request_queue_time_seconds": [0.0 for _ in requests],
        "request_prefill_time_seconds": [request.prefill_s for request in requests],
        "request_prompt_tokens": [request.prompt for request in requests],
        "request_generation_tokens": [request.answer for request in requests],
        "iteration_tokens_total": [1.0] * len({round(end_s, 6) for request in requests for end_s in request.steps_s}),
    }
    if not older:
        histograms["request_time_per_output_token_seconds"] = [request.tpot_s for request in requests]
    usage = "gpu_cache_usage_perc" if older else "kv_cache_usage_perc"
    lines = [
        f"vllm:num_requests_running{{{labels}}} 4", f"vllm:num_requests_waiting{{{labels}}} 0",
        f"vllm:{usage}{{{labels}}} 0.25", f"vllm:num_preemptions_total{{{labels}}} 2",
        f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="1000",{labels}}} 1',
        f"vllm:prompt_tokens_total{{{labels}}} {sum(request.prompt for request in requests)}",
        f"vllm:generation_tokens_total{{{labels}}} {sum(request.answer for request in requests)}",
    ]  # fmt: skip
    for name, values in histograms.items():
        counts = [f'vllm:{name}_bucket{{{labels},le="{le}"}} {sum(v <= le for v in values)}' for le in BOUNDS]
        lines += [*counts, f'vllm:{name}_bucket{{{labels},le="+Inf"}} {len(values)}']
        lines += [f"vllm:{name}_sum{{{labels}}} {sum(values)!r}", f"vllm:{name}_count{{{labels}}} {len(values)}"]
    rounds = [pair for request in requests for pair in request.session]
    spec = engines.prometheus({engine: rounds}, depth).split("\n", 2)[2] if depth and rounds else ""
    return "\n".join(lines) + "\n" + spec


def bench_text(requests: Sequence[Served], depth: int = DEPTH, **more: Any) -> str:
    """The file of `vllm bench serve --save-result --save-detailed`; `more`: other settings."""
    rounds = [pair for request in requests for pair in request.session]
    content: dict[str, Any] = {
        "completed": len(requests),
        "request_rate": "inf",
        "max_concurrency": 4,
        "input_lens": [request.prompt for request in requests],
        "output_lens": [request.answer for request in requests],
        "ttfts": [request.first_s - request.start_s for request in requests],
        "itls": [request.gaps_s for request in requests],
        "start_times": [request.start_s for request in requests],
        "errors": ["" for _ in requests],
    }
    if depth:
        passed = engines.survivors(engines.histogram_of(rounds, depth))
        content |= {
            "spec_decode_num_drafts": len(rounds),
            "spec_decode_draft_tokens": depth * len(rounds),
            "spec_decode_accepted_tokens": sum(passed),
            "spec_decode_acceptance_length": 1 + sum(passed) / len(rounds),
            "spec_decode_per_position_acceptance_rates": [count / len(rounds) for count in passed],
        }
    return json.dumps(content | more, indent=1)


def sglang_bench_text(requests: Sequence[Served], depth: int = DEPTH, **more: Any) -> str:
    """The line of SGLang's benchmark with details; a round's tokens share its time, as its client notes them."""
    rounds = [pair for request in requests for pair in request.session]
    span_s = max(request.end_s for request in requests) - requests[0].start_s
    content: dict[str, Any] = {
        "backend": "sglang", "request_rate": float("inf"), "max_concurrency": 4, "sharegpt_output_len": None,
        "server_info": {"max_running_requests": 64, "chunked_prefill_size": -1, "speculative_num_steps": depth or None},
        "duration": span_s, "completed": len(requests),
        "total_output_tokens": sum(request.answer for request in requests),
        "mean_ttft_ms": 1e3 * sum(request.first_s - request.start_s for request in requests) / len(requests),
        "concurrency": sum(request.end_s - request.start_s for request in requests) / span_s,
        "accept_length": 1 + sum(accepted for _, accepted in rounds) / len(rounds) if depth else None,
        "input_lens": [request.prompt for request in requests], "output_lens": [request.answer for request in requests],
        "ttfts": [request.first_s - request.start_s for request in requests],
        "itls": [[request.tpot_s] * (request.answer - 1) for request in requests],
    }  # fmt: skip
    return json.dumps(content | more) + "\n"


def aiperf_text(requests: Sequence[Served], depth: int = DEPTH) -> str:
    """AIPerf's profile_export.jsonl; the first request is a warm-up."""
    lines = []
    for number, request in enumerate(requests):
        line = engines.aiperf_line(request.session, depth) if depth else {"metadata": {}, "metrics": {}}
        line["metadata"] |= {
            "request_start_ns": round(1e9 * (1000 + request.start_s)),
            "benchmark_phase": "profiling" if number else "warmup",
        }
        line["metrics"] |= {
            "time_to_first_token": {"value": 1e3 * (request.first_s - request.start_s)},
            "request_latency": {"value": 1e3 * (request.end_s - request.start_s)},
            "inter_chunk_latency": {"value": [1e3 * gap for gap in request.gaps_s]},
            "input_sequence_length": {"value": request.prompt},
            "output_sequence_length": {"value": 3 * request.answer},  # by the client's tokenizer
            "usage_completion_tokens": {"value": request.answer},
        }
        if depth:
            line["spec_decode_acceptance"]["completion_tokens"] = request.answer
        lines.append(json.dumps(line) + "\n")
    return "".join(lines)


def log_text(
    running: Sequence[int], tokens_per_s: float = 400.0, engine: int = 0, depth: int = DEPTH, plain_per_s: float = 0.0
) -> str:
    """Lines of vLLM's log, ten seconds each: of the load, and of drafts of which half are accepted to the end.

    - `plain_per_s`: tokens of steps without a draft, beside those of drafts.
    """
    lines = ["non-default args: {'max_num_seqs': 8}", "Chunked prefill is enabled with max_num_batched_tokens=512."]
    drafts = round(10 * tokens_per_s / (1 + depth / 2))
    session = [(depth, depth * (number % 2)) for number in range(drafts)]
    for now in running:
        lines.append(
            f"INFO Engine {engine:03}: Avg prompt throughput: {2 * tokens_per_s:.1f} tokens/s, Avg generation "
            f"throughput: {tokens_per_s + plain_per_s:.1f} tokens/s, Running: {now} reqs, Waiting: 1 reqs, "
            f"GPU KV cache usage: 25.0%, Prefix cache hit rate: 0.0%"
        )
        if depth:
            accepted = sum(accepted for _, accepted in session)
            lines.append(
                engines.vllm_log(session, depth)
                .strip()
                .replace("Accepted throughput: 1.00", f"Accepted throughput: {accepted / 10:.2f}")
            )
    return "\n".join(lines) + "\n"


def sglang_log_text(running: Sequence[int], length: float = 2.5, rank: str = "") -> str:
    """Lines of SGLang's log, 40 steps of 25 ms each; `rank`: of several, as ` DP0`."""
    lines = ["server_args=ServerArgs(speculative_num_steps=3, max_running_requests=48, chunked_prefill_size=512)"]
    for number, now in enumerate(running):
        at = f"[2026-05-27 20:14:{number:02}{rank} TP0]"
        lines += [
            f"{at} Prefill batch. #new-seq: 2, #new-token: 230, #cached-token: 0, token usage: 0.02, #running-req: 0",
            (
                f"{at} Decode batch, #running-req: {now}, #token: 100, token usage: 0.25, accept len: {length:.2f}, "
                f"accept rate: 0.50, gen throughput (token/s): {now * length / 0.025:.2f}, #queue-req: 1"
            ),
        ]
    return "\n".join(lines) + "\n"


def load_in(recording: Recording) -> Load:
    """The load, which is there."""
    assert recording.load is not None
    return recording.load


def mean(values: Sequence[float]) -> float:
    """The mean."""
    return float(np.mean(values))
