"""Which of two methods a paper finds ahead in the same case, and whether ours is the same one."""

from collections.abc import Iterable, Sequence
from itertools import chain, combinations

from specfleet.experiments.reproduce.rows import JUDGED, PaperRow

METHODS = ("method", "rule", "strategy")  # keys of a case that name what is compared
OVER = " over "  # in the name of a quantity: a quotient of two methods, or of two cases


def reversed_orders(rows: Sequence[PaperRow]) -> tuple[int, list[str]]:
    """Return how many pairs of methods the paper puts in an order, and those that ours puts in another, in words.

    A pair has one quantity and one case, and at least one of its numbers is a prediction; or it is one predicted row
    of a quantity "x over y", above or below 1. Equal numbers of the paper have no order.
    """
    pairs = [
        (first, other)
        for first, other in chain.from_iterable(combinations(group, 2) for group in _alike(rows))
        if first.paper != other.paper and not {first.kind, other.kind}.isdisjoint(JUDGED)
    ]
    ratios = [row for row in rows if OVER in row.quantity and row.kind in JUDGED and row.error is not None]
    ratios = [row for row in ratios if not row.is_claim and row.paper != 1]
    wrong = [row for row in ratios if ((row.paper or 0.0) > 1) != ((row.ours or 0.0) > 1)]
    words = [f"{row.quantity}{_where(row)}: {row.paper:.4g} in the paper, {row.ours:.4g} here" for row in wrong]
    return len(pairs) + len(ratios), [_said(pair) for pair in pairs if not _same_order(pair)] + words


def _alike(rows: Sequence[PaperRow]) -> Iterable[list[PaperRow]]:
    """Return the rows that differ in the method alone, group by group."""
    groups: dict[str, list[PaperRow]] = {}
    for row in rows:
        key = next((key for key in METHODS if key in row.case), None)
        if key is not None and row.paper is not None and row.ours is not None and not row.is_claim:
            groups.setdefault(f"{row.quantity}, {key}{_where(row, METHODS)}", []).append(row)
    return groups.values()


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
