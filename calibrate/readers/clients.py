"""The load as a client timed it, request by request: AIPerf, `vllm bench serve --save-detailed`, SGLang's benchmark."""

import math
from collections.abc import Sequence
from operator import itemgetter
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from specfleet.calibration.readers.load import Load, spread_of, ways_of
from specfleet.fleet.errors import InputError

AT_ONCE = "inf"  # the rate of requests that come as soon as the limit allows
ASKS = "does not say how requests came; give --in-flight: the most at once, if each follows another, 0 if they arrive"
LEAST, MOST = 0.67, 1.05  # shares of what a client is said to keep in flight, beyond which that is contradicted
JOINED = 0.02  # share of the rounds, up to which chunks may be fewer or more
Seconds = Annotated[float, Meta(ge=0, le=1e12)]
RealLength = Annotated[float, Meta(ge=0, le=1e7)]


class Timed(msgspec.Struct, frozen=True):
    """A request as a client saw it.

    - `start_s`, `first_s`, `end_s`: when it was sent, and when its first and its last token came.
    - `prompt`, `answer`: tokens.
    - `gaps_s`: between chunks of the answer, each of a round if none were joined on the way.
    """

    start_s: Seconds
    first_s: Seconds
    end_s: Seconds
    prompt: RealLength
    answer: RealLength
    gaps_s: list[Seconds] = []

    def __post_init__(self) -> None:
        if not self.start_s <= self.first_s <= self.end_s:
            raise ValueError(f"start = {self.start_s}, first token = {self.first_s}, end = {self.end_s} do not rise")


def read_limit(origin: str, stated: int | None, limit: int | None, rate: float | str | None, count: int) -> int | None:
    """Return how many requests a client kept in flight, by its settings or by what is stated; 0 if they arrive.

    - `limit`, `rate` (requests/s, "inf" for all at once): its settings, None if there is none; `count`: its requests.

    None if nothing says so: with a rate and a limit, either may have held requests back. Raises InputError for a
    statement that contradicts the settings.
    """
    if limit is not None and rate != AT_ONCE:
        return stated
    known = limit if limit is not None and limit < count else 0
    if stated not in (None, known):
        raise InputError(f"{origin}: --in-flight {stated} contradicts its settings, which say {known}; leave it out")
    return known


def asking(load: Load | None, origin: str) -> Load | None:
    """Return a client's load with the line that asks how requests came, unless it is known and not contradicted."""
    if load is None or (load.limit is not None and not load.asks):
        return load
    return msgspec.structs.replace(load, asks=f"{origin}: {load.asks or ASKS}")


def make_load(
    requests: Sequence[Timed],
    rounds: int,
    tokens_per_round: float,
    where: str,
    limit: int | None,
    lasted_s: float | None = None,
) -> Load | None:
    """Return the load of requests that a client timed; None without one.

    - `rounds`, `tokens_per_round`: verifications of all rows, and their mean acceptance length.
    - `where`: what they were timed by, in words.
    - `limit`: requests in flight, each of which follows another; 0 if they arrive by themselves, None if that is open.
    - `lasted_s`: of the run, where starts are not known: each request then counts from 0.
    """
    if not requests:
        return None
    table = np.array([(took.start_s, took.first_s, took.end_s, took.answer, took.prompt) for took in requests])
    starts_s, firsts_s, ends_s, answers, prompts = table.T
    span_s, decoding_s = lasted_s or float(ends_s.max() - starts_s.min()), ends_s - firsts_s
    several = answers > 1
    tpot_s = spread_of(decoding_s[several] / (answers[several] - 1))
    gaps_s = [gap for request in requests for gap in request.gaps_s]
    rows = float(decoding_s.sum() / span_s) if span_s else None
    tokens_per_s, rounds_per_s = (float(answers.sum()) / span_s, rounds / span_s) if span_s else (None, None)
    gap_s = spread_of(gaps_s)
    ways = ways_of(gap_s, tpot_s, rows, tokens_per_s, rounds_per_s, tokens_per_round)
    steps = rounds or float(np.maximum(answers - 2, 0).sum())  # an end may have no chunk of its own
    joined, notes = 1 - len(gaps_s) / steps if steps else 0.0, []
    if gaps_s and (joined > JOINED or (rounds and joined < -JOINED)):
        note = f"{joined:.0%} of the rounds came in a chunk with others: gaps between chunks are longer than rounds"
        if joined < 0:
            note = f"{-joined:.0%} more chunks than rounds, some of no token: gaps between them are shorter than rounds"
        notes.append(note)
        ways = (*ways[1:], ways[0])
    until_s, over_s = float(starts_s.max()), float(np.ptp(starts_s))  # while requests came: the rest empties the server
    # A client alone leaves nothing to empty.
    if lasted_s or limit == 1 or over_s <= float((ends_s - starts_s).mean()):
        until_s, over_s = math.inf, span_s
    seen = float((np.minimum(ends_s, until_s) - starts_s).sum()) / over_s if over_s else None
    asks, held = "", seen is not None and bool(limit) and not lasted_s
    if held and limit and limit > 1 and math.isinf(until_s):  # so short a run is mostly its end
        over_s, held = float((ends_s - starts_s).sum()) / limit, False
    elif held and seen and limit and not LEAST <= seen / limit <= MOST:
        said = f"{seen:.3g} requests were in flight on average; by its settings or --in-flight the client kept {limit}"
        asks = f"{said}: give the records of one run, and how many it kept" if seen > limit else ""
        notes += [] if asks else [f"{said}: read as a load of what it had"]
    else:
        held = False
    share = np.where(  # of an answer, that came until then
        decoding_s > 0, np.clip((until_s - firsts_s) / np.maximum(decoding_s, 1e-12), 0, 1), firsts_s <= until_s
    )
    begun = share if limit else starts_s < until_s
    is_traced = limit == 0 and not lasted_s and table[:, 3:].min() >= 1
    came = [(request.start_s - float(starts_s.min()), int(request.prompt), int(request.answer)) for request in requests]
    return Load(
        over=f"{span_s:.4g} s, timed by {where}",
        requests=len(requests),
        requests_per_s=float(begun.sum()) / over_s if over_s else None,
        tokens_per_s=float((answers * share).sum()) / over_s if over_s else None,
        prompt_tokens=spread_of(prompts),
        new_tokens=spread_of(answers),
        in_flight=seen if held or not limit else limit,
        ttft_s=spread_of(firsts_s - starts_s),
        tpot_s=tpot_s,
        gap_s=gap_s,
        prompts_per_round=float(prompts.sum()) / (span_s / ways[0].time_s) if ways and span_s else 0.0,
        tokens_per_round=tokens_per_round,
        ways=ways,
        limit=limit,
        asks=asks,
        arrivals=tuple(sorted(came, key=itemgetter(0))) if is_traced else (),
        notes=tuple(notes),
    )
