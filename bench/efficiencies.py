"""Efficiencies of devices, fitted to Vidur's operators: what `fleet/data/devices` states of A100 and H100."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
from scipy.optimize import minimize

from bench.harness import Report, data_file, data_option
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.device import Figure
from specfleet.fleet.hardware.passes import Placed, kernel_s, product_s
from specfleet.fleet.hardware.profile import placed_of
from specfleet.fleet.hardware.shipped import device_of, shape_of

FILES = {"a100-80gb": "vidur-a100-llama2-7b-mlp.csv", "h100": "vidur-h100-llama2-7b-mlp.csv"}
"""Files by device."""
MODEL = "llama-2-7b"
PRODUCTS = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")
KERNELS = ("input_layernorm", "post_attention_layernorm", "attn_rope", "mlp_act", "add")
EFFICIENCIES = ("bandwidth_share", "compute_share", "product_s", "kernel_s", "kernel_share")
PLACE = ["num_tokens", "num_tensor_parallel_workers"]
SIZES = ["n_embd", "n_expanded_embd", "n_head", "n_kv_head"]
MEDIANS = {f"time_stats.{name}.median": name for name in (*PRODUCTS, *KERNELS)}
START = dict(zip(EFFICIENCIES, (0.85, 0.75, 5e-6, 2e-6, 0.5), strict=True))


class Operators(msgspec.Struct, frozen=True):
    """The operators of a layer at a place of the grid: median times in seconds by name."""

    tokens: int
    parallel: int
    times_s: dict[str, float]


def read_operators(path: Path) -> list[Operators]:
    """Read a file; repeated measurements of a place become their mean. InputError for a file of another model."""
    rows, shape = pd.read_csv(path, usecols=[*PLACE, *SIZES, *MEDIANS]), shape_of(MODEL)
    own = (shape.hidden, shape.intermediate, shape.heads, shape.kv_heads)
    if set(rows[SIZES].itertuples(index=False, name=None)) != {own}:
        raise InputError(f"{path}: needs operators of {MODEL}, and of nothing else")
    means_s = rows.groupby(PLACE)[[*MEDIANS]].mean() / 1000
    return [
        Operators(tokens, parallel, dict(zip(MEDIANS.values(), times_s, strict=True)))
        for (tokens, parallel), *times_s in means_s.itertuples(name=None)
    ]


def estimated_s(model: Placed, tokens: int) -> dict[str, float]:
    """Return the estimated time of each operator of a layer, by its name."""
    shape, device, parallel = model.shape, model.device, model.parallel
    hidden, queries, width = shape.hidden, shape.query_numbers / parallel, shape.intermediate / parallel
    cache = shape.cache_numbers / parallel
    return {
        "attn_pre_proj": product_s(model, tokens, hidden, queries + cache),
        "attn_post_proj": product_s(model, tokens, queries, hidden),
        "mlp_up_proj": product_s(model, tokens, hidden, 2 * width),
        "mlp_down_proj": product_s(model, tokens, width, hidden),
        "input_layernorm": kernel_s(device, 2 * tokens * hidden),
        "post_attention_layernorm": kernel_s(device, 2 * tokens * hidden),
        "attn_rope": kernel_s(device, 2 * tokens * (queries + cache / 2)),
        "mlp_act": kernel_s(device, 3 * tokens * width),
        "add": kernel_s(device, 3 * tokens * hidden),
    }


OPTIONS = data_option(*FILES.values())


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
