"""Which of two methods a paper finds ahead in the same case, and whether ours is the same one."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from experiments.reproduce.rows import JUDGED, PaperRow

METHODS = ("method", "rule", "strategy")  # keys of a case that name what is compared
OVER = " over "  # in the name of a quantity: a quotient of two methods, or of two cases


def reversed_orders(rows: Sequence[PaperRow]) -> tuple[int, list[str]]:
    """Return how many pairs of methods the paper puts in an order, and those that ours puts in another, in words.

    A pair has one quantity and one case, and at least one of its numbers is a prediction; or it is one predicted row
    of a quantity "x over y", above or below 1. Equal numbers of the paper have no order.
    """
    pairs = [pair for group in _alike(rows) for pair in combinations(group, 2) if _is_ordered(pair)]
    ratios = [row for row in rows if OVER in row.quantity and row.kind in JUDGED and row.error is not None]
    ratios = [row for row in ratios if not row.is_claim and row.paper != 1]
    wrong = [row for row in ratios if ((row.paper or 0.0) > 1) != ((row.ours or 0.0) > 1)]
    words = [f"{row.quantity}{_where(row)}: {row.paper:.4g} in the paper, {row.ours:.4g} here" for row in wrong]
    return len(pairs) + len(ratios), [_said(pair) for pair in pairs if not _same_order(pair)] + words


def _alike(rows: Sequence[PaperRow]) -> Iterator[list[PaperRow]]:
    """Yield the rows that differ in the method alone."""
    groups: dict[str, list[PaperRow]] = {}
    for row in rows:
        key = next((key for key in METHODS if key in row.case), None)
        if key is not None and row.paper is not None and row.ours is not None and not row.is_claim:
            groups.setdefault(repr((row.quantity, key, _others(row.case))), []).append(row)
    yield from groups.values()


def _others(case: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in case.items() if key not in METHODS}


def _is_ordered(pair: tuple[PaperRow, PaperRow]) -> bool:
    return pair[0].paper != pair[1].paper and any(row.kind in JUDGED for row in pair)


def _same_order(pair: tuple[PaperRow, PaperRow]) -> bool:
    (first, second), (ours, other) = ([getattr(row, side) for row in pair] for side in ("paper", "ours"))
    return bool((first < second) == (ours < other))


def _where(row: PaperRow, without: Sequence[str] = ()) -> str:
    return "".join(f", {key}={value}" for key, value in row.case.items() if key not in without)


def _said(pair: tuple[PaperRow, PaperRow]) -> str:
    """Say both numbers of both methods, the paper's smaller one first."""
    small, large = sorted(pair, key=lambda row: row.paper or 0.0)
    names = [next(str(row.case[key]) for key in METHODS if key in row.case) for row in (small, large)]
    return (
        f"{small.quantity}{_where(small, METHODS)}: {names[0]} {small.paper:.4g} below {names[1]} {large.paper:.4g} "
        f"in the paper, {small.ours:.4g} and {large.ours:.4g} here"
    )
