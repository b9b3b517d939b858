"""Requests: the same ones, in the same order in the same streams, in both worlds."""

from collections.abc import Iterator
from itertools import chain, cycle, islice, repeat
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from specfleet.fleet.acceptance.sources import LARGEST
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.arrivals import Gamma, Poisson, Trace
from specfleet.fleet.scenario.lengths import TEXTS, Between, Lengths, mean_tokens
from specfleet.fleet.scenario.recorded import Recorded, read_recorded
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Workload

MAX_TOKENS = 5 * 10**7  # tokens of a run: its records need some hundred bytes for each

What = Literal["prompts", "answers", "arrivals"]  # parts of a workload with their own random numbers
SOURCES: dict[What, int] = {"prompts": 1, "answers": 2, "arrivals": 4}  # keys of random sources, one for each part


class Request(msgspec.Struct, frozen=True, gc=False):
    """Request `number` (from 0) of the workload, with the prompt of that number.

    It opens at `not_before_s`, or when the previous one of its stream is complete, whichever is later.
    """

    number: int
    prompt_tokens: int
    new_tokens: int
    not_before_s: float = 0.0


class Requests(NamedTuple):
    """Tokens of prompts and of answers, and the times of arrival in seconds, by request; shape (requests,) each."""

    prompts: NDArray[np.int32]
    answers: NDArray[np.int32]
    opens_s: NDArray[np.float64]


def requests_of(fleet: Fleet) -> Requests:
    """Return the requests of a fleet.

    Raises InputError if a file of the workload cannot be read, or for a text longer than the positions of the models.
    """
    seed = fleet.seed if fleet.workload.seed is None else fleet.workload.seed
    rng = np.random.default_rng([seed, 1])
    prompts, answers = _texts(fleet.workload, seed, rng)
    if not len(prompts):
        raise InputError(f"scenario {fleet.name!r}: its workload holds no request")
    positions = fleet.drafters.positions
    for number in np.flatnonzero(prompts + answers > positions)[:1].tolist() if positions else ():
        raise InputError(
            f"scenario {fleet.name!r}: request {number} has {prompts[number]} + {answers[number]} tokens, and its "
            f"models have learned {positions} positions; lower workload.prompt_tokens or workload.new_tokens"
        )
    if fleet.streams or fleet.workload.arrivals is None:
        return Requests(prompts, answers, np.zeros(len(prompts)))
    openings_s = islice(_openings_s(fleet, rng, part_source(seed, "arrivals")), len(prompts))
    opens_s = np.fromiter(openings_s, dtype=np.float64)
    if len(opens_s) < len(prompts):
        raise InputError(f"scenario {fleet.name!r}: workload.arrivals has {len(opens_s)} arrivals only")
    return Requests(prompts, answers, opens_s)


def check_records(fleet: Fleet, requests: Requests) -> None:
    """Raise InputError for more tokens than a run can record in memory."""
    tokens = int(requests.answers.sum(dtype=np.int64))
    if tokens > MAX_TOKENS:
        raise InputError(
            f"scenario {fleet.name!r}: workload.requests = {len(requests.answers)} decode {tokens} tokens; allowed: "
            f"up to {MAX_TOKENS} in a run, whose records would not fit in memory; take fewer requests, or shorter ones"
        )


def streams_of(fleet: Fleet) -> dict[int, list[Request]]:
    """Return the requests of each stream, in order, by tag.

    Raises InputError as `requests_of`, and for more tokens than a run can record.
    """
    requests, streams = requests_of(fleet), dict[int, list[Request]]()
    check_records(fleet, requests)
    for number, request in enumerate(zip(*(values.tolist() for values in requests), strict=True)):
        tag = number % fleet.streams if fleet.streams else number
        streams.setdefault(tag, []).append(Request(number, *request))
    return streams


def with_lengths(workload: Workload) -> Workload:
    """Return the workload with its lengths replaced by the published workload that `lengths` names."""
    if workload.lengths not in TEXTS:
        return workload
    texts = TEXTS[workload.lengths]
    return msgspec.structs.replace(workload, prompt_tokens=texts.prompts, new_tokens=texts.answers)


