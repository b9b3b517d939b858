"""Fits a device's efficiencies to measured times of a model's operators, as the Vidur simulator publishes them.

A file (CSV) holds the medians of each operator by tokens and tensor parallel workers, in milliseconds, attention left
out. `python -m calibrate.operators FILE DEVICE` prints what `fleet/data/devices/DEVICE.toml` states of it.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from scipy.optimize import minimize

from fleet.errors import InputError
from fleet.hardware.device import Accelerator, Figure
from fleet.hardware.passes import Placed, kernel_s, product_s
from fleet.hardware.profile import placed_of
from fleet.hardware.shipped import shape_of
from fleet.inputs.text import named, parsed, read_csv, shortened

MODEL = "llama-2-7b"
PRODUCTS = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")
KERNELS = ("input_layernorm", "post_attention_layernorm", "attn_rope", "mlp_act", "add")
START = {"bandwidth_share": 0.85, "compute_share": 0.75, "product_s": 5e-6, "kernel_s": 2e-6, "kernel_share": 0.5}
FIGURES = tuple(START)  # what is fitted, and from where
COLUMNS = ("num_tokens", "num_tensor_parallel_workers", "n_embd", "n_expanded_embd", "n_head", "n_kv_head")

MAX_COUNT = 10**6  # tokens, workers, seconds: more is damage


class Operators(msgspec.Struct, frozen=True):
    """The operators of a layer at a place of the grid: median times in seconds by name."""

    tokens: int
    parallel: int
    times_s: dict[str, float]


def read_operators(path: Path) -> list[Operators]:
    """Read a file of operators of Llama-2-7B; repeated measurements of a place become their mean.

    Raises InputError where the file is not of that form, or of another model.
    """
    columns = (*COLUMNS, *(f"time_stats.{name}.median" for name in (*PRODUCTS, *KERNELS)))
    found: dict[tuple[int, int], list[dict[str, float]]] = {}
    for line, row in read_csv(path, columns):
        read = _operators_of(row, f"{named(path, '')}, line {line}")
        found.setdefault((read.tokens, read.parallel), []).append(read.times_s)
    if not found:
        raise InputError(f"{named(path, '')}: holds no measurement")
    return [
        Operators(tokens, parallel, {name: float(np.mean([one[name] for one in group])) for name in group[0]})
        for (tokens, parallel), group in sorted(found.items())
    ]


def _operators_of(row: dict[str, str], origin: str) -> Operators:
    """Read one line of the file; raise InputError, which begins with `origin`, if it has nothing on MODEL."""
    numbers: dict[str, float] = {}
    for name, cell in row.items():
        number = parsed(cell)
        if isinstance(number, str):
            raise InputError(f"{origin}: {name} = {shortened(cell)} is no number")
        numbers[name] = number
    shape, sizes = shape_of(MODEL), tuple(numbers[name] for name in COLUMNS[2:])
    if sizes != (shape.hidden, shape.intermediate, shape.heads, shape.kv_heads):
        raise InputError(f"{origin}: sizes {shortened(sizes)} are not those of {MODEL}")
    times_s = {name: numbers[f"time_stats.{name}.median"] / 1000 for name in (*PRODUCTS, *KERNELS)}
    counts = [numbers[name] for name in COLUMNS[:2]]
    if not all(1 <= count <= MAX_COUNT for count in counts) or not all(
        0 < time_s <= MAX_COUNT for time_s in times_s.values()
    ):
        raise InputError(f"{origin}: needs tokens and workers from 1 on, and times above 0, all up to {MAX_COUNT}")
    return Operators(int(counts[0]), int(counts[1]), times_s)


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


def fitted_figures(measured: Sequence[Operators], device: str) -> dict[str, float]:
    """Return the efficiencies at which the mean relative error of all operators is least, by their names."""
    of_products = _fitted(measured, device, PRODUCTS, FIGURES[:3])
    return of_products | _fitted(measured, device, KERNELS, FIGURES[3:])


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


def of_other(device: Accelerator, other: Accelerator) -> Accelerator:
    """Return a device with the efficiencies that were measured on another."""
    return msgspec.structs.replace(device, **{name: getattr(other, name) for name in FIGURES})


if __name__ == "__main__":
    for figure, value in fitted_figures(read_operators(Path(sys.argv[1])), sys.argv[2]).items():
        sys.stdout.write(f"{figure} = {value:.4g}\n")
