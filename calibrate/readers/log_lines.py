"""The load in a server's log: lines that say now and then how many requests run, and at which rates."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from re import Pattern
from statistics import fmean
from typing import NamedTuple

import msgspec

from calibrate.readers.load import Load, ways_of


class LoadLine(NamedTuple):
    """A line of the load: rates since the line before it, and requests at its time.

    - `rounds_per_s`: verifications of all rows, where the log has them apart from `tokens_per_s`.
    """

    tokens_per_s: float
    running: int
    waiting: int
    kv_share: float
    preemptions: int = 0
    prompts_per_s: float = 0.0
    rounds_per_s: float = 0.0


def load_between(lines: Sequence[LoadLine], tokens_per_round: float, settings: Mapping[str, int]) -> Load | None:
    """Return the load over the intervals that began and ended with requests running; None without one."""
    pairs = [(before, line) for before, line in pairwise(lines) if before.running and line.running]
    if not pairs:
        return None
    kept = [line for _, line in pairs]
    running = fmean((before.running + line.running) / 2 for before, line in pairs)
    waiting = fmean((before.waiting + line.waiting) / 2 for before, line in pairs)
    tokens_per_s, rounds_per_s = fmean(line.tokens_per_s for line in kept), fmean(line.rounds_per_s for line in kept)
    load = Load(
        over=f"{len(kept)} intervals of the log that began and ended with requests running; requests at their ends",
        tokens_per_s=tokens_per_s,
        in_flight=running + waiting,
        running=running,
        waiting=waiting,
        kv_share=fmean(line.kv_share for line in kept),
        preemptions=sum(line.preemptions for line in kept),
        prompts_per_token=fmean(line.prompts_per_s for line in kept) / tokens_per_s if tokens_per_s else 0.0,
        tokens_per_round=tokens_per_round,
        ways=ways_of(None, None, running, tokens_per_s, rounds_per_s, tokens_per_round),
    )
    return msgspec.structs.replace(load, **settings)


def settings_in(read: Sequence[str], patterns: Mapping[str, Pattern[str]]) -> dict[str, int]:
    """Return the settings that the lines state, the last of each."""
    found = ((name, pattern.search(line)) for line in read for name, pattern in patterns.items())
    return {name: int(stated[1].replace(",", "")) for name, stated in found if stated}
