"""What a sweep says in words: its best cell, the cells that chance does not tell from it, and the knee."""

import math
from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from specfleet.experiments.console.printing import interval, value_label
from specfleet.experiments.sweep.cell import Cell, CellResult
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.text import shortened
from specfleet.fleet.records.metrics.glossary import meanings
from specfleet.fleet.records.metrics.window import Metric, with_percentiles
from specfleet.fleet.shown import number
from specfleet.meaning.entries import axis_label

COUNT, ROUNDS, EACH = "verifiers.count", "rounds_per_s", "throughput_per_target"
CHOSEN = ("drafters.", "verifiers.")  # keys of what is built; others are facts of requests, links and machines
STANDALONE = "standalone_tokens_per_s"
MAX_NAMED = 8  # cells that a line names
LESS_IS_BETTER = ("s", "W", "J/token", "cost/million tokens")  # units of metrics of which less is better
NOT_KNOWN = "N_max: not known (no decode time)"
FULL = 0.98  # share of a plateau from which a drafter counts as full; its load stays below 1 by pauses between drafts


def findings(cells: Sequence[CellResult], quantity: str = "throughput") -> list[str]:
    """Return lines on the best cells by a metric, then on knees; none for fewer than two cells that have it.

    Keys of drafters and verifiers are chosen; the best is said for each value of all others. A number that alone is
    chosen is the smallest that chance does not tell from the best. Of times, power, energy and costs the least is best,
    of others the largest. InputError for what is no metric.
    """
    if quantity not in (known := meanings()):
        allowed = dict.fromkeys(name for cell in cells for name in with_percentiles(cell.metrics))
        raise InputError(f"findings of {shortened(quantity, quoted=False)}: no metric; allowed: {', '.join(allowed)}")
    having = [(cell, every[quantity]) for cell in cells if quantity in (every := with_percentiles(cell.metrics))]
    if len(having) < 2:
        return []
    if known[quantity].unit == "s" and max(metric.value for _, metric in having) < 1:
        in_ms = ({end: 1e3 * getattr(metric, end) for end in ("value", "low", "high")} for _, metric in having)
        having = [(cell, replace(of, unit="ms", **ends)) for (cell, of), ends in zip(having, in_ms, strict=True)]
    if not any(key.startswith(CHOSEN) for cell, _ in having for key in cell.cell):
        (low, a), (high, b) = (pick(having, key=lambda pair: pair[1].value) for pick in (min, max))
        where = f" at {words(low.cell)} to {number(b.value)} at {words(high.cell)}" * (b.value > a.value)
        return [f"{quantity}: {number(a.value)} {a.unit}{where or ' in all cells'}"]
    sets: dict[str, list[tuple[Cell, Metric]]] = {}
    for cell, metric in having:
        chosen = {key: value for key, value in cell.cell.items() if key.startswith(CHOSEN)}
        given = {key: value for key, value in cell.cell.items() if key not in chosen}
        sets.setdefault(words(given), []).append((chosen, metric))
    sense = -1 if known[quantity].unit in LESS_IS_BETTER else 1
    lines = [f"best {quantity}{f' at {given}' * bool(given)}: {_best(pairs, sense)}" for given, pairs in sets.items()]
    return [*lines, *knees([cell for cell, _ in having])]


def _best(having: Sequence[tuple[Cell, Metric]], sense: int) -> str:
    """Say the best of cells that differ in what is chosen, and the others that chance does not tell from it."""
    best = max(having, key=lambda pair: sense * pair[1].value)
    level = [pair for pair in having if pair is best or is_level(pair[1], best[1])]
    least = min(level, key=lambda pair: _only_number(pair[0]))
    cell, metric = least if _only_number(least[0]) < _only_number(best[0]) else best
    others = _named([other for other, _ in level if other is not cell], [other for other, _ in having])
    swept = {key: {of[key] for of, _ in having if type(of.get(key)) in (int, float)} for key in cell}
    ends = {key: [*{min(values), max(values)} - {0, 1}] for key, values in swept.items() if len(values) > 1}
    edge = words({key: cell[key] for key in ends if all(of.get(key) in ends[key] for of, _ in level)})
    others += f"; at the edge of what was swept: {edge}" * bool(edge)
    return f"{words(cell)}, {number(metric.value)} {metric.unit} ({interval(metric)}){others}"


def _only_number(cell: Cell) -> float:
    """Return a cell's value of the only key, as far as that is a number; NaN for others."""
    value = next(iter(cell.values())) if len(cell) == 1 else None
    return float(value) if isinstance(value, int | float) else math.nan


def words(cell: Cell) -> str:
    """Say a cell as people do: 1 target, depth 3, link latency 50 ms."""
    parts = []
    for key, value in cell.items():
        name, unit = axis_label(key)
        name = name.partition(" ")[0].replace(".", " ")
        text = f"{number(1e3 * value)} ms" if unit == "s" and isinstance(value, int | float) else value_label(value)
        parts.append(f"{text} {name.removesuffix('s' * (value == 1))}" if key.endswith("s.count") else f"{name} {text}")
    return ", ".join(parts)


