"""The load as a client timed it, request by request: AIPerf, `vllm bench serve --save-detailed`, SGLang's benchmark."""

from collections.abc import Sequence
from heapq import heapreplace
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from specfleet.calibration.readers.entries import found_in
from specfleet.calibration.readers.load import Load, Spread, in_flight_of, spread_of, ways_of
from specfleet.fleet.inputs.strict import convert

SOON = 0.1  # share of requests that wait for hardly anything before their prefill
CLOSED = 0.9  # mean over most requests in flight, from which on requests may follow each other
ROUNDED_S = 1e-6  # ends are sums of gaps
FOLLOWS = 0.3  # time since the last end, of a start over that of any time, up to which they do
FULL = 0.9  # mean requests in flight over the limit, from which on requests follow each other
BRIEF = 20  # mean latencies for which requests come, below which those in flight at its ends count in parts
Seconds = Annotated[float, Meta(ge=0, le=1e12)]
Length = Annotated[float, Meta(ge=0, le=1e7)]


class Timed(msgspec.Struct, frozen=True):
    """A request as a client saw it.

    - `start_s`, `first_s`, `end_s`: when it was sent, and when its first and its last token came.
    - `prompt`, `answer`: tokens.
    - `gaps_s`: between chunks of the answer, each of a round if none were joined on the way.
    """

    start_s: Seconds
    first_s: Seconds
    end_s: Seconds
    prompt: Length
    answer: Length
    gaps_s: list[Seconds] = []

    def __post_init__(self) -> None:
        if not self.start_s <= self.first_s <= self.end_s:
            raise ValueError(f"start = {self.start_s}, first token = {self.first_s}, end = {self.end_s} do not rise")


class AiperfTimes(msgspec.Struct, frozen=True):
    """What is read of a record of AIPerf, in its units: nanoseconds, milliseconds and tokens."""

    request_start_ns: Annotated[float, Meta(ge=0, le=1e20)]
    time_to_first_token: Seconds
    request_latency: Seconds
    inter_chunk_latency: list[Seconds] = []


class AiperfTokens(msgspec.Struct, frozen=True):
    """Tokens of AIPerf's record: those that the server counted, if it did, and those of the client's tokenizer."""

    completion_tokens: Length | None = None
    usage_completion_tokens: Length | None = None
    usage_prompt_tokens: Length | None = None
    input_sequence_length: Length = 0
    output_sequence_length: Length = 0

    @property
    def by_server(self) -> bool:
        """Whether the server counted the answer."""
        return self.completion_tokens is not None or self.usage_completion_tokens is not None

    @property
    def answer(self) -> float:
        """Tokens of the answer."""
        if self.completion_tokens is not None:
            return self.completion_tokens
        return self.output_sequence_length if self.usage_completion_tokens is None else self.usage_completion_tokens

    @property
    def prompt(self) -> float:
        """Tokens of the prompt."""
        return self.input_sequence_length if self.usage_prompt_tokens is None else self.usage_prompt_tokens


def is_warm_up(entry: Any) -> bool:
    """Return whether AIPerf's record is of a request to warm up."""
    return bool(found_in(entry, "metadata", "benchmark_phase") == "warmup")


def tokens_by_aiperf(origin: str, entry: Any) -> AiperfTokens:
    """Return the tokens of AIPerf's record."""
    first, *metrics = AiperfTokens.__struct_fields__
    read = {first: found_in(entry, "spec_decode_acceptance", first)}
    read |= {name: found_in(entry, "metrics", name, "value") for name in metrics}
    return convert({name: value for name, value in read.items() if value is not None}, AiperfTokens, origin)


def timed_by_aiperf(origin: str, entry: Any) -> Timed | None:
    """Return the times of AIPerf's record; None of a request that failed or did not stream."""
    start, *metrics = AiperfTimes.__struct_fields__
    read = {start: found_in(entry, "metadata", start)}
    read |= {name: found_in(entry, "metrics", name, "value") for name in metrics}
    known = {name: value for name, value in read.items() if value is not None}
    has_times = known.keys() >= {start, "time_to_first_token", "request_latency"}
    if not has_times:
        return None
    made, tokens = convert(known, AiperfTimes, origin), tokens_by_aiperf(origin, entry)
    start_s = made.request_start_ns * 1e-9
    times = {
        "start_s": start_s,
        "first_s": start_s + made.time_to_first_token * 1e-3,
        "end_s": start_s + made.request_latency * 1e-3,
        "prompt": tokens.prompt,
        "answer": tokens.answer,
        "gaps_s": [gap / 1000 for gap in made.inter_chunk_latency],
    }
    return convert(times, Timed, origin)


