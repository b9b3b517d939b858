"""Counts of one request under our names, whatever an engine calls them, and the identities that they keep.

A reader declares a table of the keys of an engine, a subclass of `RequestCounts`: our name, its type, the name there,
and a default where it is optional. Counts are rounds or tokens, means tokens a round, rates shares.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from specfleet.calibration.readers.counts import MAX_DEPTH, Rounds, counts_of, recorded, rounds_of, steps_without_draft
from specfleet.calibration.readers.laws import at_most, rounds_to, same
from specfleet.calibration.readers.recording import Recording
from specfleet.fleet.errors import InputError

Count = Annotated[int, Meta(ge=0, le=10**12)]
Tokens = Annotated[int, Meta(ge=0, le=MAX_DEPTH)]  # of one draft
Depth = Annotated[int, Meta(ge=1, le=MAX_DEPTH)]
Length = Annotated[int, Meta(ge=0, le=10**7)]  # of a prompt or an answer, in tokens
Histogram = Annotated[list[Count], Meta(max_length=MAX_DEPTH + 1)]  # how many rounds accepted 0, 1, ... tokens
Key = Annotated[str, Meta(pattern="^[0-9]{1,4}$")]  # a number of tokens, as a key of JSON
Sparse = Annotated[dict[Key, Count], Meta(max_length=MAX_DEPTH + 1)]  # a histogram without its zeros
ByLength = Annotated[dict[Key, Histogram], Meta(max_length=MAX_DEPTH)]  # a histogram for each draft length
Real = Annotated[float, Meta(ge=0, le=1e6)]


class RequestCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one request; None where its engine does not report one.

    - `rounds`, `accepted`, `drafted`: rounds, and tokens accepted and drafted in them.
    - `depth`: tokens of a full draft.
    - `mean_length`: tokens a round with the bonus token; `answer_a_round`: tokens of the answer a round.
    - `rate`: accepted over drafted tokens.
    - `histogram`: rounds by accepted tokens; `by_length`: such a histogram for each draft length.
    - `accepted_by_round`, `drafted_by_round`: tokens of each round in order.
    - `prompt`, `answer`: tokens.
    """

    rounds: Count
    histogram: list[Count] | dict[Key, Count]
    accepted: Count | None = None
    drafted: Count | None = None
    depth: Depth | None = None
    mean_length: Real | None = None
    answer_a_round: Real | None = None
    rate: Real | None = None
    by_length: ByLength | None = None
    accepted_by_round: list[Tokens] | None = None
    drafted_by_round: list[Tokens] | None = None
    prompt: Length | None = None
    answer: Length | None = None

    @property
    def counts(self) -> dict[int, int]:
        """The histogram: rounds by accepted tokens."""
        pairs = self.histogram.items() if isinstance(self.histogram, dict) else enumerate(self.histogram)
        return {int(accepted): count for accepted, count in pairs}

    @property
    def accepted_in_rounds(self) -> int:
        """Tokens that were accepted, by the histogram."""
        return sum(accepted * count for accepted, count in self.counts.items())

    @property
    def longest(self) -> int:
        """The most tokens that a round accepted."""
        return max((j for j, count in self.counts.items() if count), default=0)

    @property
    def stated_length(self) -> float | None:
        """Tokens a round, by the record's own word."""
        return self.answer_a_round if self.mean_length is None else self.mean_length

    @property
    def most_drafted(self) -> int:
        """Tokens of a full draft, or what the counts show of them."""
        mean = -(-(self.drafted or 0) // self.rounds) if self.rounds else 0
        return self.depth or max(self.longest, mean)

    @property
    def in_order(self) -> list[tuple[int, int]] | None:
        """Drafted and accepted tokens of each round, in order."""
        if self.drafted_by_round is None or self.accepted_by_round is None:
            return None
        return list(zip(self.drafted_by_round, self.accepted_by_round, strict=False))


def check(request: RequestCounts, origin: str) -> None:
    """Raise InputError, naming key and both values, where a request contradicts itself."""
    theirs = {field.name: field.encode_name for field in msgspec.structs.fields(request)}
    rounds, histogram, counts = theirs["rounds"], theirs["histogram"], request.counts
    accepted = request.accepted_in_rounds
    same(origin, rounds, request.rounds, f"the sum of {histogram}", sum(counts.values()))
    same(origin, theirs["accepted"], request.accepted, f"the sum of j times {histogram}[j]", accepted)
    if request.drafted is not None:
        at_most(origin, theirs["accepted"], accepted, theirs["drafted"], request.drafted)
    if request.drafted:
        meaning = f"{theirs['accepted']} / {theirs['drafted']}"
        rounds_to(origin, theirs["rate"], request.rate, meaning, accepted / request.drafted)
    if request.depth is not None:
        if isinstance(request.histogram, list):
            same(origin, f"len({histogram})", len(request.histogram), f"{theirs['depth']} + 1", request.depth + 1)
        at_most(origin, f"the longest of {histogram}", request.longest, theirs["depth"], request.depth)
        most, meaning = request.rounds * request.depth, f"{rounds} times {theirs['depth']}"
        at_most(origin, theirs["drafted"], request.drafted or 0, meaning, most)
    if request.rounds:
        meaning = f"1 + {theirs['accepted']} / {rounds}"
        rounds_to(origin, theirs["mean_length"], request.mean_length, meaning, 1 + accepted / request.rounds)
    if request.rounds and request.answer is not None and request.answer_a_round is not None:
        meaning = f"{theirs['answer']} / {rounds}"
        rounds_to(origin, theirs["answer_a_round"], request.answer_a_round, meaning, request.answer / request.rounds)
    _check_rounds(request, origin, theirs)
    plain_steps(request, origin)
    if request.by_length is not None:
        _check_by_length(request, request.by_length, origin, theirs)


def plain_steps(request: RequestCounts, origin: str) -> int:
    """Return how many steps of a request had no draft, as far as its answer says; raises as `steps_without_draft`."""
    if not request.answer:
        return 0
    key, accepted = msgspec.structs.fields(request)[-1].encode_name, request.accepted_in_rounds
    return steps_without_draft(origin, key, request.answer, 1, request.rounds, accepted, request.most_drafted)


def _check_rounds(request: RequestCounts, origin: str, theirs: Mapping[str, str]) -> None:
    """Hold the counts against those of each round, where the record has them."""
    if request.accepted_by_round is not None:
        key = theirs["accepted_by_round"]
        same(origin, theirs["rounds"], request.rounds, f"len({key})", len(request.accepted_by_round))
        counted = Counter(request.accepted_by_round)
        for j in sorted({*counted, *request.counts}):
            place = f"{theirs['histogram']}[{j}]"
            same(origin, place, request.counts.get(j, 0), f"the steps of {key} with {j}", counted[j])
    if request.drafted_by_round is not None:
        key = theirs["drafted_by_round"]
        same(origin, theirs["rounds"], request.rounds, f"len({key})", len(request.drafted_by_round))
        same(origin, theirs["drafted"], request.drafted or 0, f"the sum of {key}", sum(request.drafted_by_round))
    for number, (drafted, accepted) in enumerate(request.in_order or ()):
        place = f"{theirs['accepted_by_round']}[{number}]"
        at_most(origin, place, accepted, f"{theirs['drafted_by_round']}[{number}]", drafted)


def _check_by_length(request: RequestCounts, by_length: ByLength, origin: str, theirs: Mapping[str, str]) -> None:
    key, whole = theirs["by_length"], request.counts
    for drafted, counts in by_length.items():
        longest = max((j for j, count in enumerate(counts) if count), default=0)
        at_most(origin, f"the longest of {key}[{drafted}]", longest, "its draft length", int(drafted))
    for j in range(max([len(counts) for counts in by_length.values()] + [max(whole, default=0) + 1])):
        total = sum(counts[j] for counts in by_length.values() if j < len(counts))
        same(origin, f"{theirs['histogram']}[{j}]", whole.get(j, 0), f"the sum over {key}", total)
    drafted_tokens = sum(int(length) * sum(counts) for length, counts in by_length.items())
    same(origin, theirs["drafted"], request.drafted or 0, f"the tokens that {key} drafted", drafted_tokens)


def rounds_in(request: RequestCounts, deepest: int) -> tuple[Rounds, bool]:
    """Return the rounds of a request by drafted and accepted tokens, and whether all could have drafted the same.

    - `deepest`: tokens of its drafts, if it does not say how many it drafted.
    """
    if request.in_order is not None:
        return Counter(request.in_order), True
    if request.by_length is not None:
        by_draft = (rounds_of(int(drafted), counts) for drafted, counts in request.by_length.items())
        return sum(by_draft, start=Counter()), True
    if request.drafted is None:
        return rounds_of(deepest, request.counts), True
    depth = request.most_drafted
    return rounds_of(depth, request.counts), request.drafted == depth * request.rounds


def make_recording(
    read: Iterable[tuple[str, RequestCounts]], files: Sequence[Path], format_: str, skipped: int
) -> Recording:
    """Check the requests and pool them; InputError where one contradicts itself, or there is none.

    - `read`: each request with its name for errors: file, and line or entry.
    - `format_`: the engine's format in words.
    - `skipped`: entries without counts.
    """
    names = ", ".join(map(str, files))
    requests = []
    for origin, request in read:
        check(request, origin)
        requests.append(request)
    if not requests:
        raise InputError(f"{names}: holds no request with speculative decoding's counts ({skipped} without them)")
    rounds: Rounds = Counter()
    unsure, deepest = 0, max(max([request.most_drafted, *request.counts]) for request in requests)
    for request in requests:
        of_request, is_sure = rounds_in(request, deepest)
        rounds += of_request
        unsure += not is_sure
    plain = sum(plain_steps(request, names) for request in requests)
    pooled = counts_of(names, f"rounds, all requests together (requests: {len(requests)})", rounds, plain)
    count, depth = rounds.total(), pooled.depth
    sessions = [request.in_order for request in requests if request.in_order is not None]
    by_round = recorded(sessions, depth) if len(sessions) == len(requests) and not plain else None
    in_order = f"{count} rounds in order, request by request (requests: {len(requests)})"
    lengths = [(request.prompt or 0, request.answer or 0) for request in requests]
    means = [(request.stated_length, request.rounds) for request in requests if request.stated_length is not None]
    silent, of = sum(request.drafted is None for request in requests), len(requests)
    notes = {
        f"{skipped} entries have no counts of speculative decoding and are left out": skipped,
        f"{unsure} of {of} requests drafted fewer tokens in some rounds and do not say in which: all are taken to have "
        f"drafted {depth}, so the later places come out too low": unsure,
        f"{silent} of {of} requests do not say how many tokens they drafted: all are taken to have drafted {depth}, "
        "the longest draft that is known": silent,
    }
    counts = msgspec.structs.replace(
        pooled,
        acceptance=by_round or pooled.acceptance,
        source=pooled.source if by_round is None else in_order,
        stated=sum(mean * weight for mean, weight in means) / count
        if sum(weight for _, weight in means) == count
        else None,
    )
    return Recording(
        source=format_,
        counts=counts.noting(*(note for note, is_so in notes.items() if is_so)),
        lengths=tuple(lengths) if all(min(pair) > 0 for pair in lengths) else (),
        lengths_from="the answers' usage",
    )
