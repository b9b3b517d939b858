"""What a reproduction is made of: rows that hold a paper's number against ours, and say what kind of number it is."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from fleet.times.profile import HardwareProfile

Kind = Literal["input", "fitted", "identity", "predicted", "measured"]


class Inputs(msgspec.Struct, frozen=True):
    """What a user may hand to a reproduction: a profile of this host, and a run file of a paper's authors."""

    profile: HardwareProfile | None = None
    trace: str | None = None


class Row(msgspec.Struct, frozen=True):
    """One quantity in one case. Only `predicted` rows count as evidence; `measured` ones are of
    other models on this host. `error` is (ours - paper) / paper.

    `paper` is None where the paper prints no number, `error` where either side is missing or the paper's is zero.
    """

    quantity: Annotated[str, Meta(max_length=200)]
    case: dict[str, Any]
    kind: Kind
    paper: float | None
    ours: float | None
    error: float | None


class Reproduction(msgspec.Struct, frozen=True):
    """A table or figure of a paper, row by row, and what had to be assumed."""

    name: Annotated[str, Meta(max_length=200)]
    rows: Annotated[list[Row], Meta(max_length=10_000)]
    assumptions: list[Annotated[str, Meta(max_length=2000)]]


def row(quantity: str, case: dict[str, Any], kind: Kind, paper: float | None, ours: float | None) -> Row:
    """Build a row with its error."""
    error = (ours - paper) / paper if paper and ours is not None else None
    return Row(quantity, case, kind, paper, ours, error)
