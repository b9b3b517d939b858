"""Prometheus text: samples of a scrape, summed over engines; counters, histograms and drafts between two scrapes.

`prometheus_client` parses each line; exemplars, which its parser of this format does not know, are cut off before.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from prometheus_client.parser import text_string_to_metric_families

from specfleet.calibration.readers.counts import MAX_DEPTH
from specfleet.calibration.readers.laws import at_most, falls, same
from specfleet.calibration.readers.load import LEVELS, Spread
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.text import read_lines, shortened

BEFORE_EXEMPLAR = re.compile(r'((?:[^"#]|"(?:[^"\\]|\\.)*")*)(?:#.*)?')
END = "# EOF"  # of OpenMetrics, whose times are in seconds
FIRST_MS = 1e11  # times from here on are in milliseconds: so many seconds are over in the year 5138
COUNTED = re.compile(r"_(bucket|sum|count|total)$")  # at the end of a counter's or a histogram's samples
CREATED = "_created"  # at the end of the time at which a counter began
MAX_VALUE = 1e30  # no counter is as large: a GPU has 1e24 floating-point operations in decades
COUNTERS, BY_POSITION = ("drafts", "draft_tokens", "accepted_tokens"), "accepted_tokens_per_pos"  # of drafts
MAX_COUNTED = 2**53  # a counter is a float, which knows no larger whole numbers
NEARLY_ALL = 0.8  # share of a histogram in a bucket, from which their mean says where they lie in it
WIDEST = 1.5  # upper over lower bound of a bucket that a quantile is read from

Floats = NDArray[np.float64]
Sums = dict[str, float]
"""Values summed over engines, by name and bound or position: `NAME`, `NAME_bucket of le 0.5`, `NAME of position 2`.

The name of a counter is without `_total`.
"""


class Sample(NamedTuple):
    """A line: its value, and `at_s` where it has a time."""

    origin: str
    name: str
    labels: dict[str, str]
    value: float
    at_s: float | None


def read_scrapes(files: Sequence[Path], prefix: str) -> list[list[Sample]]:
    """Return the samples of one scrape, or of one before and one after: names that begin with `prefix`.

    Raises InputError for a third file, as `_samples`, and where a counter of any engine fell or began again, a restart,
    or is gone: another server.
    """
    if len(files) > 2:
        raise InputError(f"{files[2]}: a third file; give one scrape, or the one before and the one after")
    scrapes = [list(_samples(path, prefix)) for path in files]
    before, after = ({(one.name, *sorted(one.labels.items())): one for one in scrapes[at]} for at in (0, -1))
    if gone := next((one for key, one in before.items() if COUNTED.search(one.name) and key not in after), None):
        raise InputError(f"{files[-1]}: lacks {gone.name} of {gone.origin}: another server? Scrape both of one")
    for key, sample in after.items():
        earlier = before.get(key, sample)
        is_later = sample.name.endswith(CREATED) and sample.value != earlier.value
        if is_later or (COUNTED.search(sample.name) and number_of(sample) < number_of(earlier)):
            relation = "differs from" if is_later else "is below"
            fell = f"{sample.name} = {sample.value:.15g} {relation} the scrape before it, {earlier.value:.15g}"
            raise InputError(f"{sample.origin}: {fell}: a restart? Scrape both after it")
    return [[sample for sample in scrape if not sample.name.endswith(CREATED)] for scrape in scrapes]


def _samples(path: Path, prefix: str) -> Iterator[Sample]:
    """Yield the samples whose names begin with `prefix`; InputError for a line that is none, or stands there twice."""
    read: set[tuple[str, ...]] = set()
    lines = [(number, line.strip()) for number, line in read_lines(path)]
    in_seconds = any(line == END for _, line in lines)
    for number, line in lines:
        if not line.startswith(prefix):
            continue
        origin, parsed = f"{path}, line {number}", _parsed(line, in_seconds)
        if parsed is None:
            raise InputError(f"{origin}: {shortened(line)} is no sample of Prometheus text")
        name, labels, value, at_s = parsed
        written = (name, *(f'{label}="{text}"' for label, text in sorted(labels.items())))
        if written in read:
            raise InputError(f"{origin}: {name}{{{shortened(','.join(written[1:]), quoted=False)}}} stands there twice")
        read.add(written)
        yield Sample(origin, name, labels, value, at_s)


@lru_cache(maxsize=4096)
def _parsed(line: str, in_seconds: bool) -> tuple[str, dict[str, str], float, float | None] | None:
    """Return name, labels, value and time in seconds, if there is one, of a line; None where it is no sample."""
    match = BEFORE_EXEMPLAR.fullmatch(line)
    text = match[1].strip() if match else ""
    numbers = text.rpartition("}")[2].split() if "{" in text else text.split()[1:]
    try:
        (metric,) = text_string_to_metric_families(text)
        (sample,) = metric.samples
        value, stamps = float(sample.value), [float(number) for number in numbers[1:]]
    except (ValueError, IndexError, OverflowError):
        return None
    if len(numbers) not in (1, 2) or not all(map(math.isfinite, stamps)):
        return None
    in_ms = not (in_seconds or "." in numbers[-1]) or any(stamp >= FIRST_MS for stamp in stamps)
    return sample.name, sample.labels, value, stamps[0] / (1000 if in_ms else 1) if stamps else None


def number_of(sample: Sample) -> float:
    """Return the value of a sample; InputError unless it is a number from 0 to MAX_VALUE."""
    if not 0 <= sample.value <= MAX_VALUE:
        allowed = f"numbers from 0 to {MAX_VALUE:g}"
        raise InputError(f"{sample.origin}: {sample.name} = {sample.value:.15g}; allowed: {allowed}")
    return sample.value


def add_up(scrape: Iterable[Sample]) -> Sums:
    """Return the sums of samples over engines."""
    sums: Sums = {}
    for sample in scrape:
        key = sample.name.removesuffix("_total")
        if (bound := sample.labels.get("le")) is not None:
            key += f" of le {_bound_of(sample, bound)}"
        if (position := sample.labels.get("position")) is not None:
            key += f" of position {position}"
        sums[key] = sums.get(key, 0.0) + number_of(sample)
    return sums


def _bound_of(sample: Sample, bound: str) -> str:
    """Return a bucket's bound as written; InputError unless it is a number from 0."""
    try:
        if float(bound) >= 0:
            return bound
    except ValueError:
        pass
    raise InputError(f'{sample.origin}: {sample.name}, le="{shortened(bound, quoted=False)}"; needs a number from 0')


