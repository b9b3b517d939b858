"""llama.cpp: `timings` of its server's answers, and the same in its log, request by request.

Neither counts rounds. A step has one token that is not of a draft, so the steps of an answer are its tokens less the
first one, which its prompt gave, and less the accepted ones: those without a draft are among them. A stop within a
draft cuts off accepted tokens, which the server has counted.
"""

import re
from collections.abc import Iterator, Sequence
from math import ceil, nan
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from specfleet.calibration.readers.clients import Timed, make_load
from specfleet.calibration.readers.counts import counts_of_mean, counts_of_survivors
from specfleet.calibration.readers.entries import found_in, read_entries, table_of
from specfleet.calibration.readers.laws import at_most, rounds_to
from specfleet.calibration.readers.load import Load, spread_of, ways_of
from specfleet.calibration.readers.log_lines import NUMBER, WHOLE
from specfleet.calibration.readers.recording import Counts, Recording
from specfleet.calibration.readers.requests import Count, Length, Real
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.strict import convert
from specfleet.fleet.inputs.text import read_lines, shortened

Milliseconds = Annotated[float, Meta(ge=0, le=1e12)]
PROMPT = rf"prompt eval time = +{NUMBER} ms / +{WHOLE} tokens"
ANSWER = rf" eval time = +{NUMBER} ms / +{WHOLE} tokens \( *{NUMBER} ms"
DRAFTS = rf"draft acceptance(?: rate)? = +{NUMBER} \( *{WHOLE} accepted / +{WHOLE} generated\)"
MEAN = rf"mean (?:len|acceptance length) = +{NUMBER}"
PLACES = r"(?:acceptance rate per position|acc per pos) = \(([0-9., ]+)\)"
CLOCK = r"^(\d+)\.(\d\d)\.(\d\d\d)\.(\d\d\d) "  # minutes, seconds, ms, us since the server's start
SLOTS, TASK = rf"n_slots = {WHOLE}", r"\| task (\d+) \| "
WHOLE_PROMPT = rf"{TASK}new prompt, .*n_(?:prompt_)?tokens = {WHOLE}"  # with tokens that a cache had


class Timings(msgspec.Struct, frozen=True):
    """A request as the server timed it, by llama.cpp's names: tokens and milliseconds.

    - `prompt_n`: tokens of the prompt that were read; `cache_n`: those that a cache had, None if it does not say.
    - `predicted_n`: tokens of the answer; `predicted_ms`: from the first to the last.
    - `draft_n`, `draft_n_accepted`: tokens of its drafts.
    - `ended_s`: when it ended, by a log's clock, or NaN. `passed`: share of drafts that passed each place, by a log.
    - `is_whole`: whether it ended at its limit of tokens, at which nothing is cut off.
    """

    prompt_n: Length
    prompt_ms: Milliseconds
    predicted_n: Length
    predicted_ms: Milliseconds
    predicted_per_token_ms: Milliseconds | None = None
    draft_n: Count = 0
    draft_n_accepted: Count = 0
    cache_n: Length | None = None
    ended_s: float = nan
    rate: Real | None = None
    mean_length: Real | None = None
    passed: tuple[float, ...] = ()
    is_whole: bool = False

    def steps(self, depth: int) -> int:
        """Return the steps after the first token, at least those that so many drafted tokens take."""
        return max(self.predicted_n - 1 - self.draft_n_accepted, ceil(self.draft_n / depth))

    @property
    def begun_s(self) -> float:
        """When a slot took it, by a log's clock, or NaN."""
        return self.ended_s - self.predicted_ms / 1e3 - self.prompt_ms / 1e3


def read_llama_cpp(files: Sequence[Path], depth: int | None = None) -> Recording:
    """Read answers of llama.cpp's server; those without `timings` are left out.

    - `depth`: of drafts, `--spec-draft-n-max` of the server; without it the fewest that the counts allow.

    Raises InputError, naming file, line or entry, key and both values, where one contradicts itself.
    """
    timed = []
    for origin, entry in read_entries(files):
        timings = table_of(found_in(table_of(entry, origin), "timings") or entry, origin)
        is_whole = found_in(entry, "stop_type") == "limit"
        is_whole = is_whole or found_in(entry, "choices.0.finish_reason") == "length"
        if "predicted_n" in timings:
            timed.append((origin, convert(timings | {"is_whole": is_whole}, Timings, origin)))
    return _recording("llama.cpp's answers", files, timed, depth, None)


def read_llama_cpp_log(files: Sequence[Path], depth: int | None = None, in_flight: int | None = None) -> Recording:
    """Read a server's log; raises and takes `depth` as `read_llama_cpp`.

    - `in_flight`: requests that its clients kept in flight, 0 if they arrived; by default the mean.
    """
    timed, slots, cut = list[tuple[str, Timings]](), None, 0
    for path in files:
        lines = list(read_lines(path))
        read = list(_printed(path, lines))
        more = [(origin, convert(printed, Timings, origin)) for origin, printed in read if printed is not None]
        timed += _after(timed, more)
        cut += sum(printed is None for _, printed in read)
        slots = next((int(match[1]) for _, line in lines if (match := re.search(SLOTS, line))), slots)
    recording = _recording("llama.cpp's log", files, timed, depth, slots, in_flight)
    notes = (f"ends of the log cut off {cut} answers, which are left out",) if cut else ()
    return msgspec.structs.replace(recording, notes=(*recording.notes, *notes))


