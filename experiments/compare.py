"""Hold two runs of one scenario against each other: simulation and engine, quantity by quantity."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from fleet.records.window import Metric

COMPARED = (
    "rounds_per_s", "throughput", "load", "wait_s", "idle_gap_s", "service_s", "return_s", "acceptance_length",
    "ttft_mean_s", "tpot_mean_s",
)  # fmt: skip
"""The quantities of a comparison, those first that a prediction is judged by."""


class Row(msgspec.Struct, frozen=True):
    """One quantity of one case in both worlds; `error` is (sim - engine) / engine, NaN where the engine's is zero.

    Such rows are left out of the mean. Intervals are NaN where a run has none.
    """

    quantity: str
    case: dict[str, Any]
    sim: float
    engine: float
    error: float
    sim_interval: tuple[float, float]
    engine_interval: tuple[float, float]


class Comparison(msgspec.Struct, frozen=True):
    """All rows, and the mean absolute relative error of each quantity. `profile_digest` names what predicted.

    `differences`: what the two runs did not share, a line each, to be read before their errors.
    """

    rows: list[Row]
    mape: dict[str, float]
    profile_digest: str = ""
    differences: list[str] = []


def compare_metrics(case: Mapping[str, Any], sim: Mapping[str, Metric], engine: Mapping[str, Metric]) -> list[Row]:
    """Return the rows of one case, for every compared quantity that both worlds have."""
    rows = []
    for quantity in COMPARED:
        if quantity in sim and quantity in engine:
            ours, measured = sim[quantity], engine[quantity]
            error = (ours.value - measured.value) / measured.value if measured.value else float("nan")
            rows.append(
                Row(
                    quantity, dict(case), ours.value, measured.value, error,
                    (ours.low, ours.high), (measured.low, measured.high),
                )
            )  # fmt: skip
    return rows


def summarise(rows: Iterable[Row], profile_digest: str = "", differences: Sequence[str] = ()) -> Comparison:
    """Collect rows into a comparison with the mean absolute error of each quantity."""
    listed = list(rows)
    errors: dict[str, list[float]] = {}
    for row in listed:
        if np.isfinite(row.error):
            errors.setdefault(row.quantity, []).append(abs(row.error))
    mape = {name: float(np.mean(values)) for name, values in errors.items()}
    return Comparison(listed, mape, profile_digest, list(differences))


def worst(comparison: Comparison, quantity: str) -> float:
    """Return the largest absolute relative error of a quantity."""
    return max(abs(row.error) for row in comparison.rows if row.quantity == quantity)
