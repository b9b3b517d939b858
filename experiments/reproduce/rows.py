"""What a reproduction is made of: a paper's file, and rows that hold its numbers against ours.

A TOML file beside the reproductions holds what a paper prints, and what they assume. `[[assumed]]` has texts, and the
reproductions that they hold for, `of`; without it they hold for all of the file. All other tables are the paper's, or
what stands for numbers that it does not print.

A row says what kind of number it is: "input", taken from the paper; "fitted", ours was set by this number, or by
numbers that it is made of; "identity", arithmetic of other rows or of the paper's own columns; "predicted", ours would
be the same if the paper had printed another number there; "unsettled", the paper contradicts that number itself, or it
hangs on what the paper does not print: the row's note says which. Only predicted rows count, and each number of a paper
counts once. "Estimated" ones count, too: ours is an estimate from shapes and data sheets, fitted on none of that
source's numbers. `[[null]]` has null models: what is guessed of predicted rows without a simulation, by one rule for
all rows of a group, from the paper's numbers.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from itertools import chain, combinations
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal, NamedTuple

import msgspec
import pandas as pd

from specfleet.fleet.inputs.text import read_toml
from specfleet.fleet.shown import Shown

ASSUMED = "assumed"
HERE = Path(__file__).parent
Kind = Literal["input", "fitted", "identity", "predicted", "estimated", "unsettled"]
JUDGED = ("predicted", "estimated")  # kinds that count
TINY = 0.05  # share of its whole, below which a quantity is compared with the whole
FAR = 0.1  # an error beyond which a row is counted as missed
CLAIM = " (1: yes)"  # how the quantity of a claim ends
METHODS = ("method", "rule", "strategy")  # keys of a case that name what is compared
OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
OVER = " over "  # in the name of a quantity: a quotient of two methods, or of two cases


class Paper(dict[str, Any]):
    """The tables of a file by name: keys that are numbers are numbers, lists are tuples."""

    def __init__(self, name: str, folder: Path = HERE) -> None:
        content = read_toml(folder / f"{name}.toml")
        self.assumptions: list[dict[str, Any]] = content.pop(ASSUMED, [])
        self.nulls: list[dict[str, Any]] = content.pop("null", [])
        super().__init__({name: _frozen(table) for name, table in content.items()})

    def assumed(self, name: str = "") -> list[str]:
        """Return what the reproduction of that name assumes, or what all do."""
        return [text for entry in self.assumptions if name in entry.get("of", [name]) for text in entry["texts"]]

    def with_null(self, name: str, row: "PaperRow") -> "PaperRow":
        """Return a row of that reproduction with the null model of its group, where it counts."""
        for entry in self.nulls if row.kind in JUDGED and row.error is not None and not row.is_claim else ():
            is_case = entry.get("case", {}).items() <= row.case.items()
            if entry["of"] == name and row.quantity in entry["quantities"] and is_case:
                null = self.computed(entry["value"], row.case) if "value" in entry else row.null
                return msgspec.structs.replace(row, null=null, rule=f"{name}: {entry['rule']}")
        return msgspec.structs.replace(row, null=None)

    def computed(self, formula: str, case: Mapping[str, Any]) -> float:
        """Compute a formula of numbers and of places as table/key/key, by + - * and / from left to right.

        `{key}` is the case's, `~key` the mean over all other keys of its table; columns of a list count from 1.
        """
        value, words = 0.0, ["+", *formula.format(**case).split()]
        for sign, word in zip(words[::2], words[1::2], strict=True):
            value = OPERATORS[sign](value, _mean_at(self, word.split("/")) if "/" in word else float(word))
        return value


def _mean_at(table: Any, place: Sequence[str]) -> float:
    if not place:
        return float(table)
    entries = table if isinstance(table, dict) else dict(enumerate(table, 1))
    key = _key(place[0].removeprefix("~"))
    keys = entries.keys() - {key} if "~" in place[0] else {key}
    return fmean(_mean_at(entries[key], place[1:]) for key in keys)


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(name): _frozen(entry) for name, entry in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _key(name: str) -> str | float:
    """Return a number for the name of one, as a temperature or a batch size; others stay."""
    try:
        return int(name) if name.isdecimal() else float(name)
    except ValueError:
        return name


class PaperRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One quantity in one case. `error` is (ours - paper) / paper, or over `part_of` where there is one.

    `paper` is None where the paper prints no number, `error` where either side is missing or the paper's is zero.
    `part_of`: the paper's whole, of which this quantity is a tiny part. `note`: why a row is unsettled. `null`: what a
    null model has, by its `rule`.
    """

    quantity: str
    case: dict[str, Any]
    kind: Kind
    paper: float | None
    ours: float | None
    error: float | None
    part_of: float | None = None
    note: str = ""
    null: float | None = None
    rule: str = ""

    @property
    def is_claim(self) -> bool:
        """Whether the paper says that something is so, and ours is 1 where it is and 0 where not."""
        return self.quantity.endswith(CLAIM)


