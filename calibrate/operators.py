"""Measured times of a model's operators, as the Vidur simulator publishes them, and our estimates of them.

A file (CSV) holds the medians of each operator by tokens and tensor parallel workers, in milliseconds, attention left
out. `tools/efficiencies.py` fits a device's efficiencies to them.
"""

from pathlib import Path

import msgspec
import numpy as np

from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.device import Accelerator
from specfleet.fleet.hardware.passes import Placed, kernel_s, product_s
from specfleet.fleet.hardware.shipped import shape_of
from specfleet.fleet.inputs.text import named, parsed, read_csv, shortened

MODEL = "llama-2-7b"
PRODUCTS = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")
KERNELS = ("input_layernorm", "post_attention_layernorm", "attn_rope", "mlp_act", "add")
EFFICIENCIES = ("bandwidth_share", "compute_share", "product_s", "kernel_s", "kernel_share")
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


def of_other(device: Accelerator, other: Accelerator) -> Accelerator:
    """Return a device with the efficiencies that were measured on another."""
    return msgspec.structs.replace(device, **{name: getattr(other, name) for name in EFFICIENCIES})
