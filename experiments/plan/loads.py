"""The answer for several loads in words: the best method by load, and from which load on speculation loses."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from specfleet.experiments.plan.answer import Row
from specfleet.experiments.plan.commands import server_commands
from specfleet.experiments.plan.depths import depths_at, schedule_of
from specfleet.experiments.plan.ranges import LOWER, errors_of, ranges_of
from specfleet.experiments.plan.search import Simulations
from specfleet.experiments.plan.turns import turns

Best = tuple[Simulations, list[Row]]
"""What was found for a load, and its rows: the best fleet of each method, the best of all first."""


def lines_by_load(by_load: Sequence[Best]) -> Iterator[str]:
    """Say the best fleet by load, what may turn that, how deep to draft, and how to start the servers."""
    runs = [list(run) for _, run in groupby(by_load, key=lambda pair: _method(pair[1][0]))]  # of neighbouring loads
    spans = [f"{_span([rows[0].load for _, rows in run])}: {_method(run[0][1][0])}{_level(run)}" for run in runs]
    yield "best: " + "; ".join(spans)
    yield f"ranges: {_ranges(by_load)}"
    if gains := [f"x{gain:.2f} at {_short(rows[0].load)}" for _, rows in by_load if (gain := _speed_up(rows))]:
        yield f"speed-up: {', '.join(gains)}"
    yield from _depths(by_load)
    yield from turns([search for search, _ in by_load])
    for search, rows in {_method(rows[0]): (search, rows) for search, rows in by_load}.values():
        best = search.best[0]
        yield f"serve: {server_commands(best.candidate, best.depth, rows_at_once(search, rows[0]))[0]}"
    full = [row for _, rows in by_load for row in rows if (row.kv_share or 0.0) > 1]
    if full:
        first = min(full, key=lambda row: row.in_flight)
        need = f"{first.in_flight:.3g} in flight of {first.method} need {first.kv_share:.0%} of it; requests wait"
        yield f"KV cache: {need}"


def _ranges(by_load: Sequence[Best]) -> str:
    """Say by which shares what the best fleets give may be off, at most, over the loads."""
    metrics, ends = {"tokens/s": "throughput", "TPOT": "tpot_s", "TTFT": "ttft_s"}, dict[str, tuple[float, float]]()
    for search, rows in by_load:
        ranges = ranges_of(search, search.best[0])
        for what, name in metrics.items():
            one = ranges.around(name, rows[0].metrics[name])
            (low, high), value = ends.get(what, (1.0, 1.0)), one.value
            ends[what] = min(low, one.low / value), max(high, one.high / value)
    if by_load[0][0].question.load.per_s:
        del ends["tokens/s"]
    said = [
        f"{what} {f'{low - 1:+.0%} to {high - 1:+.0%}' if high < math.inf else 'not known'}"
        for what, (low, high) in ends.items()
    ]
    return f"{', '.join(said)} ({errors_of(by_load[0][0].best[0].candidate).of}; acceptance {LOWER:g} lower)"


def _depths(by_load: Sequence[Best]) -> Iterator[str]:
    """Say how deep the best way to draft goes at each load, with servers' options for it."""
    drafted = Counter(row.method for _, rows in by_load for row in rows[:1] if row.depth)
    drafted = drafted or Counter(row.method for _, rows in by_load for row in rows if row.depth)
    method = drafted.most_common(1)[0][0] if drafted else ""
    found = [(search, one) for search, _ in by_load for one in search.best if one.candidate.name == method]
    if found and not found[0][1].is_slow:
        known = [depths_at(search, one, search.question.load) for search, one in found]
        loads = [at for at in known if at is not None]
        yield f"depths: {method}: {'; '.join(f'{_short(at.load.text)}: {at.text}' for at in loads)}"
        yield from schedule_of(found[0][1], loads)


def rows_at_once(search: Simulations, row: Row) -> int:
    """Return the limit of a server's requests: as simulated, and in a closed loop the requests at a target."""
    limit = search.best[0].candidate.base.verifiers.max_num_seqs
    return limit if search.question.load.per_s else max(round(row.in_flight), 1)


def _speed_up(rows: Sequence[Row]) -> float:
    """Return the tokens a second of the best speculation over those without; 0 where arrivals give both as many."""
    plain = [row.tokens_per_s / row.targets for row in rows if not row.depth]
    drafted = [row.tokens_per_s / row.targets for row in rows if row.depth]
    return max(drafted) / max(plain) if plain and drafted and "/s" not in rows[0].load else 0.0


def _method(row: Row) -> str:
    return row.fleet if "/s" in row.load else row.method


def _short(load: str) -> str:
    return load.partition(" ")[0]


def _span(loads: Sequence[str]) -> str:
    return loads[0] if len(loads) == 1 else f"{_short(loads[0])} to {loads[-1]}"


def _level(run: Sequence[Best]) -> str:
    """Name the methods that are level with the best one at all of these loads."""
    level = [{row.method for row in rows if row.standing == "level"} for _, rows in run]
    also = sorted(set.intersection(*level))
    return f" (level with {', '.join(also)})" if also else ""
