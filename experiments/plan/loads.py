"""The answer for several loads in words: the best method by load, and from which load on speculation loses."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from specfleet.experiments.plan.answer import Row
from specfleet.experiments.plan.commands import server_commands
from specfleet.experiments.plan.search import Simulations

Best = tuple[Simulations, list[Row]]
"""What was found for a load, and its rows: the best fleet of each method, the best of all first."""


def lines_by_load(by_load: Sequence[Best]) -> Iterator[str]:
    """Say the best fleet by load, the speed-up of speculation, where to turn it off, and how to start the servers."""
    runs = [list(run) for _, run in groupby(by_load, key=lambda pair: _named(pair[1][0]))]  # of neighbouring loads
    spans = [f"{_span([rows[0].load for _, rows in run])}: {_named(run[0][1][0])}{_level(run)}" for run in runs]
    yield "best: " + "; ".join(spans)
    depths = [rows[0].depth for _, rows in by_load]
    if any(row.depth for _, rows in by_load for row in rows):
        if gains := [f"x{gain:.2f} at {_short(rows[0].load)}" for _, rows in by_load if (gain := _speed_up(rows))]:
            yield f"speed-up: {', '.join(gains)}"
        off = [_short(rows[0].load) for (_, rows), depth in zip(by_load, depths, strict=True) if not depth]
        says = ", ".join(
            f"{depth} at {_short(rows[0].load)}" for (_, rows), depth in zip(by_load, depths, strict=True) if depth
        )
        end = "it pays at each of these loads"
        if off:
            end = f"off from {off[0]} on" if not any(depths[-len(off) :]) else f"off at {', '.join(off)}"
        yield f"speculate: {f'depth {says}' if says else 'never'}; {end}"
    for run in runs:
        search, rows = run[-1]
        best = search.best[0]
        yield f"serve: {server_commands(best.candidate, best.depth, rows_at_once(search, rows[0]))[0]}"
    full = [row for _, rows in by_load for row in rows if (row.kv_share or 0.0) > 1]
    if full:
        first = min(full, key=lambda row: row.in_flight)
        need = f"{first.in_flight:.3g} in flight of {first.method} need {first.kv_share:.0%} of it; requests wait"
        yield f"KV cache: {need}"


def rows_at_once(search: Simulations, row: Row) -> int:
    """Return the limit of a server's requests: as simulated, and in a closed loop the requests at a target."""
    limit = search.best[0].candidate.base.verifiers.max_num_seqs
    return limit if search.question.load.per_s else max(round(row.in_flight), 1)


def _speed_up(rows: Sequence[Row]) -> float:
    """Return the tokens a second of the best speculation over those without; 0 where arrivals give both as many."""
    plain = [row.tokens_per_s / row.targets for row in rows if not row.depth]
    drafted = [row.tokens_per_s / row.targets for row in rows if row.depth]
    return max(drafted) / max(plain) if plain and drafted and "/s" not in rows[0].load else 0.0


def _named(row: Row) -> str:
    if "/s" in row.load:
        return row.fleet
    return f"{row.method}, depth {row.depth}" if row.depth else row.method


def _short(load: str) -> str:
    return load.partition(" ")[0]


def _span(loads: Sequence[str]) -> str:
    return loads[0] if len(loads) == 1 else f"{_short(loads[0])} to {loads[-1]}"


def _level(run: Sequence[Best]) -> str:
    """Name the methods that are level with the best one at all of these loads."""
    level = [{row.method for row in rows if row.standing == "level"} for _, rows in run]
    also = sorted(set.intersection(*level))
    return f" (level with {', '.join(also)})" if also else ""
