"""Reports of clients: GuideLLM's requests, and inference-perf's, by themselves or summed up over a stage."""

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from specfleet.calibration.readers.clients import AT_ONCE, Timed, asking, make_load, read_limit
from specfleet.calibration.readers.entries import Fields, fields_in, found_in, read_entries, table_of
from specfleet.calibration.readers.laws import at_most, falls, rounds_to, same
from specfleet.calibration.readers.load import Load, Spread, ways_of
from specfleet.calibration.readers.recording import Recording
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.strict import convert
from specfleet.fleet.inputs.text import shortened

GUIDELLM: Fields = {
    "start_s": ("request_start_time", "start_time"),  # the second until 0.3
    "end_s": ("request_end_time", "end_time"),
    "prompt": ("prompt_tokens",),
    "answer": ("output_tokens",),
}
USAGE = "info.response_metrics.server_usage"
INFERENCE_PERF: Fields = {
    "start_s": ("start_time",),
    "end_s": ("end_time",),
    "prompt": (f"{USAGE}.prompt_tokens", "info.input_tokens", "info.request_metrics.text.input_tokens"),
    "answer": (f"{USAGE}.completion_tokens", "info.response_metrics.output_tokens", "info.output_tokens"),
}
TIMES = ("info.response_metrics.output_token_times", "info.output_token_times")
STRATEGIES = {"synchronous": "", "concurrent": "streams", "throughput": "max_concurrency"}  # and their limits
TOTALS = "metrics.request_totals.successful"
NO_ACCEPTANCE = "the report says nothing of speculation: a step is taken to give one token"
CLOSE = 1.01  # factor between two numbers of the same, of which one is rounded or counted by another tokenizer


def read_guidellm(files: Sequence[Path], in_flight: int | None = None) -> Recording:
    """Read the report of one benchmark; InputError for several, and for one that has not all of its requests.

    - `in_flight`: requests that the client kept in flight, 0 if they arrived, where its strategy does not say it.
    """
    (origin, report), *more = list(read_entries(files)) or [(str(files[0]), None)]
    runs = found_in(report, "benchmarks")
    if more or not isinstance(runs, list) or len(runs) != 1:
        held = f"{len(runs)} benchmarks" if isinstance(runs, list) else "no list `benchmarks`"
        raise InputError(f"{origin}: holds {held}; give one: jq '.benchmarks |= [.[0]]' FILE > one.json")
    entries, succeeded = (found_in(runs[0], way) for way in ("requests.successful", TOTALS))
    if not isinstance(entries, list) or succeeded not in (None, len(entries)):
        some = len(entries) if isinstance(entries, list) else 0
        raise InputError(f"{origin}: has {some} of {succeeded} requests; write all, without --sample-requests")
    timed = []
    for number, entry in enumerate(entries, start=1):
        where = f"{origin}, request {number}"
        if (first_ms := _number(where, table_of(entry, where), "time_to_first_token_ms")) is not None:
            start_s = _number(where, entry, *GUIDELLM["start_s"]) or 0.0
            timed.append(convert(fields_in(entry, GUIDELLM) | {"first_s": start_s + first_ms / 1000}, Timed, where))
    stated = found_in(runs[0], "config.strategy", "args.strategy")
    kind, limit = found_in(stated, "type_"), in_flight
    if isinstance(kind, str):
        key = STRATEGIES.get(kind)
        known = 1 if key == "" else _number(f"{origin}: strategy", stated, key) if key else None
        rate = None if key is None else AT_ONCE
        limit = read_limit(origin, in_flight, None if known is None else int(known), rate, len(entries))
    return _recording("GuideLLM", origin, make_load(timed, 0, 1.0, "GuideLLM", limit), len(entries) - len(timed))


def read_inference_perf(files: Sequence[Path], in_flight: int | None = None) -> Recording:
    """Read inference-perf's requests, or the summary of a stage; InputError where one contradicts itself.

    - `in_flight`: as `read_guidellm`; requests by themselves do not say it, nor does the summary of a whole run.
    """
    entries = [(origin, table_of(entry, origin)) for origin, entry in read_entries(files)]
    if len(entries) == 1 and "successes" in entries[0][1]:
        return _recording("inference-perf", entries[0][0], _of_summary(*entries[0], in_flight))
    timed, cached, good = [], 0.0, [(origin, entry) for origin, entry in entries if entry.get("error") is None]
    for origin, entry in good:
        written = found_in(entry, *TIMES)
        places = map(str, range(len(written))) if isinstance(written, list) else ()
        named = {"output_token_times": written}
        times_s = [_number(origin, named, f"output_token_times.{place}") or 0.0 for place in places]
        if times_s:
            falls(origin, "the time left at token", [-time_s for time_s in times_s], "that before it", -times_s[0])
            gaps_s = [after - before for before, after in pairwise(times_s) if after > before]
            read = fields_in(entry, INFERENCE_PERF) | {"first_s": times_s[0], "gaps_s": gaps_s}
            timed.append(convert(read, Timed, origin))
            cached += _number(origin, entry, f"{USAGE}.prompt_tokens_details.cached_tokens") or 0.0
    load = make_load(timed, 0, 1.0, "inference-perf", in_flight)
    if load is not None:
        load = replace(load, cached_share=cached / max(sum(one.prompt for one in timed), 1))
    return _recording("inference-perf", str(files[0]), load, len(entries) - len(timed))