def between(before: Mapping[str, float], after: Mapping[str, float], gauges: frozenset[str] = frozenset()) -> Sums:
    """Return the differences of counters, and the means of gauges."""
    return {
        key: (before.get(key, 0.0) + value) / 2 if key in gauges else value - before.get(key, 0.0)
        for key, value in after.items()
    }


def histogram(sums: Mapping[str, float], name: str, origin: str) -> Spread | None:
    """Return mean and quantiles of a histogram, linear within its buckets; None where it is empty or not there.

    A bucket that holds nearly all is narrowed around their mean, which sum and count give. A quantile is left out if
    its bucket is too wide to say. Raises InputError where buckets contradict each other or the count.
    """
    count = sums.get(f"{name}_count", 0.0)
    if not count or f"{name}_sum" not in sums:
        return None
    mean = sums[f"{name}_sum"] / count
    begins = f"{name}_bucket of le "
    buckets = sorted((float(key.removeprefix(begins)), value) for key, value in sums.items() if key.startswith(begins))
    if not buckets:
        return Spread(mean)
    highs, reached = np.array(buckets).T
    lows, numbers = np.array([0.0, *highs[:-1]]), np.diff(reached, prepend=0.0)
    if min(numbers) < 0 or reached[-1] != count or highs[-1] != math.inf:
        raise InputError(f"{origin}: buckets of {name} contradict its count = {count:g}; needs rising counts up to it")
    begins_at, ends_at = _narrowed(lows, highs, numbers, mean * count)
    quantiles = {}
    for label, level in LEVELS.items():
        at = int(np.searchsorted(reached, level * count))
        if highs[at] <= WIDEST * lows[at]:
            share = 1 - (reached[at] - level * count) / numbers[at]
            quantiles[label] = float(begins_at[at] + (ends_at[at] - begins_at[at]) * share)
    filled = numbers > 0
    within = numbers[:-1]  # the last bucket has no width
    middles, widths = (lows + highs)[:-1] / 2, (highs - lows)[:-1]
    centre = within @ middles / max(within.sum(), 1)
    deviation = math.sqrt(within @ ((middles - centre) ** 2 + widths**2 / 12) / count)
    return Spread(
        mean, quantiles, float(lows[filled][0]), float(highs[filled][-1]), float(deviation / centre) if centre else 0.0
    )


