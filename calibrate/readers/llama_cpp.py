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

from specfleet.calibration.readers.clients import Timed, load_of
from specfleet.calibration.readers.counts import counts_of_mean, counts_of_survivors
from specfleet.calibration.readers.entries import entries_of, found_in, table_of
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
    for origin, entry in entries_of(files):
        one = table_of(found_in(table_of(entry, origin), "timings") or entry, origin)
        ends = (found_in(entry, "stop_type"), found_in(entry, "choices", 0, "finish_reason"))
        if "predicted_n" in one:
            timed.append(
                (origin, convert(one | {"is_whole": ends[0] == "limit" or ends[1] == "length"}, Timings, origin))
            )
    return _recording("llama.cpp's answers", files, timed, depth, None)


def read_llama_cpp_log(files: Sequence[Path], depth: int | None = None, in_flight: int | None = None) -> Recording:
    """Read a server's log; raises and takes `depth` as `read_llama_cpp`.

    - `in_flight`: requests that its clients kept in flight, 0 if they arrived; by default the mean.
    """
    timed, slots, cut = list[tuple[str, Timings]](), None, 0
    for path in files:
        lines = list(read_lines(path))
        read = list(_printed(path, lines))
        timed += _after(timed, [(origin, convert(one, Timings, origin)) for origin, one in read if one is not None])
        cut += sum(one is None for _, one in read)
        slots = next((int(one[1]) for _, line in lines if (one := re.search(SLOTS, line))), slots)
    recording = _recording("llama.cpp's log", files, timed, depth, slots, in_flight)
    notes = (f"ends of the log cut off {cut} answers, which are left out",) if cut else ()
    return msgspec.structs.replace(recording, notes=(*recording.notes, *notes))


def _after(timed: Sequence[tuple[str, Timings]], more: list[tuple[str, Timings]]) -> list[tuple[str, Timings]]:
    """Return the requests of a further log as if it began at the end of those before: each server has its own clock."""
    if not timed or not more:
        return more
    shift_s = max(one.ended_s for _, one in timed) - min(one.begun_s for _, one in more)
    return [(origin, msgspec.structs.replace(one, ended_s=one.ended_s + shift_s)) for origin, one in more]


