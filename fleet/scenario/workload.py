"""Requests: the same ones, in the same order in the same streams, in both worlds."""

from collections.abc import Iterator
from itertools import chain, cycle, islice, pairwise, repeat
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from specfleet.fleet.acceptance.sources import LARGEST
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.blocks import Identity, source_of
from specfleet.fleet.scenario.arrivals import Gamma, Poisson, Trace
from specfleet.fleet.scenario.lengths import TEXTS, Between, Lengths, mean_tokens
from specfleet.fleet.scenario.recorded import MOST_TOKENS, Recorded, read_recorded
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Workload
from specfleet.fleet.scenario.shared import Conversations

MAX_TOKENS = 5 * 10**7  # tokens of a run: its records need some hundred bytes for each

What = Literal["prompts", "answers", "arrivals", "groups", "turns", "thinks"]  # parts with their own random numbers
Integers = NDArray[np.int64]
SOURCES: dict[What, int] = {"prompts": 1, "answers": 2, "arrivals": 4, "groups": 8, "turns": 16, "thinks": 32}


class Request(msgspec.Struct, frozen=True, gc=False):
    """Request `number` (from 0) of the workload, with the prompt of that number.

    It opens at `not_before_s`, or `think_s` after the previous one of its stream is complete, whichever is later.
    `identity`: which parts of its text others have, too.
    """

    number: int
    prompt_tokens: int
    new_tokens: int
    not_before_s: float = 0.0
    think_s: float = 0.0
    identity: Identity = ()


class Requests(NamedTuple):
    """Tokens of prompts and of answers, and the times of arrival in seconds, by request; shape (requests,) each.

    - `before`: the turn before in the same conversation; -1 for a first one.
    - `thinks_s`: time from the end of that turn; 0 for a first one.
    """

    prompts: Integers
    answers: Integers
    opens_s: NDArray[np.float64]
    before: Integers
    thinks_s: NDArray[np.float64]

    @property
    def conversations(self) -> Integers:
        """The conversation of each request, by number from 0, where those of all follow one another."""
        return np.cumsum(self.before < 0) - 1


class Identities(NamedTuple):
    """Which parts of texts others have, too: of request n those from `starts[n]` to `starts[n + 1]`.

    - `sources`, `ends`: of each part, its source and the tokens of text at which it ends.
    """

    starts: Integers
    sources: Integers
    ends: Integers

    def pairs(self) -> Iterator[Identity]:
        """Yield the parts of each request."""
        values = np.stack([self.sources, self.ends], axis=1).ravel().tolist()
        return (tuple(values[2 * begin : 2 * end]) for begin, end in pairwise(self.starts.tolist()))


def requests_of(fleet: Fleet) -> Requests:
    """Return the requests of a fleet.

    Raises InputError if a file of the workload cannot be read, or for a text longer than the positions of the models.
    """
    seed, workload = seed_of(fleet), fleet.workload
    rng = np.random.default_rng([seed, 1])
    prompts, answers = _texts(workload, seed, rng).astype(np.int64)
    if not len(prompts):
        raise InputError(f"scenario {fleet.name!r}: its workload holds no request")
    before = np.full(len(prompts), -1)
    if workload.conversations:
        before = turns_before(workload.conversations, len(prompts), fleet.streams, part_source(seed, "turns"))
    if workload.shared:
        prompts += np.where(before < 0, workload.shared.tokens, 0)
    for number in np.flatnonzero(before >= 0).tolist():
        prompts[number] += prompts[before[number]] + answers[before[number]]
    positions = fleet.drafters.positions
    for number in np.flatnonzero(prompts + answers > positions)[:1].tolist() if positions else ():
        raise InputError(
            f"scenario {fleet.name!r}: request {number} has {prompts[number]} + {answers[number]} tokens, and its "
            f"models have learned {positions} positions; lower workload.prompt_tokens, workload.new_tokens, or what "
            "workload.shared and workload.conversations add to prompts"
        )
    opens_s, thinks_s, firsts = np.zeros(len(prompts)), np.zeros(len(prompts)), before < 0
    if workload.conversations:
        drawn_s = part_source(seed, "thinks").exponential(size=len(prompts)) * workload.conversations.think_s
        thinks_s[~firsts] = drawn_s[: int((~firsts).sum())]
    if not fleet.streams and workload.arrivals is not None:
        openings_s = islice(_openings_s(fleet, rng, part_source(seed, "arrivals")), int(firsts.sum()))
        arrivals_s = np.fromiter(openings_s, dtype=np.float64)
        if len(arrivals_s) < firsts.sum():
            raise InputError(f"scenario {fleet.name!r}: workload.arrivals has {len(arrivals_s)} arrivals only")
        opens_s[firsts] = arrivals_s
    return Requests(prompts, answers, opens_s, before, thinks_s)


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
    columns = zip(
        *(values.tolist() for values in (requests.prompts, requests.answers, requests.opens_s, requests.thinks_s)),
        identities_of(fleet, requests).pairs(), requests.conversations.tolist(), strict=True,
    )  # fmt: skip
    for number, (prompt, answer, opens_s, think_s, identity, conversation) in enumerate(columns):
        tag = number % fleet.streams if fleet.streams else conversation
        streams.setdefault(tag, []).append(Request(number, prompt, answer, opens_s, think_s, identity))
    return streams


