"""Efficiencies of devices, fitted to Vidur's operators: what `fleet/data/devices` states of A100 and H100."""

import argparse
from collections.abc import Sequence

import msgspec
import numpy as np
from scipy.optimize import minimize

from bench.harness import Report, add_data, data_file
from bench.vidur import EFFICIENCIES, FILES, KERNELS, MODEL, PRODUCTS, Operators, estimated_s, read_operators
from specfleet.fleet.hardware.device import Figure
from specfleet.fleet.hardware.passes import Placed
from specfleet.fleet.hardware.profile import placed_of
from specfleet.fleet.hardware.shipped import device_of

START = dict(zip(EFFICIENCIES, (0.85, 0.75, 5e-6, 2e-6, 0.5), strict=True))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this study."""
    add_data(parser, *FILES.values())


def study(options: argparse.Namespace) -> Report:
    """Fit the efficiencies of each device, beside those that its file states."""
    fits = {
        device: fitted_figures(read_operators(data_file(options.data, file)), device) for device, file in FILES.items()
    }
    rows = [
        {"device": device, "figure": name, "fitted": value, "stated": getattr(device_of(device), name).value}
        for device, figures in fits.items()
        for name, value in figures.items()
    ]
    return Report({"efficiencies, as shares or in seconds": rows})


def fitted_figures(measured: Sequence[Operators], device: str) -> dict[str, float]:
    """Return the efficiencies at which the mean relative error of all operators is least, by their names."""
    of_products = _fitted(measured, device, PRODUCTS, EFFICIENCIES[:3])
    return of_products | _fitted(measured, device, KERNELS, EFFICIENCIES[3:])


def _fitted(
    measured: Sequence[Operators], device: str, operators: tuple[str, ...], figures: tuple[str, ...]
) -> dict[str, float]:
    models = {count: placed_of(f"{MODEL}@{count}x{device}") for count in {place.parallel for place in measured}}
    times_s = np.array([[place.times_s[name] for name in operators] for place in measured])
    start = np.array([START[name] for name in figures])

    def error(scaled: np.ndarray) -> float:
        values = dict(zip(figures, (scaled * start).tolist(), strict=True))
        if not all(0 < value <= 1 for value in values.values()):  # seconds are far below 1
            return float("inf")
        tried = {count: with_figures(model, values) for count, model in models.items()}
        estimates = [estimated_s(tried[place.parallel], place.tokens) for place in measured]
        ours = np.array([[estimate[name] for name in operators] for estimate in estimates])
        return float(np.abs(ours / times_s - 1).mean())

    best = minimize(error, np.ones(len(start)), method="Nelder-Mead")
    return dict(zip(figures, (best.x * start).tolist(), strict=True))


def with_figures(model: Placed, values: dict[str, float]) -> Placed:
    """Return a model on its device with other efficiencies."""
    figures = {name: Figure(value, "assumed: tried") for name, value in values.items()}
    return msgspec.structs.replace(model, device=msgspec.structs.replace(model.device, **figures))
