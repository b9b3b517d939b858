"""Requests: the same ones, in the same order in the same streams, in both worlds."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta

from fleet.errors import InputError
from fleet.inputs.parquet import read_table
from fleet.inputs.strict import convert
from fleet.inputs.text import parsed, read_csv, read_json_lines
from fleet.scenario.scenario import Between, Poisson, Tokens, Trace, Workload, mean_tokens
from fleet.scenario.settled import Fleet
from fleet.times.step_time import Seconds

CHARACTERS_PER_TOKEN = 4  # of English text, roughly; only the lengths of conversations rest on it
MOST_TOKENS = 5 * 10**7  # of a run: its records hold some hundred bytes for each

R = TypeVar("R", bound=msgspec.Struct)
WHOLE = pa.int64()
ENDS = pa.schema(  # what a recorded run tells of where its texts ended
    {"event": pa.string(), "request": WHOLE, "tokens": WHOLE, "goal": WHOLE, "flag": pa.bool_()}
)


class Request(msgspec.Struct, frozen=True):
    """Number `number` (from 0) of the workload: its prompt is the prompt of that number.

    It opens at `not_before_s`, or when the one before it in its stream is complete, whichever is later.
    """

    number: int
    prompt_tokens: int
    new_tokens: int
    not_before_s: float = 0.0


class Conversation(msgspec.Struct, frozen=True):
    """A line of a Spec-Bench file."""

    turns: Annotated[list[str], Meta(min_length=1)]


class Lengths(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a file of lengths: tokens."""

    num_prefill_tokens: Tokens
    num_decode_tokens: Tokens


class Arrival(Lengths, frozen=True, kw_only=True):
    """A row of a trace: seconds and tokens."""

    arrived_at: Seconds


def streams_of(fleet: Fleet) -> dict[int, list[Request]]:
    """Return the requests of each stream, in order, by tag.

    Raises InputError if a file of the workload cannot be read, or for more tokens than a run can record or the models
    know.
    """
    seed = fleet.seed if fleet.workload.seed is None else fleet.workload.seed
    rng = np.random.default_rng([seed, 1])
    turns = list(islice(_turns(fleet.workload, partial(_length, rng)), fleet.workload.requests))
    tokens = sum(new_tokens for _, _, new_tokens in turns)
    if tokens > MOST_TOKENS:
        raise InputError(
            f"scenario {fleet.name!r}: workload.requests = {len(turns)} decode {tokens} tokens; allowed: "
            f"up to {MOST_TOKENS} in a run, whose records would not fit in memory; take fewer requests, or shorter ones"
        )
    count = fleet.streams
    openings_s = _openings_s(fleet, rng)
    if not turns:
        raise InputError(f"scenario {fleet.name!r}: its workload holds no request")
    streams: dict[int, list[Request]] = {}
    positions = fleet.drafters.positions
    for number, (conversation, prompt_tokens, new_tokens) in enumerate(turns):
        if 0 < positions < prompt_tokens + new_tokens:
            raise InputError(
                f"scenario {fleet.name!r}: request {number} has {prompt_tokens} + {new_tokens} tokens, and its models "
                f"have learned {positions} positions; lower workload.prompt_tokens or workload.new_tokens"
            )
        tag = conversation % count if count else conversation
        opens_s = 0.0 if count or tag in streams else next(openings_s, None)
        if opens_s is None:
            raise InputError(f"scenario {fleet.name!r}: workload.arrivals has {len(streams)} arrivals only")
        streams.setdefault(tag, []).append(Request(number, prompt_tokens, new_tokens, opens_s))
    return streams


def requests_of(fleet: Fleet, tag: int) -> Iterator[Request]:
    """Yield the requests of one stream; `streams_of` has those of all streams."""
    return iter(streams_of(fleet).get(tag, []))


def longest_of(workload: Workload) -> tuple[int, int]:
    """Return the longest text, prompt and answer together, and the longest answer, in tokens, whatever the seed.

    Raises InputError if a file of the workload cannot be read.
    """
    turns = list(islice(_turns(workload, _longest), workload.requests if _has_file(workload) else 1))  # else all alike
    return max((prompt + new for _, prompt, new in turns), default=0), max((new for _, _, new in turns), default=0)


