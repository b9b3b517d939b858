"""The load in vLLM's Prometheus text, by the names of its versions."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from calibrate.readers.load import Load, Spread, ways_of
from calibrate.readers.prometheus import Sample, add_up, between, histogram

KV_SHARES = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")  # the second until 0.10
GAUGES = frozenset(["vllm:num_requests_running", "vllm:num_requests_waiting", *KV_SHARES])
GAPS = ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")  # the second until 0.10
TTFT, TPOT = "vllm:time_to_first_token_seconds", "vllm:request_time_per_output_token_seconds"
LATENCY, DECODING = "vllm:e2e_request_latency_seconds", "vllm:request_decode_time_seconds"
PREFILL, RUNNING = "vllm:request_prefill_time_seconds", "vllm:request_inference_time_seconds"
QUEUED = "vllm:request_queue_time_seconds"
PROMPT, ANSWER, STEPS = "vllm:request_prompt_tokens", "vllm:request_generation_tokens", "vllm:iteration_tokens_total"
PROMPT_TOKENS, TOKENS, PREEMPTED = "vllm:prompt_tokens", "vllm:generation_tokens", "vllm:num_preemptions"
HITS, QUERIES = "vllm:prefix_cache_hits", "vllm:prefix_cache_queries"
READ = GAUGES | {
    *GAPS, TTFT, TPOT, LATENCY, DECODING, PREFILL, RUNNING, QUEUED, PROMPT, ANSWER, STEPS, PROMPT_TOKENS, TOKENS,
    PREEMPTED, HITS, QUERIES,
}  # fmt: skip
PART = re.compile(r"_(bucket|sum|count|total)$")  # of a metric, at the end of a sample's name
LEAST_BUSY, MOST_BUSY = 0.9, 1.5  # shares of the time in steps: a lower one is named, a higher one cannot be


def read_load(
    files: Sequence[Path], scrapes: Sequence[Sequence[Sample]], drafts: int, tokens_per_round: float,
    seconds: float | None,
) -> Load | None:  # fmt: skip
    """Return the load in one scrape or between two; None where no token came, or no metric of the load is there.

    - `drafts`, `tokens_per_round`: verifications of rows, and their mean acceptance length.
    - `seconds`: time between two scrapes, if it is stated.
    """
    origin, last = str(files[-1]), scrapes[-1]
    sums = [add_up(one for one in scrape if PART.sub("", one.name) in READ) for scrape in scrapes]
    counted = sums[0] if len(sums) == 1 else between(sums[0], sums[1], GAUGES, origin)
    of = {name: histogram(counted, name, origin) for name in READ}
    tokens, steps = counted.get(TOKENS, 0.0), counted.get(f"{STEPS}_count", 0.0)
    if not tokens:
        return None
    engines = len({one.labels.get("engine") for one in last if one.name.removesuffix("_total") == TOKENS})
    gap_s, tpot_s, latency_s = of[GAPS[0]] or of[GAPS[1]], of[TPOT] or _mean_tpot(counted), of[LATENCY]
    busy_s = steps / engines * gap_s.mean if gap_s else 0.0
    time_s, over, notes = _time_between(files, scrapes, seconds, busy_s)
    span_s = time_s or busy_s or math.inf  # without any time there are no rates
    busy_share = min(busy_s / time_s, 1.0) if time_s and busy_s else None
    if busy_share is not None and busy_share < LEAST_BUSY:
        notes.append(f"requests ran {busy_share:.0%} of the time: means over all of it are lower than under way")
    if hits := counted.get(HITS, 0.0):
        share = hits / max(counted.get(QUERIES, 0.0), hits)
        notes.append(f"{share:.0%} of the prompts' tokens were cached: their prefill is shorter here")
    finished, tokens_per_s = counted.get(f"{LATENCY}_count", 0.0), tokens / span_s or None
    rows = counted.get(f"{DECODING}_sum", 0.0) / span_s
    kv_share = next((sums[-1][name] / engines for name in KV_SHARES if sums[-1].get(name)), None)
    return Load(
        over=over,
        seconds=span_s if span_s < math.inf else None,
        requests=round(finished),
        requests_per_s=finished / span_s or None,
        tokens_per_s=tokens_per_s,
        prompt_tokens=of[PROMPT],
        new_tokens=of[ANSWER],
        in_flight=latency_s.mean * finished / span_s or None if latency_s else None,
        running=_mean_requests(counted, RUNNING, "vllm:num_requests_running", span_s),
        waiting=_mean_requests(counted, QUEUED, "vllm:num_requests_waiting", span_s),
        kv_share=kv_share,
        preemptions=round(counted.get(PREEMPTED, 0.0)),
        ttft_s=of[TTFT],
        tpot_s=tpot_s,
        gap_s=gap_s,
        prefill_s=of[PREFILL],
        prompts_per_round=counted.get(PROMPT_TOKENS, 0.0) / steps if steps else 0.0,
        tokens_per_round=tokens_per_round,
        busy_share=busy_share,
        ways=ways_of(gap_s, tpot_s, rows, tokens_per_s, drafts / span_s, tokens_per_round),
        kv_tokens=_kv_tokens(last),
        engines=engines,
        notes=tuple(notes),
    )


def _time_between(
    files: Sequence[Path], scrapes: Sequence[Sequence[Sample]], seconds: float | None, busy_s: float
) -> tuple[float, str, list[str]]:
    """Return the time between two scrapes, how it is known, and warnings; 0 where it is not known.

    - `busy_s`: time that the steps between them took.
    """
    inferred = f"; rates are of the {busy_s:.4g} s that steps took (inferred)" if busy_s else ""
    if len(files) == 1:
        return 0.0, f"since the server's start{inferred}", []
    if seconds is not None:
        return seconds, f"between two scrapes, {seconds:.4g} s apart (stated)", []
    first, last = (next((one.at_ms for one in scrape if one.at_ms), None) for scrape in scrapes)
    time_s, known = files[1].stat().st_mtime - files[0].stat().st_mtime, "assumed: by the files' times"
    if first is not None and last is not None:
        time_s, known = (last - first) / 1000, "by their samples"
    if time_s <= 0 or busy_s > MOST_BUSY * time_s:
        note = f"the scrapes are {time_s:.4g} s apart ({known}), and steps took about {busy_s:.3g} s: state --seconds"
        return 0.0, f"between two scrapes{inferred}", [note]
    return time_s, f"between two scrapes, {time_s:.4g} s apart ({known})", []


def _mean_tpot(counted: Mapping[str, float]) -> Spread | None:
    """Return the mean time of a token after the first, over all tokens: for versions without a histogram of it."""
    later = counted.get(f"{ANSWER}_sum", 0.0) - counted.get(f"{ANSWER}_count", 0.0)
    return Spread(counted[f"{DECODING}_sum"] / later) if later > 0 and counted.get(f"{DECODING}_sum") else None


def _mean_requests(counted: Mapping[str, float], times: str, gauge: str, span_s: float) -> float | None:
    """Return the mean number of requests by Little's law; for versions without their times, what the scrapes saw."""
    if span_s < math.inf and f"{times}_sum" in counted:
        return counted[f"{times}_sum"] / span_s
    return counted.get(gauge)


def _kv_tokens(scrape: Sequence[Sample]) -> int | None:
    """Return the size of the KV cache of an engine, which a metric's labels say."""
    for one in scrape:
        sizes = [one.labels.get(name, "") for name in ("block_size", "num_gpu_blocks")]
        if one.name == "vllm:cache_config_info" and all(size.isdecimal() and len(size) < 10 for size in sizes):
            return int(sizes[0]) * int(sizes[1])
    return None
