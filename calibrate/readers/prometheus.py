"""Prometheus text: samples of a scrape, summed over engines; counters and histograms between two scrapes."""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from calibrate.readers.load import LEVELS, Spread
from fleet.errors import InputError
from fleet.inputs.text import read_lines, shortened

SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+(-?\d+))?")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
WIDEST = 1.5  # upper over lower bound of a bucket that a quantile is read from

Sums = dict[str, float]
"""Values by name and, of a bucket, its bound: `NAME_bucket le=0.5`; summed over all other labels."""


class Sample(NamedTuple):
    """A line: `labels` as written, `at_ms` where it has a time."""

    origin: str
    name: str
    labels: str
    value: str
    at_ms: int | None


def samples(path: Path, prefix: str) -> Iterator[Sample]:
    """Yield the samples whose names begin with `prefix`; InputError for a line that is none, or stands there twice."""
    read: set[tuple[str, str]] = set()
    for number, line in read_lines(path):
        if not line.lstrip().startswith(prefix):
            continue
        origin, found = f"{path}, line {number}", SAMPLE.fullmatch(line.strip())
        if found is None:
            raise InputError(f"{origin}: {shortened(line.strip())} is no sample of Prometheus text")
        name, labels = found[1], found[2] or ""
        if (name, labels) in read:
            raise InputError(f"{origin}: {name}{{{shortened(labels, quoted=False)}}} stands there twice")
        read.add((name, labels))
        if not name.endswith("_created"):  # when the counter began
            yield Sample(origin, name, labels, found[3], int(found[4]) if found[4] else None)


def number_of(sample: Sample) -> float:
    """Return the value of a sample; InputError unless it is a finite number from 0."""
    try:
        value = float(sample.value)
    except ValueError as error:
        raise InputError(f"{sample.origin}: {sample.name} = {shortened(sample.value)}; needs a number") from error
    if not 0 <= value < math.inf:
        raise InputError(f"{sample.origin}: {sample.name} = {sample.value}; allowed: numbers from 0")
    return value


def add_up(each: Iterator[Sample], names: frozenset[str]) -> Sums:
    """Return the sums of samples by name and bucket, of those metrics only."""
    sums: Sums = {}
    for sample in each:
        if re.sub(r"_(bucket|sum|count|total)$", "", sample.name) in names or sample.name in names:
            bound = dict(LABEL.findall(sample.labels)).get("le")
            if bound is not None:
                number_of(sample._replace(name=f"{sample.name}, le", value=bound.replace("+Inf", "0")))
            key = sample.name if bound is None else f"{sample.name} le={bound}"
            sums[key] = sums.get(key, 0.0) + number_of(sample)
    return sums


def between(before: Mapping[str, float], after: Mapping[str, float], gauges: frozenset[str], origin: str) -> Sums:
    """Return the differences of counters, and the means of gauges; InputError where a counter fell, as by a restart."""
    found: Sums = {}
    for key, value in after.items():
        earlier = before.get(key, 0.0)
        if key not in gauges and value < earlier:
            raise InputError(f"{origin}: {key} = {value:g} is below the scrape before it, {earlier:g}: a restart?")
        found[key] = (earlier + value) / 2 if key in gauges else value - earlier
    return found


def histogram(sums: Mapping[str, float], name: str, origin: str) -> Spread | None:
    """Return mean and quantiles of a histogram, linear within its buckets; None where it is empty or not there.

    Raises InputError where its buckets contradict each other or its count.
    """
    count = sums.get(f"{name}_count", 0.0)
    if not count or f"{name}_sum" not in sums:
        return None
    mean = sums[f"{name}_sum"] / count
    begins = f"{name}_bucket le="
    bounds = sorted((float(key.removeprefix(begins)), value) for key, value in sums.items() if key.startswith(begins))
    if not bounds:
        return Spread(mean)
    steps = [count_to for _, count_to in bounds]
    if steps != sorted(steps) or steps[-1] != count or bounds[-1][0] != math.inf:
        raise InputError(f"{origin}: buckets of {name} contradict its count = {count:g}; needs rising counts up to it")
    edges = [0.0, *(bound for bound, _ in bounds)]
    shares = [
        (low, high, here - under)
        for low, high, here, under in zip(edges[:-1], edges[1:], steps, [0.0, *steps[:-1]], strict=True)
    ]
    filled = [(low, high, number) for low, high, number in shares if number]
    quantiles = {label: _quantile(filled, level * count) for label, level in LEVELS.items()}
    known = {label: value for label, value in quantiles.items() if value is not None}
    low, high = filled[0][0], filled[-1][1]
    within = [(number, (low + high) / 2, (high - low) ** 2 / 12) for low, high, number in filled if high < math.inf]
    centre = sum(number * middle for number, middle, _ in within) / max(sum(number for number, *_ in within), 1)
    spread = sum(number * ((middle - centre) ** 2 + width) for number, middle, width in within)
    return Spread(mean, known, low, high, math.sqrt(spread / count) / centre if centre else 0.0)


def _quantile(filled: list[tuple[float, float, float]], rank: float) -> float | None:
    """Return a quantile; None where its bucket is too wide to say."""
    under = 0.0
    for low, high, number in filled:
        if under + number >= rank:
            return low + (high - low) * (rank - under) / number if high <= WIDEST * low else None
        under += number
    return None
