"""The counts of one request that vLLM and AIPerf share, and the identities that they promise."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from calibrate.readers.counts import Rounds, model_of, recorded, rounds_of, totals
from calibrate.readers.laws import at_most, rounds_to, same
from calibrate.readers.recording import Recording
from fleet.errors import InputError

MOST = 4096  # tokens of a draft
Count = Annotated[int, Meta(ge=0, le=10**12)]
Tokens = Annotated[int, Meta(ge=0, le=MOST)]  # of one draft
Length = Annotated[int, Meta(ge=0, le=10**7)]  # of a prompt or an answer, in tokens
Histogram = Annotated[list[Count], Meta(max_length=MOST + 1)]
Real = Annotated[float, Meta(ge=0, le=1e6)]


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Acceptance of one request, as vLLM and AIPerf name it; the histogram's form is each format's own."""

    num_spec_steps: Count
    num_accepted_draft_tokens: Count
    num_draft_tokens: Count
    num_spec_tokens: Annotated[int, Meta(ge=1, le=MOST)] | None = None
    mean_acceptance_length: Real | None = None
    draft_acceptance_rate: Real | None = None
    per_step_accepted: list[Tokens] | None = None
    per_step_drafted: list[Tokens] | None = None


class Request(NamedTuple):
    """One request as a reader hands it on: its counts, its histogram, that of each draft length where it is told."""

    origin: str
    stats: Stats
    histogram: Mapping[int, int]
    by_length: Mapping[int, Sequence[int]] | None = None
    tokens: tuple[int, int] | None = None  # of the prompt and the answer


def check(request: Request) -> None:
    """Raise InputError, naming key and both values, where a request contradicts itself."""
    origin, stats, histogram, by_length, _ = request
    steps, accepted, drafted = stats.num_spec_steps, stats.num_accepted_draft_tokens, stats.num_draft_tokens
    weighted = sum(j * count for j, count in histogram.items())
    same(origin, "num_spec_steps", steps, "the sum of acceptance_histogram", sum(histogram.values()))
    same(origin, "num_accepted_draft_tokens", accepted, "the sum of j times acceptance_histogram[j]", weighted)
    at_most(origin, "num_accepted_draft_tokens", accepted, "num_draft_tokens", drafted)
    if stats.num_spec_tokens is not None:
        longest = max((j for j, count in histogram.items() if count), default=0)
        at_most(origin, "the longest of acceptance_histogram", longest, "num_spec_tokens", stats.num_spec_tokens)
        meaning = "num_spec_steps times num_spec_tokens"
        at_most(origin, "num_draft_tokens", drafted, meaning, steps * stats.num_spec_tokens)
    if steps:
        meaning = "1 + num_accepted_draft_tokens / num_spec_steps"
        rounds_to(origin, "mean_acceptance_length", stats.mean_acceptance_length, meaning, 1 + accepted / steps)
    if drafted:
        meaning = "num_accepted_draft_tokens / num_draft_tokens"
        rounds_to(origin, "draft_acceptance_rate", stats.draft_acceptance_rate, meaning, accepted / drafted)
    _check_steps(request)
    if by_length is not None:
        _check_by_length(origin, stats, histogram, by_length)


def _check_steps(request: Request) -> None:
    origin, stats, histogram = request[:3]
    if stats.per_step_accepted is not None:
        same(origin, "num_spec_steps", stats.num_spec_steps, "len(per_step_accepted)", len(stats.per_step_accepted))
        counted = Counter(stats.per_step_accepted)
        for j in sorted({*counted, *histogram}):
            of_steps = f"the steps of per_step_accepted with {j}"
            same(origin, f"acceptance_histogram[{j}]", histogram.get(j, 0), of_steps, counted[j])
    if stats.per_step_drafted is not None:
        same(origin, "num_spec_steps", stats.num_spec_steps, "len(per_step_drafted)", len(stats.per_step_drafted))
        total = sum(stats.per_step_drafted)
        same(origin, "num_draft_tokens", stats.num_draft_tokens, "the sum of per_step_drafted", total)
    for step, (accepted, drafted) in enumerate(
        zip(stats.per_step_accepted or (), stats.per_step_drafted or (), strict=False)
    ):
        at_most(origin, f"per_step_accepted[{step}]", accepted, f"per_step_drafted[{step}]", drafted)


