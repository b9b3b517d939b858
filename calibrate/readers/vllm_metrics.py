"""vLLM's Prometheus text (/metrics): acceptance and load, since the start or between two scrapes."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from specfleet.calibration.readers.counts import counts_of_survivors, steps_without_draft
from specfleet.calibration.readers.laws import at_most
from specfleet.calibration.readers.load import AGREE, Load, Spread, ways_of
from specfleet.calibration.readers.prometheus import (
    COUNTED,
    Sample,
    add_up,
    between,
    drafts_in,
    histogram,
    number_of,
    read_scrapes,
)
from specfleet.calibration.readers.recording import Counts, Recording
from specfleet.fleet.errors import InputError

PREFIX = "vllm:spec_decode_num_"
KV_SHARES = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")  # the second until 0.10
GAUGES = frozenset(["vllm:num_requests_running", "vllm:num_requests_waiting", *KV_SHARES])
TOKENS = "vllm:generation_tokens"
FIRSTS, ENDS = "vllm:time_to_first_token_seconds_count", "vllm:e2e_request_latency_seconds_count"  # of answers
MAX_S = 1e9  # between two scrapes
MIN_BUSY, MAX_BUSY = 0.9, 1.5  # shares of the time in steps: a lower one is named, a higher one cannot be
APART = 2.0  # factor between two numbers of requests in flight, from which they contradict each other
FEWEST = 4.0  # requests in flight, below which two moments say little of their mean


def read_vllm_metrics(files: Sequence[Path], seconds: float | None = None) -> Recording:
    """Read one scrape, with counts since the server's start, or two, with counts between them.

    - `seconds`: time between two scrapes, above 0; else by their samples' times, or by the files'.

    A server without these counters does not speculate: its scrapes have a load only. Raises InputError, naming file,
    metric and both values, where counters are missing, contradict each other, fall, or count nothing.
    """
    if seconds is not None and (not 0 < seconds <= MAX_S or len(files) != 2):
        raise InputError(f"--seconds {seconds}: needs a time above 0 between two scrapes")
    scrapes = read_scrapes(files, "vllm:")
    model = _model(files, scrapes)
    kept = [[sample for sample in scrape if COUNTED.search(sample.name) or sample.name in GAUGES] for scrape in scrapes]
    sums = list(map(add_up, kept))
    counted = sums[0] if len(sums) == 1 else between(sums[0], sums[1], GAUGES)
    if counted.get(TOKENS) == 0:
        raise InputError(f"{', '.join(map(str, files))}: {TOKENS}_total counts no token: an idle server shows no load")
    has_drafts = any(sample.name.startswith(PREFIX) for scrape in scrapes for sample in scrape)
    counts = _counts(files, scrapes, counted, model) if has_drafts else None
    load = _load(files, scrapes, counted, counts, seconds)
    if counts is None and load is None:
        lacks = f"{PREFIX}drafts_total, which a server with speculative decoding reports, and a load"
        raise InputError(f"{', '.join(map(str, files))}: lacks {lacks}")
    return Recording(source="vLLM's Prometheus metrics", counts=counts, load=load, model=model)


def _model(files: Sequence[Path], scrapes: Sequence[Sequence[Sample]]) -> str:
    """Return the name of the model that is counted; InputError where there are several."""
    models = set()
    for path, scrape in zip(files, scrapes, strict=True):
        models |= {sample.labels.get("model_name", "") for sample in scrape if sample.name.startswith((PREFIX, TOKENS))}
        if len(models) > 1:
            raise InputError(f"{path}: counts the models {', '.join(sorted(models))}; give a scrape of one")
    return models.pop() if models else ""


def _counts(
    files: Sequence[Path], scrapes: Sequence[Sequence[Sample]], counted: Mapping[str, float], model: str
) -> Counts:
    drafts = drafts_in(files, scrapes, PREFIX)
    plain, (tokens, firsts, ends) = 0, (round(counted.get(name, 0)) for name in (TOKENS, FIRSTS, ENDS))
    if tokens > 0 and firsts > 0:
        plain = steps_without_draft(
            drafts.origin, f"{TOKENS}_total", tokens, firsts, drafts.drafts, drafts.accepted,
            max(firsts, ends) * len(drafts.passed),
        )  # fmt: skip
    source = f"drafts of {model or 'the model'} {drafts.since}"
    stated = 1 + drafts.accepted / max(drafts.drafts, 1)
    return counts_of_survivors(drafts.origin, source, drafts.passed, drafts.drafts, drafts.tokens, stated, plain)


def _load(
    files: Sequence[Path],
    scrapes: Sequence[Sequence[Sample]],
    counted: Mapping[str, float],
    counts: Counts | None,
    seconds: float | None,
) -> Load | None:
    """Return the load in one scrape or between two; None where no token came, or no metric of the load is there.

    - `counted`: sums over engines, of one scrape or between two. `counts`: of rounds.
    - `seconds`: time between two scrapes, if it is stated.
    """
    origin, last = str(files[-1]), scrapes[-1]
    rounds, tokens_per_round = (counts.rounds, counts.mean_length) if counts else (0, 1.0)
    of = {
        name.removeprefix("vllm:"): histogram(counted, name, origin)
        for key in counted
        if (name := key.removesuffix("_count")) != key
    }

    def count(name: str) -> float:
        return counted.get(f"vllm:{name}", 0.0)

    def mean_number(times: str, gauge: str) -> float | None:
        """Of requests, by Little's law; for versions without their times, what the scrapes saw."""
        has_times = span_s < math.inf and count(f"{times}_count") > 0
        return count(f"{times}_sum") / span_s if has_times else counted.get(f"vllm:{gauge}")

    tokens, steps = count("generation_tokens"), count("iteration_tokens_total_count")
    if not tokens:
        return None
    engines = len({sample.labels.get("engine") for sample in last if sample.name.removesuffix("_total") == TOKENS})
    gap_s = of.get("inter_token_latency_seconds") or of.get("time_per_output_token_seconds")  # the second until 0.10
    gaps, beyond = count("inter_token_latency_seconds_count"), tokens - count("time_to_first_token_seconds_count")
    if not rounds and beyond > (1 + AGREE) * gaps > 0:
        more = f"{beyond:g} tokens after first ones in {gaps:g} steps of requests"
        raise InputError(f"{origin}: {more}: the server drafts, and {PREFIX}drafts_total does not count it")
    tpot_s, decoding_s = of.get("request_time_per_output_token_seconds"), count("request_decode_time_seconds_sum")
    later = count("request_generation_tokens_sum") - count("request_generation_tokens_count")
    if tpot_s is None and later > 0 and decoding_s:  # of versions without a histogram: the mean over all tokens
        tpot_s = Spread(decoding_s / later)
    busy_s = steps / engines * gap_s.mean if gap_s else 0.0
    served_s = count("e2e_request_latency_seconds_sum")  # of requests that finished
    gaps_s = count(f"{'inter_token_latency' if gaps else 'time_per_output_token'}_seconds_sum")
    if gap_s and of.get("time_to_first_token_seconds"):  # of all, as far as they came
        served_s = count("time_to_first_token_seconds_sum") + gaps_s
    seen = tuple(sum(number_of(one) for one in scrape if one.name in GAUGES - {*KV_SHARES}) for scrape in scrapes)
    time_s, over, notes = _time_between(files, scrapes, seconds, busy_s, served_s, seen)
    span_s = time_s or busy_s or math.inf  # without any time there are no rates
    if not steps and gap_s:
        steps = min(time_s * engines, served_s or math.inf) / gap_s.mean  # as many as fit while requests are there
        how = "are inferred from the time" if steps else "lengthen it unseen, so its time is left out; give two scrapes"
        notes.append(f"no vllm:iteration_tokens_total, which counts steps: the prompts in a round {how}")
    prefill_s = of.get("request_prefill_time_seconds")
    running = mean_number("request_inference_time_seconds", "") or 2.0
    if time_s and gap_s and prefill_s and running < 2:  # steps of a prompt alone are in no gap
        busy_s += (2 - max(running, 1.0)) * count("time_to_first_token_seconds_count") * (prefill_s.mean - gap_s.mean)
    busy_share = min(busy_s / time_s, 1.0) if time_s and busy_s > 0 else None
    if busy_share is not None and busy_share < MIN_BUSY:
        notes.append(f"requests ran {busy_share:.0%} of the time: means over all of it are lower than under way")
    hits, queried = count("prefix_cache_hits"), count("prefix_cache_queries")
    at_most(origin, "vllm:prefix_cache_hits_total", round(hits), "prefix_cache_queries_total", round(queried))
    cached_share = hits / queried if hits else 0.0
    held = add_up(sample for sample in last if sample.name in KV_SHARES)
    finished, tokens_per_s = count("e2e_request_latency_seconds_count"), tokens / span_s or None
    run_s = gaps_s + count("request_prefill_time_seconds_sum") if gap_s and prefill_s else 0.0
    ways = ways_of(gap_s, tpot_s, decoding_s / span_s, tokens_per_s, rounds / span_s, tokens_per_round)
    return Load(
        over=over,
        requests=round(finished),
        requests_per_s=finished / span_s or None,
        tokens_per_s=tokens_per_s,
        prompt_tokens=of.get("request_prompt_tokens"),
        new_tokens=of.get("request_generation_tokens"),
        in_flight=served_s / span_s or None,
        running=run_s / span_s or mean_number("request_inference_time_seconds", "num_requests_running"),
        waiting=mean_number("request_queue_time_seconds", "num_requests_waiting"),
        seen=seen,
        kv_share=next((held[name] / engines for name in KV_SHARES if held.get(name)), None),
        preemptions=round(count("num_preemptions")),
        ttft_s=of.get("time_to_first_token_seconds"),
        tpot_s=tpot_s,
        gap_s=gap_s,
        prefill_s=of.get("request_prefill_time_seconds"),
        prompts_per_round=(1 - cached_share) * count("prompt_tokens") / steps if steps else 0.0,
        tokens_per_round=tokens_per_round,
        busy_share=busy_share,
        ways=ways if steps or not gap_s else (),
        kv_tokens=_kv_tokens(last),
        engines=engines,
        cached_share=cached_share,
        whole_prompts=True,
        notes=tuple(notes),
    )