def _narrowed(lows: Floats, highs: Floats, numbers: Floats, total: float) -> tuple[Floats, Floats]:
    """Return where values begin and end in each bucket, of their sum; others than the fullest are taken as even."""
    most, count = int(numbers.argmax()), numbers.sum()
    begin, end = lows.copy(), highs.copy()
    if numbers[most] >= NEARLY_ALL * count and not numbers[-1]:
        rest = np.delete(numbers, most)[:-1] @ np.delete(lows + highs, most)[:-1] / 2
        centre = (total - rest) / numbers[most]
        half = max(min(centre - lows[most], highs[most] - centre), 0.0)
        begin[most], end[most] = np.clip([centre - half, centre + half], lows[most], highs[most])
    return begin, end


class Drafts(NamedTuple):
    """Drafts, their tokens, accepted ones, and those that passed each position; `since` when, in words."""

    drafts: int
    tokens: int
    accepted: int
    passed: list[int]
    origin: str
    since: str


def drafts_in(files: Sequence[Path], scrapes: Sequence[Sequence[Sample]], prefix: str) -> Drafts:
    """Return the counts of one scrape since the server's start, or between two.

    - `prefix`: of the engine's names.

    Raises InputError, naming file, metric and both values, where counters are missing or contradict each other.
    """
    scraped = [_counters(path, scrape, prefix) for path, scrape in zip(files, scrapes, strict=True)]
    origin, counted, since = str(files[-1]), scraped[-1], "since the server's start"
    if len(scraped) == 2:
        before, after = scraped
        if before.keys() != after.keys():
            after_it, before_it = (len(counters) - len(COUNTERS) for counters in (after, before))
            raise InputError(f"{origin}: counts {after_it} positions; the scrape before it {before_it}")
        counted = between(before, after)
        origin, since = ", ".join(map(str, files)), "between the two scrapes"
    drafts, tokens, accepted, *passed = _checked(origin, counted, prefix)
    return Drafts(drafts, tokens, accepted, passed, origin, since)


def _counters(path: Path, scrape: Sequence[Sample], prefix: str) -> Sums:
    """Return the counters: drafts, their tokens, accepted tokens, and those of each position."""
    counters, by_position = [sample for sample in scrape if sample.name.startswith(prefix)], f"{prefix}{BY_POSITION}"
    for sample in counters:
        value = number_of(sample)
        if value > MAX_COUNTED or not value.is_integer():
            raise InputError(f"{sample.origin}: {sample.name} = {sample.value:.15g}; allowed: whole numbers from 0")
        position = sample.labels.get("position", "")
        is_place = re.fullmatch(r"[0-9]{1,4}", position, re.ASCII) and int(position) < MAX_DEPTH
        if sample.name.startswith(by_position) and not is_place:
            place = shortened(position, quoted=False)
            raise InputError(f'{sample.origin}: position="{place}"; allowed: 0 to {MAX_DEPTH - 1}')
    sums = add_up(counters)
    positions = max(sum(name.startswith(by_position) for name in sums), 1)
    names = (
        *(f"{prefix}{name}" for name in COUNTERS),
        *(f"{by_position} of position {place}" for place in range(positions)),
    )
    if missing := [name for name in names if name not in sums]:
        metric, _, position = missing[0].partition(" of ")
        lacking = f"{metric}_total" + " of each position" * bool(position)
        raise InputError(f"{path}: lacks {lacking}, which a server with speculative decoding reports")
    counted = {name: sums[name] for name in names}
    _checked(str(path), counted, prefix)
    return counted


def _checked(origin: str, counters: Sums, prefix: str) -> list[int]:
    """Return the counts; InputError where they contradict each other."""
    drafts, tokens, accepted, *passed = counts = list(map(int, counters.values()))
    drafts_name, tokens_name, accepted_name = (f"{prefix}{name}" for name in COUNTERS)
    falls(origin, f"{prefix}{BY_POSITION} of position", passed, drafts_name, drafts)
    same(origin, accepted_name, accepted, "the sum over its positions", sum(passed))
    at_most(origin, accepted_name, accepted, tokens_name, tokens)
    at_most(origin, tokens_name, tokens, f"{drafts_name} times its positions", drafts * len(passed))
    return counts