def knees(cells: Sequence[CellResult]) -> list[str]:
    """Return a line for each set of cells that differ in the number of targets alone: N_full and N_max, two ways."""
    stars = [cell for cell in cells if COUNT in cell.cell and "N_full" in cell.analytic]
    sets: dict[str, list[CellResult]] = {}
    for cell in sorted(stars, key=lambda cell: int(cell.cell[COUNT])):
        sets.setdefault(words({key: value for key, value in cell.cell.items() if key != COUNT}), []).append(cell)
    lines = []
    for others, star in sets.items():
        N_full, N_max = (star[-1].analytic.get(name) for name in ("N_full", "N_max"))
        where = f" at {others}" if others else ""
        full, most = as_run(star) if len(star) > 1 and all(ROUNDS in cell.metrics for cell in star) else ("", "")
        gain = f"with up to {words({COUNT: int(N_max)})} each" if N_max else "no target"
        said = f"{gain} is as fast as without speculation (N_max, equations){most}" if N_max is not None else NOT_KNOWN
        full = f"{words({COUNT: int(N_full)})} on (N_full, equations){full}"
        lines.append(f"knee{where}: the drafter is busy from {full}; {said}")
    return lines


def as_run(cells: Sequence[CellResult]) -> tuple[str, str]:
    """Say N_full and N_max of cells by rising number of targets, with the range that their intervals allow.

    Between two counts that were swept, both may be any number: N_full above the lower, N_max below the upper one.
    N_max is left out where the equations have no rate of plain decoding, which it is held against in both worlds.
    """
    counts, last = [int(cell.cell[COUNT]) for cell in cells], int(cells[-1].cell[COUNT])
    rounds = [cell.metrics[ROUNDS] for cell in cells]
    full, (low, high) = level_of(counts, [metric.value for metric in rounds]), level_between(counts, rounds)
    seen_level = full < FULL * last  # throughput that still rises with N comes within that share at the last ones
    after = {count: before + 1 for before, count in pairwise([counts[0] - 1, *counts])}
    until = {count: behind - 1 for count, behind in pairwise([0, *counts])} | {last: math.inf}
    of_full = f", {_ranged(after[full], full, after[low], high, rounds)}"
    of_full = of_full if seen_level else f", not reached in {counts[0]} to {last} as run"
    standalone = cells[-1].analytic.get(STANDALONE)
    if standalone is None:
        return of_full, ""
    rates = [cell.metrics[EACH] for cell in cells]
    most, least, largest = most_that_gain(counts, rates, standalone)
    return of_full, f", {_ranged(most, until.get(most, most), least, until.get(largest, largest), rates)}"


def _ranged(first: int, last: float, low: int, high: float, metrics: Sequence[Metric]) -> str:
    """Say a knee as run, `first` to `last`, and behind it `low` to `high` by the intervals, where that is another."""
    spans = (first, last), (low, high)
    value, between = (f"{a}" if a == b else f"{a} or more" if b == math.inf else f"{a} to {b:g}" for a, b in spans)
    between = "no interval" if any(math.isnan(metric.low) for metric in metrics) else between
    return f"{value} as run" + f" ({between})" * (between != value)


def _named(cells: Sequence[Cell], swept: Sequence[Cell]) -> str:
    """Name the cells that are level with another: a row of values of the only key by its ends, or cell by cell."""
    if not cells:
        return ""
    alone = len(cells[0]) == 1
    texts, every = ([value_label(*cell.values()) if alone else words(cell) for cell in of] for of in (cells, swept))
    begin, count = every.index(texts[0]), len(texts)
    named = (", " if alone else "; ").join(texts[:MAX_NAMED]) + f" and {count - MAX_NAMED} more" * (count > MAX_NAMED)
    named = f"{texts[0]} to {texts[-1]}" if alone and count > 2 and every[begin : begin + count] == texts else named
    return f"; level with it by the 95 % intervals: {named}"


def is_level(metric: Metric, best: Metric) -> bool:
    """Whether chance may explain that two means differ: their difference is within its 95 % interval.

    Both intervals are taken as independent. Without them nothing is level but an equal value.
    """
    lower, upper = sorted((metric, best), key=lambda mean: mean.value)
    chance = math.hypot(lower.high - lower.value, upper.value - upper.low)
    return lower.value == upper.value or upper.value - lower.value <= chance


def level_of(counts: Sequence[int], values: Sequence[float]) -> int:
    """Return N_full: the first count whose value is level with the last; counts rise."""
    return next(N for N, value in zip(counts, values, strict=True) if value >= FULL * values[-1])


def level_between(counts: Sequence[int], metrics: Sequence[Metric]) -> tuple[int, int]:
    """Return the least and the largest N_full that the metrics' 95 % intervals allow; all counts without intervals."""
    low = next(N for N, metric in zip(counts, metrics, strict=True) if not metric.high < FULL * metrics[-1].low)
    certain = (N for N, metric in zip(counts, metrics, strict=True) if metric.low >= FULL * metrics[-1].high)
    return low, next(certain, counts[-1])


def most_that_gain(counts: Sequence[int], metrics: Sequence[Metric], standalone: float) -> tuple[int, int, int]:
    """Return N_max, and the least and the largest that the intervals allow: the last count at which targets gain.

    - `metrics`: throughput of a target; `standalone`: the same without the drafter.
    """

    least = standalone * (1 - 1e-12)

    def last(bound: str) -> int:
        return max((N for N, metric in zip(counts, metrics, strict=True) if getattr(metric, bound) >= least), default=0)

    return last("value"), last("low"), last("high")
