"""What a figure of a sweep is asked to show: its arguments, checked, with the units of the keys."""

from collections.abc import Mapping
from typing import Any, cast, get_args

from experiments.sweep_table import Asked, Kind
from fleet.errors import InputError
from specfleet.arguments import text_of


def asked_of(
    x: str = "",
    y: str = "throughput",
    lines: str = "",
    kind: str = "lines",
    against: str | float = "",
    where: Mapping[str, Any] | None = None,
) -> Asked:
    """Return what a figure of a sweep is to show, with the units of the keys.

    `x`: a varied key, by default the first; of the kind "pareto", a metric. `y`: a metric. `lines`: a varied key, a
    line for each of its values. `kind`: "lines", "heat" or "pareto". `against`: the value of `lines` from which
    the differences of the others are drawn, seed by seed. `where`: values of the other varied keys.
    """
    from specfleet.meaning.lookup import units_of_keys

    if kind not in get_args(Kind):
        raise InputError(f"figure sweep: kind = {kind!r} is not known; allowed: {', '.join(get_args(Kind))}")
    for one, what in ((x, "x"), (y, "y"), (lines, "lines")):
        text_of(one, what)
    held = {key: str(value) for key, value in (where or {}).items()}
    return Asked(x, y, lines, cast("Kind", kind), str(against), held, units_of_keys())
