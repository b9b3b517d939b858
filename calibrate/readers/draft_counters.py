"""Counters of drafts in a Prometheus text: `PREFIXdrafts`, `draft_tokens`, `accepted_tokens` and those by position."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from specfleet.calibration.readers.counts import MAX_DEPTH
from specfleet.calibration.readers.laws import at_most, falls, same
from specfleet.calibration.readers.prometheus import Sample, Sums, add_up, between, number_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.text import shortened

COUNTERS, BY_POSITION = ("drafts", "draft_tokens", "accepted_tokens"), "accepted_tokens_per_pos"
MAX_COUNTED = 2**53  # a counter is a float, which knows no larger whole numbers


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