def _recording(name: str, origin: str, load: Load | None, left_out: int = 0) -> Recording:
    if load is None:
        raise InputError(f"{origin}: no request succeeded with a time of its first token; run {name} with streaming")
    failed = [f"{left_out} requests that failed or have no first token are left out"] * bool(left_out)
    return Recording(source=f"{name}'s report", load=asking(load, origin), notes=(NO_ACCEPTANCE, *failed))


def _number(origin: str, entry: Any, *ways: str) -> float | None:
    """Return a number, None where it is not there; InputError unless it is one from 0."""
    value = found_in(entry, *ways)
    if value is not None and (isinstance(value, bool | str | list | dict) or not 0 <= value <= 1e12):
        raise InputError(f"{origin}: {ways[0]} = {shortened(value, 60)}; needs a number from 0 to 1e12")
    return None if value is None else float(value)


def _of_summary(origin: str, entry: dict[str, Any], in_flight: int | None) -> Load | None:
    """Return the load of a summary, which has no single lengths; InputError where its numbers contradict each other."""

    def number(way: str) -> float:
        return _number(origin, entry, way) or 0.0

    def stats(way: str) -> Spread | None:
        names = ("mean", "min", "median", "p90", "p99", "max")
        mean, *known = (_number(origin, entry, f"successes.{way}.{name}") for name in names)
        if mean is None:
            return None
        levels = [level for level in known if level is not None]
        if levels != sorted(levels) or not min(levels, default=mean) <= mean * CLOSE:
            raise InputError(f"{origin}: successes.{way}: {', '.join(names[1:])} = {known}; needs levels that rise")
        quantiles = zip(("P50", "P90", "P99"), known[1:4], strict=True)
        low, high = levels[:1] or [mean], levels[-1:] or [mean]
        cv = (high[0] - low[0]) / math.sqrt(12) / mean if mean else 0.0  # as if spread evenly
        return Spread(mean, {name: level for name, level in quantiles if level is not None}, low[0], high[0], cv)

    latency, first, token = (
        stats(f"latency.{name}") for name in ("request_latency", "time_to_first_token", "time_per_output_token")
    )
    prompt, answers = stats("prompt_tokens") or stats("prompt_len"), [stats("output_len"), stats("output_tokens")]
    answer, count = next((one for one in answers if one), None), number("successes.count")
    per_s, tokens_per_s = (number(f"successes.throughput.{name}_per_sec") for name in ("requests", "output_tokens"))
    if latency is None or first is None or answer is None or not per_s:
        return None
    seconds = number("benchmark_time_seconds") or count / per_s
    rounds_to(origin, "requests_per_sec", per_s, "count / benchmark_time_seconds", count / seconds)
    if not any(one and tokens_per_s / CLOSE <= one.mean * per_s <= tokens_per_s * CLOSE for one in answers):
        meaning = f"requests_per_sec times the mean of output_len = {answer.mean * per_s:g}"
        raise InputError(f"{origin}: output_tokens_per_sec = {tokens_per_s:g} contradicts {meaning}")
    at_most(origin, "time_to_first_token.mean", first.mean, "request_latency.mean", latency.mean)
    limit, mean_in_flight = in_flight, per_s * latency.mean
    if number("load_summary.concurrency"):
        same(origin, "--in-flight", in_flight, "its concurrency", limit := int(number("load_summary.concurrency")))
        at_most(origin, "requests_per_sec times request_latency.mean", mean_in_flight, "concurrency", limit * CLOSE)
    elif number("load_summary.requested_rate"):
        same(origin, "--in-flight", in_flight, "what a rate keeps in flight", limit := 0)
    ways = ways_of(None, token, per_s * (latency.mean - first.mean), tokens_per_s, None, 1.0)
    return Load(
        over=f"{seconds:.4g} s, summed up by inference-perf",
        requests=int(count),
        requests_per_s=per_s,
        tokens_per_s=tokens_per_s,
        prompt_tokens=prompt,
        new_tokens=answer,
        in_flight=limit or mean_in_flight,
        ttft_s=first,
        tpot_s=token,
        prompts_per_round=prompt.mean * per_s * ways[0].time_s if prompt and ways else 0.0,
        ways=ways,
        limit=limit,
        cached_share=number("successes.prompt_tokens.cached") / max(number("successes.prompt_tokens.total"), 1),
        notes=("a summary has means and bounds of lengths, which are taken to vary as if spread evenly (assumed)",),
    )