def _check_by_length(
    origin: str, stats: Stats, histogram: Mapping[int, int], by_length: Mapping[int, Sequence[int]]
) -> None:
    key = "acceptance_histogram_by_draft_length"
    for drafted, counts in by_length.items():
        longest = max((j for j, count in enumerate(counts) if count), default=0)
        at_most(origin, f"the longest of {key}[{drafted}]", longest, "its draft length", drafted)
    for j in range(max([len(counts) for counts in by_length.values()] + [max(histogram, default=0) + 1])):
        total = sum(counts[j] for counts in by_length.values() if j < len(counts))
        same(origin, f"acceptance_histogram[{j}]", histogram.get(j, 0), f"the sum over {key}", total)
    drafted = sum(length * sum(counts) for length, counts in by_length.items())
    same(origin, "num_draft_tokens", stats.num_draft_tokens, f"the tokens that {key} drafted", drafted)


def rounds_in(request: Request) -> tuple[Rounds, bool]:
    """Return the rounds of a request by drafted and accepted tokens, and whether their draft lengths are told."""
    _, stats, histogram, by_length, _ = request
    if stats.per_step_accepted is not None and stats.per_step_drafted is not None:
        return Counter(zip(stats.per_step_drafted, stats.per_step_accepted, strict=True)), True
    if by_length is not None:
        rounds: Rounds = Counter()
        for drafted, counts in by_length.items():
            rounds += rounds_of(drafted, counts)
        return rounds, True
    longest = max((j for j, count in histogram.items() if count), default=0)
    most = -(-stats.num_draft_tokens // stats.num_spec_steps) if stats.num_spec_steps else 0
    depth = stats.num_spec_tokens or max(longest, most)
    return rounds_of(depth, histogram), stats.num_draft_tokens == depth * stats.num_spec_steps


def recording_of(requests: Iterable[Request], files: str, format_: str, skipped: int = 0) -> Recording:
    """Check the requests and pool them; InputError where one contradicts itself, or none tells anything."""
    rounds: Rounds = Counter()
    untold, told, lengths, sessions, steps = 0, 0.0, [], [], 0
    for request in requests:
        check(request)
        own, lengths_told = rounds_in(request)
        rounds += own
        untold += not lengths_told
        stats = request.stats
        if stats.mean_acceptance_length is not None:
            told += stats.mean_acceptance_length * stats.num_spec_steps
            steps += stats.num_spec_steps
        lengths.append(request.tokens)
        if stats.per_step_accepted is not None and stats.per_step_drafted is not None:
            sessions.append(list(zip(stats.per_step_drafted, stats.per_step_accepted, strict=True)))
    if not lengths:
        raise InputError(f"{files}: holds no request with speculative decoding's counts ({skipped} without them)")
    model, depth = model_of(rounds, files)
    by_round = recorded(sessions, depth) if len(sessions) == len(lengths) else None
    known = [pair for pair in lengths if pair is not None and min(pair) > 0]
    notes = []
    if skipped:
        notes.append(f"{skipped} entries tell no counts of speculative decoding and are left out")
    if untold:
        notes.append(
            f"{untold} of {len(lengths)} requests drafted fewer tokens in some rounds and do not say in which: all are "
            f"taken to have drafted {depth}, so the later places come out too low"
        )
    count, accepted = totals(rounds)
    what = "rounds in order, request by request" if by_round else "rounds, all requests together"
    return Recording(
        format=format_,
        acceptance=by_round or model,
        depth=depth,
        rounds=count,
        accepted=accepted,
        told=told / steps if steps == count else None,
        lengths=tuple(known) if len(known) == len(lengths) else (),
        sources={"acceptance": f"{count} {what} (requests: {len(lengths)})", "lengths": "the answers' usage"},
        notes=tuple(notes),
    )
