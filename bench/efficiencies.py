"""Efficiencies of devices, fitted to operators of others: what `fleet/data/devices` states of four.

Vidur's operators give those of A100 and H100, one by one; LLMServingSim's tables those of RTX 4090 and RTX PRO 6000,
by sums of a layer at every second size, which the other sizes check.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
from scipy.optimize import minimize

from bench.harness import Report, Row, data_file, data_option
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.device import Figure
from specfleet.fleet.hardware.operators import NORMS, ONCE, by_operator
from specfleet.fleet.hardware.passes import Placed, kernel_s, product_s
from specfleet.fleet.hardware.profile import placed_of
from specfleet.fleet.hardware.shipped import device_of, shape_of

FILES = {"a100-80gb": "vidur-a100-llama2-7b-mlp.csv", "h100": "vidur-h100-llama2-7b-mlp.csv"}
"""Files by device."""
TABLES = {
    "rtx-4090": "llmservingsim/RTX4090/meta-llama/Llama-3.1-8B/tp1",
    "rtx-pro-6000": "llmservingsim/RTXPRO6000/meta-llama/Llama-3.1-8B/tp1",
}
"""Folders of tables by device; left out where there are none."""
TABLED = "llama-3.1-8b"
OF_SUMS = {
    "bandwidth_share": 0.93,
    "compute_share": 0.95,
    "product_s": 4e-6,
    "sharpness": 2.0,
    "kernel_s": 2e-6,
    "kernel_share": 0.6,
}  # where their fit starts
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


def estimated_s(model: Placed, tokens: float) -> dict[str, float]:
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
    fits, sums = dict[str, dict[str, float]](), list[Row]()
    for device, file in FILES.items():
        fits[device] = fitted_figures(read_operators(data_file(options.data, file)), device)
    for device, folder in TABLES.items():
        if (options.data / folder).is_dir():
            fits[device], errors = fitted_sums(options.data / folder, device)
            sums += [{"device": device, "sums of operators": name, "off by %": 100 * errors[name]} for name in errors]
    rows = [
        {"device": device, "figure": name, "fitted": value, "stated": getattr(device_of(device), name).value}
        for device, figures in fits.items()
        for name, value in figures.items()
    ]
    return Report({"efficiencies, as shares or in seconds": rows, "sums left out of the fit": sums})


def fitted_sums(folder: Path, device: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return the efficiencies at which sums of a layer's operators are least off, and how far the others' are.

    Errors: at the sizes left out, by these efficiencies, by those that are stated, and by tables of the fitted sizes.
    """
    dense = by_operator(folder / "dense.csv")
    tokens = np.array(dense["o_proj"].tokens)
    times_s = [NORMS.get(name, 1) * table.at(tokens) for name, table in dense.items() if name not in ONCE]
    measured_s = np.sum(times_s, axis=0)
    model, fitting = placed_of(f"{TABLED}@{device}"), np.arange(len(tokens)) % 2 == 0

    def errors(values: dict[str, float], which: np.ndarray) -> float:
        tried = with_figures(model, values)
        ours = np.array([layer_s(tried, float(size)) for size in tokens[which]])
        return float(np.abs(ours / measured_s[which] - 1).mean())

    def error(scaled: np.ndarray) -> float:
        values = {name: scale * start for scale, (name, start) in zip(scaled.tolist(), OF_SUMS.items(), strict=True)}
        shares = [value for name, value in values.items() if name != "sharpness"]
        if not all(0 < share <= 1 for share in shares) or values["sharpness"] < 1:
            return float("inf")
        return errors(values, fitting)

    best = minimize(error, np.ones(len(OF_SUMS)), method="Nelder-Mead", options={"maxiter": 2000, "maxfev": 4000})
    found = {name: scale * start for scale, (name, start) in zip(best.x.tolist(), OF_SUMS.items(), strict=True)}
    tabled_s = np.interp(tokens[~fitting], tokens[fitting], measured_s[fitting])
    stated = {name: getattr(device_of(device), name).value for name in OF_SUMS}
    return found, {
        "these efficiencies": errors(found, ~fitting),
        "those stated": errors(stated, ~fitting),
        "tables": float(np.abs(tabled_s / measured_s[~fitting] - 1).mean()),
    }


def layer_s(model: Placed, tokens: float) -> float:
    """Return the estimated time of a layer without attention: its norms add and normalise."""
    times_s, hidden = estimated_s(model, tokens), model.shape.hidden
    kernels_s = times_s["attn_rope"] + times_s["mlp_act"] + 2 * kernel_s(model.device, 4 * tokens * hidden)
    return sum(times_s[name] for name in PRODUCTS) + kernels_s


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