class Null(NamedTuple):
    """A null model of a group of rows: how many, its mean absolute error, and ours; not larger, it explains them."""

    rows: int
    error: float
    ours: float


class Score(msgspec.Struct, frozen=True):
    """How good the predicted rows are: those that have an error, and the claims.

    `mean_error`, `median_error`, `worst_error`: of the absolute errors of `rows` rows, None where there is none.
    `beyond`: how many of them are off by more than 10 %. `worst`: quantity and case of the worst. `claims`,
    `claims_held`: how many the paper makes of what was predicted, and how many hold. `kind`: what the rows are.
    `explained`: rows that a null model explains; `median_of_rest`, `beyond_of_rest`: of the others.
    """

    rows: int = 0
    mean_error: float | None = None
    worst_error: float | None = None
    worst: str = ""
    claims: int = 0
    claims_held: int = 0
    kind: str = "predicted"
    median_error: float | None = None
    beyond: int = 0
    explained: int = 0
    median_of_rest: float | None = None
    beyond_of_rest: int = 0

    def line(self) -> str:
        """Say it in one line."""
        parts = []
        if self.mean_error is not None and self.worst_error is not None:
            rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
            errors = f"mean absolute error {self.mean_error:.1%}, worst {self.worst_error:.1%} ({self.worst})"
            if self.rows > 1:
                errors += f"; median {self.median_error:.1%}, {self.beyond} beyond {FAR:.0%}"
            if self.explained:
                rest = f"median {self.median_of_rest or 0:.1%}, {self.beyond_of_rest} beyond {FAR:.0%}"
                rest = rest if self.explained < self.rows else "none"
                errors += f"; without {self.explained} that a null model explains: {rest}"
            parts.append(f"{rows}, {errors}")
        if self.claims:
            parts.append(f"{self.claims_held} of {self.claims} claims hold")
        return f"{self.kind}: {'; '.join(parts)}" if parts else "no row here is a prediction"


class Reproduction(Shown, msgspec.Struct, frozen=True):
    """A table or figure of a paper, row by row, and what had to be assumed; `score` follows from the rows.

    `parts`: the same by source, where there are several.
    """

    name: str
    rows: list[PaperRow]
    assumptions: list[str]
    score: Score = Score()
    parts: dict[str, Score] = {}

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "score", score_of(self.rows))

    def line(self) -> str:
        """Say what was reproduced, how well, on which assumptions."""
        assumed = f"; assumed: {'; '.join(self.assumptions)}" if self.assumptions else ""
        return f"{self.name}: {len(self.rows)} rows; {self.score.line()}{assumed}"

    def frame(self) -> pd.DataFrame:
        """One row a quantity and case: quantity, what names the case, kind, paper, ours, null model, and error."""
        columns = ("kind", "paper", "ours", "null", "error")
        values = [(row, {name: getattr(row, name) for name in columns}) for row in self.rows]
        return pd.DataFrame([{"quantity": row.quantity, **row.case, **numbers} for row, numbers in values])


RowsOf = Callable[..., Iterable[PaperRow]]
Reproduce = Callable[..., Reproduction]


def reproduces(paper: Paper) -> Callable[[RowsOf], Reproduce]:
    """Make a Reproduction of a function that yields its rows; the paper's file has what it assumes, by its name."""

    def reproduction(rows_of: RowsOf) -> Reproduce:
        @wraps(rows_of)
        def made(*inputs: Path) -> Reproduction:
            name = name_of(rows_of)
            return Reproduction(name, [paper.with_null(name, row) for row in rows_of(*inputs)], paper.assumed(name))

        return made

    return reproduction


