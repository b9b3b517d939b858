"""The load in a server's log: lines that say now and then how many requests run, and at which rates."""

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import pandas as pd

from specfleet.calibration.readers.load import Load, ways_of

WHOLE, NUMBER = r"([0-9]{1,12})", r"([0-9]{1,12}(?:\.[0-9]{1,9})?)"
LoadLine = dict[str, float]
"""The fields of a line of the load by the names in `FIELDS`: rates since the line before it, and requests at its time.

`engine`: which of several. `rounds_per_s`: verifications of all rows, if the log has them apart from `tokens_per_s`.
`idle`: 1 where the server did nothing for most of that time. `cached`: share of the prompts' tokens that a cache had.
"""
FIELDS = (
    "engine", "tokens_per_s", "running", "waiting", "kv_share", "preemptions", "prompts_per_s", "rounds_per_s", "idle",
    "cached",
)  # fmt: skip


def numbers_in(lines: Iterable[str], patterns: Mapping[str, str]) -> dict[str, float]:
    """Return the numbers that the lines state, the last of each; whole ones as int."""
    matches = ((name, re.search(pattern, line)) for line in lines for name, pattern in patterns.items())
    stated = ((name, match[1].replace(",", "")) for name, match in matches if match)
    return {name: float(text) if "." in text else int(text) for name, text in stated}


def load_between(lines: Sequence[LoadLine], tokens_per_round: float, settings: Mapping[str, float]) -> Load | None:
    """Return the load over the intervals that began and ended with requests running, engines added up; None without."""
    zeros = {name: 0.0 for name in FIELDS if name != "rounds_per_s"}  # a cut log lacks its last ones
    table = pd.DataFrame(lines, columns=FIELDS, dtype=float).fillna(zeros)
    before = table.groupby("engine").shift(fill_value=0.0)
    is_kept = (before.running > 0) & (table.running > 0) & (table.idle == 0)
    if not is_kept.any():
        return None
    by_engine = table.engine[is_kept]
    kept = table[is_kept].groupby(by_engine).mean().sum()
    ends = ((before + table) / 2)[is_kept].groupby(by_engine).mean().sum()
    tokens_per_s = float(kept.tokens_per_s)
    load = Load(
        over=f"{is_kept.sum()} intervals of the log that began and ended with requests running; requests at their ends",
        tokens_per_s=tokens_per_s,
        in_flight=float(ends.running + ends.waiting),
        running=float(ends.running),
        waiting=float(ends.waiting),
        kv_share=float(table.kv_share[is_kept].mean()),
        preemptions=int(table.preemptions[is_kept].sum()) if any("preemptions" in line for line in lines) else None,
        prompts_per_token=float(kept.prompts_per_s) / tokens_per_s if tokens_per_s else 0.0,
        tokens_per_round=tokens_per_round,
        engines=table.engine.nunique(),
        cached_share=float(table.cached[is_kept].mean()),
        ways=ways_of(None, None, float(ends.running), tokens_per_s, float(kept.rounds_per_s), tokens_per_round),
    )
    return msgspec.structs.replace(load, **settings)