def _after(timed: Sequence[tuple[str, Timings]], more: list[tuple[str, Timings]]) -> list[tuple[str, Timings]]:
    """Return the requests of a further log as if it began at the end of those before: each server has its own clock."""
    if not timed or not more:
        return more
    shift_s = max(request.ended_s for _, request in timed) - min(request.begun_s for _, request in more)
    return [(origin, msgspec.structs.replace(request, ended_s=request.ended_s + shift_s)) for origin, request in more]


def _printed(path: Path, lines: Sequence[tuple[int, str]]) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Yield the requests that a log printed, each with its first line; None for what a cut at its ends left of one."""
    begins = [place for place, (_, line) in enumerate(lines) if "prompt eval time" in line]
    if any(" eval time" in line for _, line in lines[: begins[0] if begins else None]):
        yield str(path), None
    prompts: dict[str, int] = {}  # tokens, by task
    for before, first, last in zip([0, *begins], begins, [*begins[1:], len(lines)], strict=False):
        matches = (re.search(WHOLE_PROMPT, line) for _, line in lines[before:first])
        prompts |= {match[1]: int(match[2]) for match in matches if match}
        block, origin = [line for _, line in lines[first:last]], f"{path}, line {lines[first][0]}"
        if last == len(lines) and not any(" eval time" in line for line in block[1:]):
            yield origin, None
            continue
        (prompt_ms, prompt_n), (predicted_ms, predicted_n, per_token_ms) = (
            _stated(block, what, pattern, origin)
            for what, pattern in (("prompt eval time", PROMPT), (" eval time", ANSWER))
        )
        timings: dict[str, Any] = {
            "prompt_ms": prompt_ms, "prompt_n": round(prompt_n), "predicted_ms": predicted_ms,
            "predicted_n": round(predicted_n), "predicted_per_token_ms": per_token_ms,
        }  # fmt: skip
        if any("draft acceptance" in line for line in block):
            rate, accepted, drafted = _stated(block, "draft acceptance", DRAFTS, origin)
            timings |= {"rate": rate, "draft_n_accepted": round(accepted), "draft_n": round(drafted)}
            if mean := re.search(MEAN, "\n".join(block)):
                timings["mean_length"] = float(mean[1])
            if places := re.search(PLACES, "\n".join(block)):
                timings["passed"] = [float(rate) for rate in places[1].split(",") if rate.strip()]
        if (task := re.search(TASK, block[0])) and task[1] in prompts:
            timings["cache_n"] = max(prompts[task[1]] - timings["prompt_n"], 0)
        if clock := re.match(CLOCK, block[0]):
            minutes, seconds, milliseconds, microseconds = map(int, clock.groups())
            timings["ended_s"] = 60 * minutes + seconds + 1e-3 * milliseconds + 1e-6 * microseconds
        yield origin, timings


def _stated(lines: Sequence[str], what: str, pattern: str, origin: str) -> list[float]:
    """Return the numbers of the one line of a request that says this; InputError unless it is one, with its numbers."""
    said = [line for line in lines if what in line and ("prompt" in what) == ("prompt eval" in line)]
    match = re.search(pattern, said[0]) if len(said) == 1 else None
    if match is None:
        quoted = f"says {shortened(said[0][-80:])}" if len(said) == 1 else f"has {len(said)} lines"
        raise InputError(f"{origin}: of {what.strip()} this request {quoted}; needs one line with its numbers")
    return list(map(float, match.groups()))


def _recording(
    format_: str,
    files: Sequence[Path],
    timed: Sequence[tuple[str, Timings]],
    depth: int | None,
    slots: int | None,
    in_flight: int | None = None,
) -> Recording:
    """Check the requests and pool them; InputError without one."""
    names = ", ".join(map(str, files))
    requests = [request for _, request in timed if request.predicted_n]
    if not requests:
        raise InputError(f"{names}: holds no answer with timings; needs answers of llama.cpp's server, or its log")
    drafting = [request for request in requests if request.draft_n]
    levels = depth or _least_depth(drafting)
    for origin, request in timed:
        check(request, origin, levels)
    steps = sum(request.steps(levels) for request in requests)
    accepted = sum(request.draft_n_accepted for request in requests)
    counts = _by_place(names, drafting, steps) if drafting else None
    if drafting and counts is None:
        source, mean = f"{steps} steps, those without a draft too", 1 + accepted / steps
        counts = counts_of_mean(names, source, steps, "1 + accepted / steps", mean, levels, "depth")
        if not depth:
            counts = counts.noting(f"drafts had {levels} tokens, the fewest that the counts allow: --depth states it")
    plain, cached = len(requests) - len(drafting), sum(request.cache_n or 0 for request in requests)
    silent, of = sum(request.cache_n is None for request in requests), f"of {len(requests)} answers"
    notes = {
        f"{plain} {of} had no draft: their steps count as rounds that accept nothing": plain and drafting,
        f"{cached} tokens of prompts came from a cache, and are left out of their lengths": cached,
        f"{silent} {of} do not say what a cache had of their prompts: lengths are of tokens that were read": silent,
    }
    return Recording(
        source=format_,
        counts=counts,
        lengths=tuple((max(request.prompt_n, 1), request.predicted_n) for request in requests),
        lengths_from="the answers' timings",
        notes=tuple(note for note, is_so in notes.items() if is_so),
        load=_load(requests, steps if drafting else 0, 1 + accepted / max(steps, 1), slots, in_flight),
    )


def _least_depth(drafting: Sequence[Timings]) -> int:
    """Return the least length of drafts with which the steps could have drafted so much."""
    steps = sum(max(request.predicted_n - 1 - request.draft_n_accepted, 1) for request in drafting)
    return max(ceil(sum(request.draft_n for request in drafting) / steps), 1) if drafting else 1


def check(request: Timings, origin: str, depth: int) -> None:
    """Raise InputError, naming key and both values, where a request contradicts itself.

    - `depth`: tokens of a draft, at most so many of which a stop cuts off.
    """
    accepted, tokens, drafted = request.draft_n_accepted, request.predicted_n, request.draft_n
    at_most(origin, "draft_n_accepted", accepted, "draft_n", drafted)
    cut = 0 if request.is_whole else depth
    left = tokens - 1 - accepted + cut
    if drafted:
        rounds_to(origin, "draft acceptance", request.rate, "accepted / generated", accepted / drafted)
        at_most(origin, "2 + draft_n_accepted", 2 + accepted, "predicted_n + cut off", tokens + cut)
        at_most(origin, "draft_n", drafted, "depth times steps", depth * left)
        if request.mean_length is not None:  # of the steps with a draft
            least = 1 + accepted / left
            at_most(origin, "1 + accepted / steps", round(least, 3), "mean len", request.mean_length + 0.006)
    if request.passed:
        at_most(origin, "the highest rate per position", max(request.passed), "all", 1.0)
    per_token_ms = request.predicted_per_token_ms
    if tokens > 1 and per_token_ms is not None:
        either = (request.predicted_ms / (tokens - 1), request.predicted_ms / tokens)  # older servers divide by all
        nearest = min(either, key=lambda time_ms: abs(time_ms - per_token_ms))
        rounds_to(origin, "ms per token", round(per_token_ms, 2), "eval time / tokens", nearest)


def _by_place(names: str, requests: Sequence[Timings], steps: int) -> Counts | None:
    """Return the counts by position of those that drafted, if all say it, with rounds by accepted tokens and rates;
    else None."""
    if not all(request.passed and sum(request.passed) for request in requests):
        return None
    deepest = max(len(request.passed) for request in requests)
    rounds = np.array([request.draft_n_accepted / sum(request.passed) for request in requests])
    rates = np.array([request.passed + (0.0,) * (deepest - len(request.passed)) for request in requests])
    drafts, passed = round(float(rounds.sum())), np.round(rounds @ rates).astype(int)
    source = f"drafts of {len(requests)} answers, by their rates per position"
    tokens, plain = sum(request.draft_n for request in requests), max(steps - drafts, 0)
    return counts_of_survivors(names, source, list(map(int, passed)), drafts, tokens, None, plain)


def _load(
    requests: Sequence[Timings], rounds: int, tokens_per_round: float, slots: int | None, in_flight: int | None
) -> Load:
    """Return the load: by a log's clock, from when a slot takes a request; else lengths and times alone."""
    by_clock = [
        Timed(took.begun_s, took.ended_s - took.predicted_ms / 1e3, took.ended_s, took.prompt_n, took.predicted_n)
        for took in requests
        if took.begun_s >= 0
    ]
    timed = by_clock if len(by_clock) == len(requests) else []
    load = make_load(timed, rounds, tokens_per_round, "the server's log", in_flight)
    if load is not None and in_flight is None:
        load = make_load(timed, rounds, tokens_per_round, "the server's log", round(load.in_flight or 0.0))
    if load is not None:
        note = "requests count from when a slot takes them: what they waited before is not in the log"
        return msgspec.structs.replace(load, max_num_seqs=slots, notes=(*load.notes, note))
    several = [took.predicted_ms / 1e3 / (took.predicted_n - 1) for took in requests if took.predicted_n > 1]
    tpot_s = spread_of(several)
    return Load(
        over=f"timings of {len(requests)} answers",
        requests=len(requests),
        prompt_tokens=spread_of([request.prompt_n for request in requests]),
        new_tokens=spread_of([request.predicted_n for request in requests]),
        tpot_s=tpot_s,
        prefill_s=spread_of([request.prompt_ms / 1e3 for request in requests]),
        tokens_per_round=tokens_per_round,
        ways=ways_of(None, tpot_s, None, None, None, tokens_per_round),
        max_num_seqs=slots,
    )