def load_of(
    requests: Sequence[Timed], rounds: int, tokens_per_round: float, where: str, is_closed: bool | None = None
) -> Load | None:
    """Return the load of requests that a client timed; None without one.

    - `rounds`, `tokens_per_round`: verifications of all rows, and their mean acceptance length.
    - `where`: what they were timed by, in words.
    - `is_closed`: whether requests follow each other, by the client's settings; None where the times have to show it.
    """
    if not requests:
        return None
    table = np.array([(one.start_s, one.first_s, one.end_s, one.answer, one.prompt) for one in requests])
    starts_s, firsts_s, ends_s, answers, prompts = table.T
    span_s, decoding_s = float(ends_s.max() - starts_s.min()), ends_s - firsts_s
    several = answers > 1
    tpot_s = spread_of(decoding_s[several] / (answers[several] - 1))
    gaps_s = [gap for one in requests for gap in one.gaps_s]
    mean, most = in_flight_of(starts_s, ends_s)
    rows = float(decoding_s.sum() / span_s) if span_s else None
    tokens_per_s, rounds_per_s = (float(answers.sum()) / span_s, rounds / span_s) if span_s else (None, None)
    gap_s = spread_of(gaps_s)
    ways = ways_of(gap_s, tpot_s, rows, tokens_per_s, rounds_per_s, tokens_per_round)
    steps = rounds or float(np.maximum(answers - 2, 0).sum())  # an end may have no chunk of its own
    joined, notes = 1 - len(gaps_s) / steps if steps else 0.0, []
    if gaps_s and (joined > 0.02 or (rounds and joined < -0.02)):
        note = f"{joined:.0%} of the rounds came in a chunk with others: gaps between chunks are longer than rounds"
        if joined < 0:
            note = (
                f"{-joined:.0%} more chunks than rounds, some of no token: gaps between chunks are shorter than rounds"
            )
        notes.append(note)
        ways = (*ways[1:], ways[0])
    if is_closed is None:
        is_closed = mean >= CLOSED * most and _follow(starts_s, ends_s)
    # A request that follows another comes when a step has just begun, and waits for it.
    waited_s = min(float(np.quantile(gaps_s, SOON)), ways[0].time_s) if is_closed and gaps_s and ways else 0.0
    order = np.argsort(starts_s, kind="stable")
    arrivals = [(float(starts_s[one] - starts_s.min()), int(prompts[one]), int(answers[one])) for one in order]
    ttft_s, begun_s, latency_s = firsts_s - starts_s, float(np.ptp(starts_s)), float((ends_s - starts_s).mean())
    until_s, over_s = float(starts_s.max()), begun_s  # in which requests still came: the rest empties the server
    if begun_s < latency_s:
        mean, until_s, over_s = latency_s * len(requests) / span_s, float(ends_s.max()), span_s
    came = np.where(
        decoding_s > 0, np.clip((until_s - firsts_s) / np.maximum(decoding_s, 1e-12), 0, 1), firsts_s <= until_s
    )
    began = came.sum() if is_closed and begun_s < BRIEF * latency_s else (starts_s < until_s).sum()
    return Load(
        over=f"{span_s:.4g} s, timed by {where}",
        seconds=span_s,
        requests=len(requests),
        requests_per_s=float(began) / over_s if over_s else None,
        tokens_per_s=float((answers * came).sum()) / over_s if over_s else None,
        prompt_tokens=spread_of(prompts),
        new_tokens=spread_of(answers),
        in_flight=most if is_closed else mean,
        ttft_s=spread_of(ttft_s),
        tpot_s=tpot_s,
        gap_s=gap_s,
        prefill_s=Spread(max(float(np.quantile(ttft_s, SOON)) - waited_s, 0.0)),
        has_prefill=False,
        prompts_per_round=float(prompts.sum()) / (span_s / ways[0].time_s) if ways and span_s else 0.0,
        tokens_per_round=tokens_per_round,
        ways=ways,
        arrivals=() if is_closed or table[:, 3:].min() < 1 else tuple(arrivals),
        notes=tuple(notes),
    )


class Sent(NamedTuple):
    """How a client sent its requests: within `span_s`, at most `limit` at once, at a rate if `is_paced`."""

    span_s: float
    limit: int | None
    is_paced: bool


def load_without_starts(
    requests: Sequence[Timed], rounds: int, tokens_per_round: float, where: str, sent: Sent
) -> Load | None:
    """Return the load of requests that all count from 0, since their client did not write when they began.

    They follow each other at the limit, or all come at once; below the limit, those of a rate come at random times.
    """
    if not requests:
        return None
    latencies_s, count = [one.end_s for one in requests], len(requests)
    slots = min(sent.limit or count, count)
    is_open = sent.is_paced and (sent.limit is None or sum(latencies_s) < FULL * sent.limit * sent.span_s)
    free_s = [0.0] * slots
    starts_s = [heapreplace(free_s, free_s[0] + latency_s) for latency_s in latencies_s]
    if is_open:
        starts_s = np.linspace(0.0, max(sent.span_s - latencies_s[-1], 0.0), count).tolist()
    begun = [
        msgspec.structs.replace(one, start_s=start_s, first_s=start_s + one.first_s, end_s=start_s + one.end_s)
        for one, start_s in zip(requests, starts_s, strict=True)
    ]
    where = f"{where}; starts inferred by its settings"
    load = load_of(begun, rounds, tokens_per_round, where, is_closed=slots < count and not is_open)
    return msgspec.structs.replace(load, arrivals=(), is_open=True) if load and is_open else load


def _follow(starts_s: np.ndarray, ends_s: np.ndarray) -> bool:
    """Return whether requests start when others end: sooner after an end than times by chance."""
    ended_s = np.sort(ends_s)
    later_s = starts_s[starts_s >= ended_s[0] - ROUNDED_S]

    def since_s(times_s: np.ndarray) -> float:
        return float(np.median(times_s - ended_s[np.searchsorted(ended_s, times_s + ROUNDED_S) - 1]))

    return later_s.size > 0 and since_s(later_s) <= FOLLOWS * since_s(np.linspace(ended_s[0], ended_s[-1], 1000))
