"""vLLM's log: lines `SpecDecoding metrics: ...` (acceptance) and `Engine 000: ...` (load), each over an interval."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from calibrate.readers.laws import at_most, falls
from calibrate.readers.load import Load
from calibrate.readers.log_lines import LoadLine, load_between, settings_in
from calibrate.readers.recording import Recording
from calibrate.readers.requests import MOST
from fleet.acceptance.models import PerPosition
from fleet.errors import InputError
from fleet.inputs.text import read_lines, shortened

MARK = "SpecDecoding metrics:"
NUMBER = r"([0-9]{1,12}(?:\.[0-9]{1,9})?)"
FIELDS = {
    "Mean acceptance length": re.compile(rf"Mean acceptance length: {NUMBER},"),
    "Accepted": re.compile(r"Accepted: ([0-9]{1,12}) tokens"),
    "Drafted": re.compile(r"Drafted: ([0-9]{1,12}) tokens"),
    "Per-position acceptance rate": re.compile(rf"Per-position acceptance rate: ({NUMBER}(?:, {NUMBER})*)(?=,|\s*$)"),
    "Avg Draft acceptance rate": re.compile(rf"Avg Draft acceptance rate: {NUMBER}%"),
}
WHOLE = r"([0-9]{1,9})"
LOADED = re.compile(
    rf"Engine {WHOLE}: Avg prompt throughput: {NUMBER} tokens/s, Avg generation throughput: {NUMBER} tokens/s, "
    rf"Running: {WHOLE} reqs, Waiting: {WHOLE} reqs(.*)"
)
KV_SHARE, PREEMPTIONS = re.compile(rf"KV cache usage: {NUMBER}%"), re.compile(rf"Preemptions: {WHOLE}")
SPEEDS = {name: re.compile(rf"{name} throughput: {NUMBER} tokens/s") for name in ("Accepted", "Drafted")}
SETTINGS = {
    "max_num_seqs": re.compile(rf"'max_num_seqs': {WHOLE}"),
    "max_num_batched_tokens": re.compile(rf"max_num_batched_tokens={WHOLE}"),
    "kv_tokens": re.compile(r"KV cache size: ([0-9][0-9,]{0,11}) tokens"),
}
HALF = {"Mean acceptance length": 0.00501, "rate": 0.000501, "Avg Draft acceptance rate": 0.0501}  # of the last digit


class Interval(NamedTuple):
    """One line: drafts are not reported, but follow from the accepted tokens and the mean length."""

    mean: float
    accepted: int
    drafted: int
    rates: tuple[float, ...]

    @property
    def drafts(self) -> float:
        """Drafts of the interval: whole where all of them are full."""
        full = self.drafted / len(self.rates)
        share = sum(list(self.rates))
        by_rates = self.accepted / share if self.accepted and share else full
        slack = len(self.rates) * HALF["rate"] / max(share, HALF["rate"])
        return full if full.is_integer() and abs(by_rates / full - 1) <= slack else by_rates


def read_vllm_log(files: Sequence[Path]) -> Recording:
    """Read the lines of all logs; other lines are left out. A server that does not speculate has a load only.

    Raises InputError, naming file, line, key and both values, where a line contradicts itself.
    """
    intervals, read = [], []
    for path in files:
        for number, line in read_lines(path):
            read.append(line)
            if MARK in line:
                intervals.append(_interval(f"{path}, line {number}", line[line.index(MARK) :]))
    names = ", ".join(map(str, files))
    if not intervals:
        load = _load(read, 1.0)
        if load is None:
            wanted = f"{MARK!r}, which a server with speculative decoding writes, nor two of its load in turn"
            raise InputError(f"{names}: holds no line with {wanted}")
        return Recording(format="vLLM's log, without speculation", acceptance=None, depth=0, load=load)
    depths = sorted({len(interval.rates) for interval in intervals})
    if len(depths) > 1:
        raise InputError(f"{names}: lines with {depths[0]} and with {depths[1]} positions; give the log of one server")
    weights = [interval.drafts for interval in intervals]
    drafts, accepted = sum(weights), sum(interval.accepted for interval in intervals)
    survival = [
        sum(weight * interval.rates[place] for weight, interval in zip(weights, intervals, strict=True)) / drafts
        for place in range(depths[0])
    ]
    mean = sum(weight * interval.mean for weight, interval in zip(weights, intervals, strict=True)) / drafts
    short = sum(interval.drafted < 0.999 * interval.drafts * depths[0] for interval in intervals)
    lines = f"{len(intervals)} lines" if len(intervals) > 1 else "a line"
    shares = f"{lines}, weighted by their drafts; a share is written to 3 digits"
    return Recording(
        format="vLLM's log",
        acceptance=PerPosition(survival=tuple(min(round(share, 6), 1.0) for share in survival)),
        depth=depths[0],
        rounds=round(drafts),
        accepted=accepted,
        stated=mean,
        sources={"acceptance": shares},
        load=_load(read, 1 + accepted / drafts),
        notes=(f"{short} lines have drafts that were not full: later places come out low",) if short else (),
    )


def _load(read: Sequence[str], tokens_per_round: float) -> Load | None:
    """Return the load in the lines of one engine; None without one."""
    lines: list[LoadLine] = []
    engines = set()
    for line in read:
        if found := LOADED.search(line):
            engines.add(found[1])
            share, preempted = KV_SHARE.search(found[6]), PREEMPTIONS.search(found[6])
            lines.append(
                LoadLine(
                    prompts_per_s=float(found[2]),
                    tokens_per_s=float(found[3]),
                    running=int(found[4]),
                    waiting=int(found[5]),
                    kv_share=float(share[1]) / 100 if share else 0.0,
                    preemptions=int(preempted[1]) if preempted else 0,
                )
            )
        elif MARK in line and lines:
            lines[-1] = lines[-1]._replace(rounds_per_s=_rounds_per_s(line))
    return load_between(lines, tokens_per_round, settings_in(read, SETTINGS)) if len(engines) == 1 else None


def _rounds_per_s(line: str) -> float:
    """Return drafts in a second: those of the interval, by its accepted or drafted tokens and their throughput."""
    interval = _interval("", line[line.index(MARK) :])
    for name, tokens in (("Accepted", interval.accepted), ("Drafted", interval.drafted)):
        if tokens and (speed := SPEEDS[name].search(line)):
            return interval.drafts * float(speed[1]) / tokens
    return 0.0


def _interval(origin: str, line: str) -> Interval:
    fields = {}
    for key, pattern in FIELDS.items():
        found = pattern.search(line)
        if found is None:
            raise InputError(f"{origin}: {shortened(line, most=120)} lacks `{key}: NUMBER`")
        fields[key] = found[1]
    mean, average = float(fields["Mean acceptance length"]), float(fields["Avg Draft acceptance rate"])
    rates = tuple(float(rate) for rate in fields["Per-position acceptance rate"].split(", "))
    accepted, drafted = int(fields["Accepted"]), int(fields["Drafted"])
    if len(rates) > MOST:
        raise InputError(f"{origin}: {len(rates)} positions; allowed: up to {MOST}")
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
    interval = Interval(mean, accepted, drafted, rates)
    most = interval.drafts * len(rates) * (1 + len(rates) * HALF["rate"] / max(sum(rates), HALF["rate"]))
    at_most(origin, "Drafted", drafted, "what drafts of its positions can have", round(most + 1))
    return interval
