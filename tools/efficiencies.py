"""Fits a device's efficiencies to measured times of a model's operators, as the Vidur simulator publishes them.

`python -m tools.efficiencies FILE DEVICE` prints what `fleet/data/devices/DEVICE.toml` states of them.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from scipy.optimize import minimize

from specfleet.calibration.operators import (
    EFFICIENCIES,
    KERNELS,
    MODEL,
    PRODUCTS,
    Operators,
    estimated_s,
    read_operators,
)
from specfleet.fleet.hardware.device import Figure
from specfleet.fleet.hardware.passes import Placed
from specfleet.fleet.hardware.profile import placed_of

START = dict(zip(EFFICIENCIES, (0.85, 0.75, 5e-6, 2e-6, 0.5), strict=True))


def fitted_figures(measured: Sequence[Operators], device: str) -> dict[str, float]:
    """Return the efficiencies at which the mean relative error of all operators is least, by their names."""
    of_products = _fitted(measured, device, PRODUCTS, EFFICIENCIES[:3])
    return of_products | _fitted(measured, device, KERNELS, EFFICIENCIES[3:])


def _fitted(
    measured: Sequence[Operators], device: str, operators: tuple[str, ...], figures: tuple[str, ...]
) -> dict[str, float]:
    models = {count: placed_of(f"{MODEL}@{count}x{device}") for count in {one.parallel for one in measured}}
    times_s = np.array([[one.times_s[name] for name in operators] for one in measured])
    start = np.array([START[name] for name in figures])

    def error(scaled: np.ndarray) -> float:
        values = dict(zip(figures, (scaled * start).tolist(), strict=True))
        if not all(0 < value <= 1 for value in values.values()):  # seconds are far below 1
            return float("inf")
        tried = {count: with_figures(model, values) for count, model in models.items()}
        estimates = [estimated_s(tried[one.parallel], one.tokens) for one in measured]
        ours = np.array([[estimate[name] for name in operators] for estimate in estimates])
        return float(np.abs(ours / times_s - 1).mean())

    best = minimize(error, np.ones(len(start)), method="Nelder-Mead")
    return dict(zip(figures, (best.x * start).tolist(), strict=True))


def with_figures(model: Placed, values: dict[str, float]) -> Placed:
    """Return a model on its device with other efficiencies."""
    figures = {name: Figure(value, "assumed: tried") for name, value in values.items()}
    return msgspec.structs.replace(model, device=msgspec.structs.replace(model.device, **figures))


if __name__ == "__main__":
    for figure, value in fitted_figures(read_operators(Path(sys.argv[1])), sys.argv[2]).items():
        sys.stdout.write(f"{figure} = {value:.4g}\n")