def _printed(path: Path, lines: Sequence[tuple[int, str]]) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Yield the requests that a log printed, each with its first line; None for what a cut at its ends left of one."""
    begins = [place for place, (_, line) in enumerate(lines) if "prompt eval time" in line]
    if any(" eval time" in line for _, line in lines[: begins[0] if begins else None]):
        yield str(path), None
    prompts: dict[str, int] = {}  # tokens, by task
    for before, first, last in zip([0, *begins], begins, [*begins[1:], len(lines)], strict=False):
        found = (re.search(WHOLE_PROMPT, line) for _, line in lines[before:first])
        prompts |= {one[1]: int(one[2]) for one in found if one}
        own, origin = [line for _, line in lines[first:last]], f"{path}, line {lines[first][0]}"
        if last == len(lines) and not any(" eval time" in line for line in own[1:]):
            yield origin, None
            continue
        (prompt_ms, prompt_n), (predicted_ms, predicted_n, per_token_ms) = (
            _stated(own, what, pattern, origin)
            for what, pattern in (("prompt eval time", PROMPT), (" eval time", ANSWER))
        )
        one: dict[str, Any] = {
            "prompt_ms": prompt_ms, "prompt_n": round(prompt_n), "predicted_ms": predicted_ms,
            "predicted_n": round(predicted_n), "predicted_per_token_ms": per_token_ms,
        }  # fmt: skip
        if any("draft acceptance" in line for line in own):
            rate, accepted, drafted = _stated(own, "draft acceptance", DRAFTS, origin)
            one |= {"rate": rate, "draft_n_accepted": round(accepted), "draft_n": round(drafted)}
            if mean := re.search(MEAN, "\n".join(own)):
                one["mean_length"] = float(mean[1])
            if places := re.search(PLACES, "\n".join(own)):
                one["passed"] = [float(rate) for rate in places[1].split(",") if rate.strip()]
        if (task := re.search(TASK, own[0])) and task[1] in prompts:
            one["cache_n"] = max(prompts[task[1]] - one["prompt_n"], 0)
        if clock := re.match(CLOCK, own[0]):
            minutes, seconds, milliseconds, microseconds = map(int, clock.groups())
            one["ended_s"] = 60 * minutes + seconds + 1e-3 * milliseconds + 1e-6 * microseconds
        yield origin, one


def _stated(lines: Sequence[str], what: str, pattern: str, origin: str) -> list[float]:
    """Return the numbers of the one line of a request that says this; InputError unless it is one, with its numbers."""
    said = [line for line in lines if what in line and ("prompt" in what) == ("prompt eval" in line)]
    found = re.search(pattern, said[0]) if len(said) == 1 else None
    if found is None:
        quoted = f"says {shortened(said[0][-80:])}" if len(said) == 1 else f"has {len(said)} lines"
        raise InputError(f"{origin}: of {what.strip()} this request {quoted}; needs one line with its numbers")
    return list(map(float, found.groups()))


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
    requests = [one for _, one in timed if one.predicted_n]
    if not requests:
        raise InputError(f"{names}: holds no answer with timings; needs answers of llama.cpp's server, or its log")
    drafting = [one for one in requests if one.draft_n]
    levels = depth or _least_depth(drafting)
    for origin, one in timed:
        check(one, origin, levels)
    steps, accepted = sum(one.steps(levels) for one in requests), sum(one.draft_n_accepted for one in requests)
    counts = _by_place(names, drafting, steps) if drafting else None
    if drafting and counts is None:
        source, mean = f"{steps} steps, those without a draft too", 1 + accepted / steps
        counts = counts_of_mean(names, source, steps, "1 + accepted / steps", mean, levels, "depth")
        if not depth:
            counts = counts.noting(f"drafts had {levels} tokens, the fewest that the counts allow: --depth states it")
    plain, cached = len(requests) - len(drafting), sum(one.cache_n or 0 for one in requests)
    silent, of = sum(one.cache_n is None for one in requests), f"of {len(requests)} answers"
    notes = {
        f"{plain} {of} had no draft: their steps count as rounds that accept nothing": plain and drafting,
        f"{cached} tokens of prompts came from a cache, and are left out of their lengths": cached,
        f"{silent} {of} do not say what a cache had of their prompts: lengths are of tokens that were read": silent,
    }
    return Recording(
        source=format_,
        counts=counts,
        lengths=tuple((max(one.prompt_n, 1), one.predicted_n) for one in requests),
        lengths_from="the answers' timings",
        notes=tuple(note for note, is_so in notes.items() if is_so),
        load=_load(requests, steps if drafting else 0, 1 + accepted / max(steps, 1), slots, in_flight),
    )


def _least_depth(drafting: Sequence[Timings]) -> int:
    """Return the least length of drafts with which the steps could have drafted so much."""
    steps = sum(max(one.predicted_n - 1 - one.draft_n_accepted, 1) for one in drafting)
    return max(ceil(sum(one.draft_n for one in drafting) / steps), 1) if drafting else 1


def check(one: Timings, origin: str, depth: int) -> None:
    """Raise InputError, naming key and both values, where a request contradicts itself.

    - `depth`: tokens of a draft, at most so many of which a stop cuts off.
    """
    at_most(origin, "draft_n_accepted", one.draft_n_accepted, "draft_n", one.draft_n)
    cut = 0 if one.is_whole else depth
    left = one.predicted_n - 1 - one.draft_n_accepted + cut
    if one.draft_n:
        rounds_to(origin, "draft acceptance", one.rate, "accepted / generated", one.draft_n_accepted / one.draft_n)
        at_most(
            origin, "2 + draft_n_accepted", 2 + one.draft_n_accepted, "predicted_n + cut off", one.predicted_n + cut
        )
        at_most(origin, "draft_n", one.draft_n, "depth times steps", depth * left)
        if one.mean_length is not None:  # of the steps with a draft
            least = 1 + one.draft_n_accepted / left
            at_most(origin, "1 + accepted / steps", round(least, 3), "mean len", one.mean_length + 0.006)
    if one.passed:
        at_most(origin, "the highest rate per position", max(one.passed), "all", 1.0)
    if one.predicted_n > 1 and one.predicted_per_token_ms is not None:  # older servers divide by all tokens
        found = [one.predicted_ms / tokens for tokens in (one.predicted_n - 1, one.predicted_n)]
        nearest = min(found, key=lambda value: abs(value - (one.predicted_per_token_ms or 0.0)))
        rounds_to(origin, "ms per token", round(one.predicted_per_token_ms, 2), "eval time / tokens", nearest)


def _by_place(names: str, requests: Sequence[Timings], steps: int) -> Counts | None:
    """Return the counts by position of those that drafted, if all say it; else None.

    A request has as many rounds as its accepted tokens and its rates give.
    """
    if not all(one.passed and sum(one.passed) for one in requests):
        return None
    deepest = max(len(one.passed) for one in requests)
    rounds = np.array([one.draft_n_accepted / sum(one.passed) for one in requests])
    rates = np.array([one.passed + (0.0,) * (deepest - len(one.passed)) for one in requests])
    drafts, passed = round(float(rounds.sum())), np.round(rounds @ rates).astype(int)
    source = f"drafts of {len(requests)} answers, by their rates per position"
    tokens, plain = sum(one.draft_n for one in requests), max(steps - drafts, 0)
    return counts_of_survivors(names, source, list(map(int, passed)), drafts, tokens, None, plain)


def _load(
    requests: Sequence[Timings], rounds: int, tokens_per_round: float, slots: int | None, in_flight: int | None
) -> Load:
    """Return the load: by a log's clock, from when a slot takes a request; else lengths and times alone."""
    by_clock = [
        Timed(one.begun_s, one.ended_s - one.predicted_ms / 1e3, one.ended_s, one.prompt_n, one.predicted_n)
        for one in requests
        if one.begun_s >= 0
    ]
    timed = by_clock if len(by_clock) == len(requests) else []
    load = load_of(timed, rounds, tokens_per_round, "the server's log", in_flight)
    if load is not None and in_flight is None:
        load = load_of(timed, rounds, tokens_per_round, "the server's log", round(load.in_flight or 0.0))
    if load is not None:
        note = "requests count from when a slot takes them: what they waited before is not in the log"
        return msgspec.structs.replace(load, max_num_seqs=slots, notes=(*load.notes, note))
    several = [one.predicted_ms / 1e3 / (one.predicted_n - 1) for one in requests if one.predicted_n > 1]
    tpot_s = spread_of(several)
    return Load(
        over=f"timings of {len(requests)} answers",
        requests=len(requests),
        prompt_tokens=spread_of([one.prompt_n for one in requests]),
        new_tokens=spread_of([one.predicted_n for one in requests]),
        tpot_s=tpot_s,
        prefill_s=spread_of([one.prompt_ms / 1e3 for one in requests]),
        tokens_per_round=tokens_per_round,
        ways=ways_of(None, tpot_s, None, None, None, tokens_per_round),
        max_num_seqs=slots,
    )
