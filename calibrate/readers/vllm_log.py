"""vLLM's log: lines `SpecDecoding metrics: ...` (acceptance) and `Engine 000: ...` (load), each over an interval."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from specfleet.calibration.readers.counts import MAX_DEPTH, plain_note
from specfleet.calibration.readers.laws import at_most, falls
from specfleet.calibration.readers.log_lines import NUMBER, WHOLE, LoadLine, load_between, numbers_in
from specfleet.calibration.readers.recording import Counts, Recording
from specfleet.fleet.acceptance.models import PerPosition
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.text import read_lines, shortened

MARK = "SpecDecoding metrics:"
COUNTS = {
    "Mean acceptance length": rf"Mean acceptance length: {NUMBER},",
    "Accepted": rf"Accepted: {WHOLE} tokens",
    "Drafted": rf"Drafted: {WHOLE} tokens",
    "Avg Draft acceptance rate": rf"Avg Draft acceptance rate: {NUMBER}%",
}
RATES = rf"Per-position acceptance rate: ({NUMBER}(?:, {NUMBER})*)(?=,|\s*$)"
LOAD = {
    "engine": rf"(?:Engine )?{WHOLE}(?: Engines Aggregated)?: Avg",
    "prompts_per_s": rf"Avg prompt throughput: {NUMBER} tokens/s",
    "tokens_per_s": rf"Avg generation throughput: {NUMBER} tokens/s",
    "running": rf"Running: {WHOLE} reqs",
    "waiting": rf"Waiting: {WHOLE} reqs",
}
MORE_LOAD = {
    "kv_percent": rf"KV cache usage: {NUMBER}%",
    "preemptions": rf"Preemptions: {WHOLE}",
    "cached_percent": rf"(?<!External )(?<!MM )[Pp]refix cache hit rate: {NUMBER}%",  # of the last requests
}
SPEEDS = {name: rf"{name} throughput: {NUMBER} tokens/s" for name in ("Accepted", "Drafted")}
SETTINGS = {
    "engines": r"([1-9][0-9]{0,3}) Engines Aggregated: Avg",  # requests are their sum, the KV cache used is a mean
    "max_num_seqs": rf"'max_num_seqs': {WHOLE}",
    "max_num_batched_tokens": rf"max_num_batched_tokens={WHOLE}",
    "kv_tokens": r"KV cache size: ([0-9][0-9,]{0,11}) tokens",
}
TREE = r"speculative_token_tree\W{1,4}\s*['\"]?(\[[0-9, ()]*[1-9][0-9, ()]*\])"  # with a second branch
EVERY_S = 10.0  # between lines, unless VLLM_LOG_STATS_INTERVAL says less
FEW = 0.05  # share of steps without a draft up to which first tokens of answers may be all of them
HALF = {"Mean acceptance length": 0.00501, "rate": 0.000501, "Avg Draft acceptance rate": 0.0501}  # of the last digit


class Interval(NamedTuple):
    """One line: drafts are not reported, but follow from the accepted tokens and the mean length.

    - `speeds`: accepted and drafted tokens a second, as far as the line has them.
    """

    mean: float
    accepted: int
    drafted: int
    rates: tuple[float, ...]
    speeds: dict[str, float]

    @property
    def drafts(self) -> float:
        """Drafts of the interval: whole where all of them are full."""
        full = self.drafted / len(self.rates)
        share = sum(self.rates)
        by_rates = self.accepted / share if self.accepted and share else full
        slack = len(self.rates) * HALF["rate"] / max(share, HALF["rate"])
        return full if full.is_integer() and abs(by_rates / full - 1) <= slack else by_rates

    @property
    def lasted_s(self) -> float:
        """Time since the line before it, by the accepted or drafted tokens and their throughput; infinite without."""
        for name, tokens in (("Accepted", self.accepted), ("Drafted", self.drafted)):
            if tokens and self.speeds.get(name):
                return tokens / self.speeds[name]
        return math.inf


def read_vllm_log(files: Sequence[Path]) -> Recording:
    """Read the lines of all logs; other lines are left out. A server that does not speculate has a load only.

    Raises InputError, naming file, line and key or both values, where a line contradicts itself.
    """
    intervals: list[Interval] = []
    loads: list[LoadLine] = []
    read = [(f"{path}, line {number}", line) for path in files for number, line in read_lines(path)]
    for origin, line in read:
        if (tree := re.search(TREE, line)) is not None:
            stated = f"speculative_token_tree = {shortened(tree[1], 60, quoted=False)}"
            raise InputError(f"{origin}: {stated}: rates by position are of a chain; a log of a tree is not read")
        if MARK in line:
            intervals.append(_interval(origin, line[line.index(MARK) :]))
            if (load_line := next((load for load in reversed(loads) if "drafts" not in load), None)) is not None:
                load_line["accepted"], load_line["drafts"] = intervals[-1].accepted, intervals[-1].drafts
                load_line["rounds_per_s"] = intervals[-1].drafts / intervals[-1].lasted_s
        elif LOAD.keys() == (numbers := numbers_in([line], LOAD)).keys():
            more = numbers_in([line], MORE_LOAD)
            kv_share, cached = (more.get(name, 0.0) / 100 for name in ("kv_percent", "cached_percent"))
            loads.append(numbers | more | {"kv_share": kv_share, "cached": cached})
    names = ", ".join(map(str, files))
    weights = [interval.drafts for interval in intervals]
    drafts, accepted = sum(weights), sum(interval.accepted for interval in intervals)
    plain, settings = _count_plain_steps(loads, intervals), numbers_in((line for _, line in read), SETTINGS)
    load = load_between(loads, 1 + accepted / (drafts + plain) if intervals else 1.0, settings)
    if not intervals:
        if load is None:
            wanted = f"{MARK!r}, which a server with speculative decoding writes, nor two of its load in turn"
            raise InputError(f"{names}: holds no line with {wanted}")
        return Recording(source="vLLM's log", load=load)
    depths = sorted({len(interval.rates) for interval in intervals})
    if len(depths) > 1:
        raise InputError(f"{names}: lines with {depths[0]} and with {depths[1]} positions; give the log of one server")
    survival = np.average([interval.rates for interval in intervals], axis=0, weights=weights)
    survival *= drafts / (drafts + plain)
    short = sum(interval.drafted < 0.999 * interval.drafts * depths[0] for interval in intervals)
    lines = f"{len(intervals)} lines" if len(intervals) > 1 else "a line"
    shares = f"{lines}, weighted by their drafts; a share is written to 3 digits"
    notes = {
        f"{short} lines have drafts that were not full: later places come out low": short,
        plain_note(round(plain), round(drafts + plain)): plain,
    }
    counts = Counts(
        acceptance=PerPosition(survival=tuple(survival.round(6).clip(max=1.0).tolist())),
        depth=depths[0],
        rounds=round(drafts + plain),
        accepted=accepted,
        stated=float(np.average([interval.mean for interval in intervals], weights=weights)),
        source=shares,
        notes=tuple(note for note, is_so in notes.items() if is_so),
    )
    return Recording(source="vLLM's log", counts=counts, load=load)


def _count_plain_steps(loads: Sequence[LoadLine], intervals: Sequence[Interval]) -> float:
    """Return the steps of rows without a draft, which tokens beyond accepted ones show, and count them in the loads; 0
    if few or not known. Lines are equally far apart; a line of drafts covers the time before it, too."""
    last = max((place for place, line in enumerate(loads, start=1) if "drafts" in line), default=0)
    lines = loads[:last]
    lasted_s = min([EVERY_S, *(interval.lasted_s for interval in intervals)])
    steps = [max(line["tokens_per_s"] * lasted_s - line.get("accepted", 0), 0.0) for line in lines]
    drafts = sum(line.get("drafts", 0.0) for line in lines)
    plain = sum(steps) - drafts
    if plain <= FEW * sum(steps):
        return 0.0
    for line, count in zip(lines, steps, strict=True):
        line["rounds_per_s"] = count / lasted_s
    # A cut log begins with drafts of a line it lacks.
    return plain * sum(interval.drafts for interval in intervals) / drafts


def _interval(origin: str, line: str) -> Interval:
    counts, stated = numbers_in([line], COUNTS), re.search(RATES, line)
    if stated is None or counts.keys() != COUNTS.keys():
        lacking = [key for key in COUNTS if key not in counts] or ["Per-position acceptance rate"]
        raise InputError(f"{origin}: {shortened(line, most=120)} lacks `{lacking[0]}: NUMBER`")
    mean, average = counts["Mean acceptance length"], counts["Avg Draft acceptance rate"]
    accepted, drafted = int(counts["Accepted"]), int(counts["Drafted"])
    rates = tuple(map(float, stated[1].split(", ")))
    if len(rates) > MAX_DEPTH:
        raise InputError(f"{origin}: {len(rates)} positions; allowed: up to {MAX_DEPTH}")
    falls(origin, "Per-position acceptance rate", rates, "1", 1.0)
    at_most(origin, "Accepted", accepted, "Drafted", drafted)
    if not drafted:
        raise InputError(f"{origin}: Drafted: 0 tokens; needs drafts")
    by_rates = 1 + sum(rates)
    if abs(mean - by_rates) > HALF["Mean acceptance length"] + len(rates) * HALF["rate"]:
        raise InputError(f"{origin}: Mean acceptance length = {mean} contradicts 1 + its rates' sum = {by_rates:.4g}")
    share = 100 * accepted / drafted
    if abs(average - share) > HALF["Avg Draft acceptance rate"]:
        raise InputError(
            f"{origin}: Avg Draft acceptance rate = {average}% contradicts Accepted / Drafted = {share:.4g}%"
        )
    interval = Interval(mean, accepted, drafted, rates, numbers_in([line], SPEEDS))
    most = interval.drafts * len(rates) * (1 + len(rates) * HALF["rate"] / max(sum(rates), HALF["rate"]))
    at_most(origin, "Drafted", drafted, "what drafts of its positions can have", round(most + 1))
    return interval