def with_arrivals(workload: Workload, arrivals: Poisson | None) -> Workload:
    """Return the workload with other arrivals; a trace leaves its lengths."""
    lengths = workload.arrivals.file if isinstance(workload.arrivals, Trace) else workload.lengths
    return msgspec.structs.replace(workload, arrivals=arrivals, lengths=lengths)


def read_lengths(workload: Workload) -> Lengths:
    """Return the longest and the mean lengths, by scenario or file; InputError if a file cannot be read."""
    if has_file(workload):
        texts = recorded_of(workload).texts[: workload.requests] or ((0, 0),)
        prompts, answers = zip(*texts, strict=True)
        return Lengths(max(map(sum, texts)), max(answers), sum(prompts) / len(texts), sum(answers) / len(texts))
    workload = with_lengths(workload)
    lengths = workload.prompt_tokens, workload.new_tokens
    prompt, answer = (tokens if isinstance(tokens, int) else tokens.high for tokens in lengths)
    return Lengths(prompt + answer, answer, *map(mean_tokens, lengths))


def mean_lengths(workload: Workload) -> tuple[float, float]:
    """Return the mean tokens of prompts and of answers of a workload that is not resolved."""
    lengths = read_lengths(workload)
    return lengths.mean_prompt, lengths.mean_answer


def has_file(workload: Workload) -> bool:
    """Return whether requests come from a file; a trace may end before `workload.requests`."""
    return workload.lengths not in ("", *TEXTS) or isinstance(workload.arrivals, Trace)


def _texts(workload: Workload, seed: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Return the tokens of prompts and of answers, shape (2, requests); rows of lengths begin again, a trace ends."""
    if not has_file(workload):
        return _drawn(workload, seed, rng)
    rows = recorded_of(workload).texts
    chosen = islice(rows if isinstance(workload.arrivals, Trace) else cycle(rows), workload.requests)
    return np.fromiter(chain.from_iterable(chosen), dtype=np.int32).reshape(-1, 2).T


def recorded_of(workload: Workload) -> Recorded:
    """Return all requests of the workload's file; InputError if it cannot be read."""
    if isinstance(workload.arrivals, Trace):
        return read_recorded(Path(workload.arrivals.file), timed=True)
    return read_recorded(Path(workload.lengths), timed=False)


def _drawn(workload: Workload, seed: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Draw the tokens of prompts and of answers: uniform ones from `rng`, in turn, lognormal ones from own numbers.

    Draws of one key therefore leave those of other keys and of arrivals unchanged.
    """
    parts: dict[What, int | Between] = {"prompts": workload.prompt_tokens, "answers": workload.new_tokens}
    texts = np.empty((len(parts), workload.requests), dtype=np.int32)
    uniform: dict[int, Between] = {}
    for place, (what, tokens) in enumerate(parts.items()):
        if isinstance(tokens, int):
            texts[place] = tokens
        elif tokens.mean is None:
            uniform[place] = tokens
        else:
            texts[place] = tokens.at(part_source(seed, what).random(workload.requests))
    if uniform:
        low, high = np.array([(tokens.low, tokens.high) for tokens in uniform.values()]).T
        texts[list(uniform)] = rng.integers(low, high + 1, size=(workload.requests, len(uniform))).T
    return texts


def part_source(seed: int, what: What) -> np.random.Generator:
    """Return the random numbers of one part of a workload."""
    return np.random.default_rng([seed, 1, SOURCES[what]])


def _openings_s(fleet: Fleet, rng: np.random.Generator, gaps: np.random.Generator) -> Iterator[float]:
    """Yield when streams open; without arrivals, at once. Poisson gaps come from `rng`, other gaps from `gaps`.

    The first request of a trace opens at 0.
    """
    match fleet.workload.arrivals:
        case None:
            yield from repeat(0.0)
        case Poisson(per_s):
            now_s = np.zeros(1)
            while True:
                now_s = np.cumsum(np.append(now_s[-1], rng.exponential(1 / per_s, LARGEST)))  # as one after the other
                yield from now_s[1:].tolist()
        case Gamma() as process:
            yield from process.openings_s(gaps)
        case Trace():
            yield from recorded_of(fleet.workload).arrived_s