def seed_of(fleet: Fleet) -> int:
    """Return the seed of the workload's lengths, texts and arrivals."""
    return fleet.seed if fleet.workload.seed is None else fleet.workload.seed


def turns_before(talks: Conversations, requests: int, streams: int, rng: np.random.Generator) -> Integers:
    """Return the turn before each request in its conversation; -1 for first turns.

    The requests of a closed loop's stream are conversations one after the other; without streams those of all are.
    """
    before = np.arange(requests) - max(streams, 1)
    turns = talks.drawn(rng.random(requests))  # of each conversation, more than there are
    for stream in range(max(streams, 1)):
        numbers = np.arange(stream, requests, max(streams, 1))
        firsts = np.cumsum(np.append(0, turns[numbers]))
        before[numbers[firsts[firsts < len(numbers)]]] = -1
    return before


def identities_of(fleet: Fleet, requests: Requests) -> Identities:
    """Return which parts of each request's text others have; nothing where no cache would find them.

    Raises InputError for blocks that do not divide what an id of a trace names.
    """
    workload, later, number = fleet.workload, requests.before >= 0, len(requests.prompts)
    is_cached = fleet.verifiers.prefix_cache or fleet.drafters.prefix_cache
    if is_cached and ids_in(workload):
        return _traced(fleet, ids_in(workload), requests.prompts)
    groups, begins, firsts = np.zeros(number, dtype=np.int64), np.zeros(number, dtype=np.int64), np.arange(number)
    for turn in np.flatnonzero(later).tolist():
        firsts[turn] = firsts[requests.before[turn]]
    if workload.shared:
        groups = workload.shared.drawn(part_source(seed_of(fleet), "groups").random(number))[firsts]
        block, prompts = fleet.verifiers.batching.block_size, requests.prompts[firsts]
        whole = np.minimum(np.rint(workload.shared.share * prompts / block), prompts // block) * block
        begins = whole.astype(np.int64) if workload.shared.share else begins + workload.shared.tokens
    there = np.stack([begins > 0, later], axis=1) & is_cached
    sources = np.stack([groups, source_of(0) - firsts], axis=1)
    ends = np.stack([begins, requests.prompts + requests.answers], axis=1)
    return Identities(np.append(0, np.cumsum(there.sum(axis=1))), sources[there], ends[there])


def _traced(fleet: Fleet, id_tokens: int, prompts: Integers) -> Identities:
    """Return the identities of a trace's requests: an id for so many tokens."""
    block, ids_of = fleet.verifiers.batching.block_size, recorded_of(fleet.workload, cached=True).ids
    if ids_of and id_tokens % block:
        raise InputError(
            f"scenario {fleet.name!r}: verifiers.kv_block_size = {block} does not divide workload.arrivals.id_tokens = "
            f"{id_tokens}, the tokens that an id of the trace names"
        )
    laps, rows = np.divmod(np.arange(len(prompts)), max(len(ids_of), 1))
    counts = np.array([len(ids) for ids in ids_of] or [0], dtype=np.int64)[rows]
    starts = np.append(0, np.cumsum(counts))
    places = np.arange(starts[-1]) - np.repeat(starts[:-1], counts)
    ends = np.minimum((places + 1) * id_tokens, np.repeat(prompts, counts))
    known = np.fromiter(chain.from_iterable(ids_of[row] for row in rows.tolist() if ids_of), dtype=np.int64)
    if laps.any():  # rows of lengths that begin again share nothing with those before
        names, known = np.unique(known, return_inverse=True)  # small numbers, which laps cannot make overflow
        known = known + len(names) * np.repeat(laps, counts)
    return Identities(starts, known, ends)


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


def ids_in(workload: Workload) -> int:
    """Return the tokens that an id of the workload's file names; 0 if its ids are not read."""
    return workload.arrivals.id_tokens if isinstance(workload.arrivals, Trace) else workload.id_tokens


def read_lengths(workload: Workload) -> Lengths:
    """Return the longest and the mean lengths, by scenario or file; InputError if a file cannot be read."""
    lengths = _lengths_of_turns(workload)
    shared, talks = workload.shared.tokens if workload.shared else 0, workload.conversations
    if not shared and not talks:
        return lengths
    most, before = (talks.most, talks.mean_before()) if talks else (1, 0.0)
    mean_prompt = shared + lengths.mean_prompt + before * (lengths.mean_prompt + lengths.mean_answer)
    longest = shared + most * lengths.longest_text
    if longest > MOST_TOKENS:
        key = "conversations.turns" if talks else "shared.tokens"
        raise InputError(f"workload.{key}: a text has up to {longest} tokens; allowed: up to {MOST_TOKENS}; take less")
    return Lengths(longest, lengths.longest_answer, mean_prompt, lengths.mean_answer)


def _lengths_of_turns(workload: Workload) -> Lengths:
    """Return the lengths without what a prompt shares with others, or has of turns before."""
    if has_file(workload):
        texts = recorded_of(workload).texts[: workload.requests] or ((0, 0),)
        prompts, answers = zip(*texts, strict=True)
        return Lengths(max(map(sum, texts)), max(answers), sum(prompts) / len(texts), sum(answers) / len(texts))
    workload = with_lengths(workload)
    tokens = workload.prompt_tokens, workload.new_tokens
    prompt, answer = (length if isinstance(length, int) else length.high for length in tokens)
    return Lengths(prompt + answer, answer, *map(mean_tokens, tokens))


def known_share(workload: Workload) -> float:
    """Return the share of the tokens of a file's prompts with ids that came before: hits of a cache without end."""
    recorded, known, seen = recorded_of(workload, cached=True) if ids_in(workload) else None, 0, set[int]()
    if recorded is None or not recorded.ids:
        return 0.0
    for ids in recorded.ids:
        known += next((place for place, number in enumerate(ids) if number not in seen), len(ids)) * ids_in(workload)
        seen.update(ids)
    return known / sum(prompt for prompt, _ in recorded.texts)


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


def recorded_of(workload: Workload, cached: bool = False) -> Recorded:
    """Return all requests of the workload's file; InputError if it cannot be read. `cached`: with a trace's ids."""
    if isinstance(workload.arrivals, Trace):
        return read_recorded(Path(workload.arrivals.file), True, workload.arrivals.id_tokens if cached else 0)
    return read_recorded(Path(workload.lengths), timed=False, id_tokens=workload.id_tokens if cached else 0)


def _drawn(workload: Workload, seed: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Draw the tokens of prompts and answers: uniform ones from `rng`, lognormal ones from own numbers, which leaves
    other draws unchanged."""
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
    """Yield when streams open; at once without arrivals. Poisson gaps come from `rng`, others from `gaps`; traces begin
    at 0."""
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