def _time_between(
    files: Sequence[Path], scrapes: Sequence[Sequence[Sample]], seconds: float | None, busy_s: float, served_s: float,
    seen: Sequence[float],
) -> tuple[float, str, list[str]]:  # fmt: skip
    """Return the time between two scrapes, how it is known, and warnings; 0 where it is not known.

    - `busy_s`: time that the steps between them took. `served_s`: times that requests spent there.

    Raises InputError for a time that the counters contradict; one that was stated may differ from what the gauges saw,
    with a note.
    """
    inferred = f"; rates are of the {busy_s:.4g} s that steps took (inferred)" if busy_s else ""
    if len(files) == 1:
        return 0.0, f"since the server's start{inferred}", []
    first, last = (next((sample.at_s for sample in scrape if sample.at_s is not None), None) for scrape in scrapes)
    time_s, known = files[1].stat().st_mtime - files[0].stat().st_mtime, "assumed: by the files' times"
    if seconds is not None:
        time_s, known = seconds, "stated"
    elif first is not None and last is not None:
        time_s, known = last - first, "by their samples"
    apart = f"the scrapes are {time_s:.4g} s apart ({known})"
    says = _contradiction(seen, time_s, busy_s, served_s) if time_s > 0 else ""
    if says and (seconds is None or busy_s > APART * time_s):
        raise InputError(f"{files[1]}: {apart}, but {says}: give --seconds, the time between them")
    if time_s <= 0 or busy_s > MAX_BUSY * time_s:
        asks = "rates are of these, so check --seconds" if seconds else "state --seconds"
        return 0.0, f"between two scrapes{inferred}", [f"{apart}, and steps took about {busy_s:.3g} s: {asks}"]
    return time_s, f"between two scrapes, {time_s:.4g} s apart ({known})", [f"{apart}, but {says}"] if says else []


def _contradiction(seen: Sequence[float], time_s: float, busy_s: float, served_s: float) -> str:
    """Say what contradicts a time between two scrapes; empty if nothing does. By Little's law the latencies over it are
    the requests in flight; after a load only counted steps say that it is too short."""
    if busy_s > APART * time_s:
        return f"steps between them took about {busy_s:.4g} s"
    in_flight = served_s / time_s
    too_many = not busy_s and in_flight > max(FEWEST, APART * max(seen)) and max(seen) > 0
    if too_many or (served_s and min(seen) >= max(FEWEST, APART * in_flight)):
        numbers = " and ".join(f"{number:g}" for number in seen)
        return f"latencies sum to {in_flight:.4g} requests in flight, and the gauges say {numbers}"
    return ""


def _kv_tokens(scrape: Sequence[Sample]) -> int | None:
    """Return the size of the KV cache of an engine, which a metric's labels say."""
    for sample in scrape:
        sizes = [sample.labels.get(name, "") for name in ("block_size", "num_gpu_blocks")]
        if sample.name == "vllm:cache_config_info" and all(size.isdecimal() and len(size) < 10 for size in sizes):
            return int(sizes[0]) * int(sizes[1])
    return None