def name_of(made: Callable[..., Any]) -> str:
    """Return the name of a reproduction, by its function's."""
    return made.__name__.replace("_", "-")


def row(
    quantity: str,
    case: dict[str, Any],
    kind: Kind,
    paper: float | None,
    ours: float | None,
    *,
    part_of: float | None = None,
    note: str = "",
    null: float | None = None,
) -> PaperRow:
    """Build a row with its error; numpy's numbers become plain ones, so that a row is JSON.

    `part_of`: what the paper's quantity is a part of, in the same unit; it is left out where the part is not tiny.
    `note`: why the number is unsettled, which the row then is. `null`: a null model's number that is not in the file.
    """
    paper, ours, part_of, null = (None if value is None else float(value) for value in (paper, ours, part_of, null))
    if not paper or part_of is None or abs(paper) >= TINY * part_of:
        part_of = None
    whole = paper if part_of is None else part_of
    error = (ours - paper) / whole if paper is not None and whole and ours is not None else None
    return PaperRow(quantity, case, "unsettled" if note else kind, paper, ours, error, part_of, note, null)


def fitted_if(is_so: bool) -> Kind:
    """Return "fitted" where a number set ours, else "predicted"."""
    return "fitted" if is_so else "predicted"


def claim(quantity: str, case: dict[str, Any], holds: bool, note: str = "") -> PaperRow:
    """Build the row of something that the paper says is so, which ours finds or not; `note` as in `row`."""
    return row(quantity + CLAIM, case, "predicted", 1.0, float(holds), note=note)


def score_of(rows: Sequence[PaperRow]) -> Score:
    """Judge the rows that count: yes-or-no claims are counted, the errors of all others averaged."""
    predicted = [row for row in rows if row.kind in JUDGED]
    kind = " and ".join(kind for kind in JUDGED if any(row.kind == kind for row in predicted)) or JUDGED[0]
    claims = [row for row in predicted if row.is_claim]
    errors = [(abs(row.error), row) for row in predicted if row.error is not None and not row.is_claim]
    counted = Score(claims=len(claims), claims_held=sum(row.ours == row.paper for row in claims), kind=kind)
    if not errors:
        return counted
    worst_error, worst = max(errors, key=lambda entry: entry[0])
    explained = {rule for rule, null in nulls_of(rows).items() if null.error <= null.ours}
    rest = [error for error, row in errors if row.rule not in explained]
    return msgspec.structs.replace(
        counted,
        rows=len(errors),
        mean_error=sum(error for error, _ in errors) / len(errors),
        median_error=median(error for error, _ in errors),
        beyond=sum(error > FAR for error, _ in errors),
        explained=len(errors) - len(rest),
        median_of_rest=median(rest) if rest else None,
        beyond_of_rest=sum(error > FAR for error in rest),
        worst_error=worst_error,
        worst=", ".join([worst.quantity, *(f"{key}={value}" for key, value in worst.case.items())]),
    )


def nulls_of(rows: Sequence[PaperRow]) -> dict[str, Null]:
    """Return the null models of rows by rule, which names the reproduction."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.null is not None and row.paper and row.error is not None:
            null_error = (row.null - row.paper) / (row.part_of or row.paper)
            pairs.setdefault(row.rule, []).append((abs(null_error), abs(row.error)))
    return {rule: Null(len(errors), *map(fmean, zip(*errors, strict=True))) for rule, errors in pairs.items()}


def in_parts(name: str, parts: Mapping[str, Iterable[PaperRow]], assumptions: Iterable[str]) -> Reproduction:
    """Make a Reproduction of rows by source, each with a score of its own."""
    listed = {part: list(rows) for part, rows in parts.items()}
    scores = {part: score_of(rows) for part, rows in listed.items()}
    return Reproduction(name, list(chain.from_iterable(listed.values())), list(assumptions), parts=scores)


def kinds_of(rows: Sequence[PaperRow]) -> dict[str, int]:
    """Count the rows that hold a number of the paper's against ours, by kind, in the order of `Kind`; no claims."""
    scored = [row.kind for row in rows if row.error is not None and not row.is_claim]
    return {kind: scored.count(kind) for kind in Kind.__args__ if kind in scored}  # type: ignore[attr-defined]


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