def mean_lengths(workload: Workload) -> tuple[float, float]:
    """Return the mean tokens of prompts and of answers, as scenario or file say; InputError as `longest_of`."""
    if not _has_file(workload):
        return mean_tokens(workload.prompt_tokens), mean_tokens(workload.new_tokens)
    turns = list(islice(_turns(workload, lambda given: round(mean_tokens(given))), workload.requests)) or [(0, 0, 0)]
    return sum(prompt for _, prompt, _ in turns) / len(turns), sum(new for _, _, new in turns) / len(turns)


def _has_file(workload: Workload) -> bool:
    return bool(workload.conversations or workload.lengths) or isinstance(workload.arrivals, Trace)


def _turns(workload: Workload, length: Callable[[int | Between], int]) -> Iterator[tuple[int, int, int]]:
    """Yield (conversation, prompt tokens, new tokens) of each request, without end unless a file ends.

    `length` says how long a text of a given range is.
    """
    if workload.conversations:
        yield from _conversations(Path(workload.conversations), workload.new_tokens, length)
    elif isinstance(workload.arrivals, Trace):
        for number, row in enumerate(_trace(Path(workload.arrivals.file))):
            yield number, row.num_prefill_tokens, row.num_decode_tokens
    elif workload.lengths:
        for number, lengths in enumerate(_rows(Path(workload.lengths), Lengths, "workload.lengths")):
            yield number, lengths.num_prefill_tokens, lengths.num_decode_tokens
    else:
        for number in range(workload.requests):
            yield number, length(workload.prompt_tokens), length(workload.new_tokens)


def _length(rng: np.random.Generator, given: int | Between) -> int:
    return given if isinstance(given, int) else int(rng.integers(given.low, given.high + 1))


def _longest(given: int | Between) -> int:
    return given if isinstance(given, int) else given.high


def _conversations(
    path: Path, new_tokens: int | Between, length: Callable[[int | Between], int]
) -> Iterator[tuple[int, int, int]]:
    """Yield the turns of a Spec-Bench file; each one's prompt holds the whole conversation before it."""
    for conversation, (number, content) in enumerate(read_json_lines(path, "workload.conversations")):
        context = 0
        for text in convert(content, Conversation, f"{path}, line {number}").turns:
            answer = length(new_tokens)
            context += max(1, round(len(text) / CHARACTERS_PER_TOKEN))
            yield conversation, context, answer
            context += answer


def _openings_s(fleet: Fleet, rng: np.random.Generator) -> Iterator[float]:
    """Yield when streams open; without arrivals, at once."""
    match fleet.workload.arrivals:
        case None:
            while True:
                yield 0.0
        case Poisson(per_s):
            now_s = 0.0
            while True:
                now_s += float(rng.exponential(1 / per_s))
                yield now_s
        case Trace(file, speed):
            for row in _trace(Path(file)):
                yield row.arrived_at / speed


def _trace(path: Path) -> Iterator[Arrival]:
    return _rows(path, Arrival, "workload.arrivals.file")


def _rows(path: Path, kind: type[R], what: str) -> Iterator[R]:
    for line, row in read_csv(path, kind.__struct_fields__, what):
        numbers = {name: parsed(text) for name, text in row.items()}
        yield convert(numbers, kind, f"{path}, line {line}")


def unknown_ends(fleet: Fleet) -> str | None:
    """Return a note where texts end by themselves and the simulated world is not told where."""
    workload = fleet.workload
    if not workload.ends_itself or workload.ends:
        return None
    return (
        "texts may end by themselves (workload.ignore_eos, workload.stop), but nothing says where: the simulation "
        "decodes all that is asked, workload.new_tokens; workload.ends plays back those of a run"
    )


def read_ends(path: Path) -> dict[int, int]:
    """Return after how many new tokens the texts of a recorded run ended by themselves, by request.

    Raises InputError if the file is no run.
    """
    table = read_table(path, ENDS, "workload.ends")
    rows = table.filter(pc.is_in(table["event"], pa.array(["join", "done"]))).to_pylist()
    prompts = {row["request"]: row["tokens"] for row in rows if row["event"] == "join"}
    ended = {row["request"]: row["goal"] for row in rows if row["event"] == "done" and row["flag"]}
    return {request: length - prompts[request] for request, length in ended.items() if request in prompts}
