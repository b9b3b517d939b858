"""Measured times of the operators of Llama-2-7B, as the Vidur simulator publishes them, and our estimates of them.

A file (CSV) holds the medians of each operator by tokens and tensor parallel workers, in milliseconds; attention is
left out.
"""

from pathlib import Path

import msgspec
import pandas as pd

from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.passes import Placed, kernel_s, product_s
from specfleet.fleet.hardware.shipped import shape_of

FILES = {"a100-80gb": "vidur-a100-llama2-7b-mlp.csv", "h100": "vidur-h100-llama2-7b-mlp.csv"}
"""Files by device."""
MODEL = "llama-2-7b"
PRODUCTS = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")
KERNELS = ("input_layernorm", "post_attention_layernorm", "attn_rope", "mlp_act", "add")
EFFICIENCIES = ("bandwidth_share", "compute_share", "product_s", "kernel_s", "kernel_share")
PLACE = ["num_tokens", "num_tensor_parallel_workers"]
SIZES = ["n_embd", "n_expanded_embd", "n_head", "n_kv_head"]
MEDIANS = {f"time_stats.{name}.median": name for name in (*PRODUCTS, *KERNELS)}


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
