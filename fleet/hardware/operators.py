"""Passes of a model as sums of its operators, from tables in LLMServingSim's form that were measured on one device.

A folder has one layer's times on one of the devices that share a model, in microseconds: `dense.csv` by tokens of the
step, `attention.csv` by a chunk of a prompt beside decoding rows, `per_sequence.csv` (head, sampler) by sequences, and
`moe.csv` by tokens and distinct experts. All-reduces are not in it: they are those of aiconfigurator-core, where it is
installed and has them, for the vLLM of `meta.yaml` beside the folder, and else estimated.
"""

import csv
import re
from io import StringIO
from pathlib import Path

import numpy as np

from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.passes import Placed, all_reduce_s, distinct_experts
from specfleet.fleet.hardware.tables import Floats, Measured, all_reduces_of
from specfleet.fleet.inputs.text import is_file, read_text
from specfleet.fleet.times.grid import Grid
from specfleet.fleet.times.roofline import Roofline

NORMS = {"layernorm": 2}  # operators of a layer that a table has once
ONCE = ("embedding", "final_layernorm")  # operators of a step
SIZES = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
BEYOND = 64  # times the longest step of the tables, to which times grow in proportion


def passes_of(placed: Placed) -> tuple[Roofline, Roofline]:
    """Return the passes of a model from its tables: with the logits of every token, and with the last one's.

    Raises InputError for a model whose attention the tables do not describe, and for tables that lack an operator.
    """
    shape, folder = placed.shape, Path(placed.operators)
    if shape.latent or shape.linear_layers or shape.windowed_layers or shape.dense_layers or shape.shared_intermediate:
        raise InputError(f"{folder}: tables of operators describe equal layers of full attention; {shape.name} differs")
    if folder.name != f"tp{placed.parallel}":
        raise InputError(
            f"{folder}: needs the folder tp{placed.parallel}, for the model is on {placed.parallel} devices"
        )
    dense, scored = (by_operator(folder / f"{name}.csv") for name in ("dense", "per_sequence"))
    if absent := {"qkv_proj", "o_proj", *(() if shape.experts else ("gate_up_proj", "down_proj"))} - dense.keys():
        raise InputError(f"{folder / 'dense.csv'}: has no {', '.join(sorted(absent))}")
    of_rows, of_chunks = attention_in(folder / "attention.csv", shape.layers)
    fed = np.array(dense["o_proj"].tokens)
    layer_s = sum(NORMS.get(name, 1) * table.at(fed) for name, table in dense.items() if name not in ONCE)
    reduced = reduces_of(placed)
    reduced_s = 2 * _reduced_s(placed, reduced, fed * shape.hidden)
    experts_s = experts_in(folder / "moe.csv", placed).at(fed) if shape.experts else 0.0
    pass_s = shape.layers * (layer_s + reduced_s + experts_s)
    pass_s += sum(table.at(fed) for name, table in dense.items() if name in ONCE)

    def roofline(logits: Floats, attention: tuple[Grid, ...]) -> Roofline:
        gathered_s = _reduced_s(placed, reduced, logits * shape.head_outputs / placed.parallel)
        scored_s = sum(table.at(logits) for table in scored.values())
        times_s = np.maximum.accumulate(pass_s + scored_s + gathered_s)
        knots = (*fed.astype(int).tolist(), BEYOND * int(fed[-1]))
        return Roofline(knots, (*times_s.tolist(), BEYOND * float(times_s[-1])), measured=attention)

    return roofline(fed, of_rows), roofline(np.ones_like(fed), of_chunks)


def reduces_of(placed: Placed) -> Measured | None:
    """Return the measured all-reduces between a model's operators; None for a single device, and without them."""
    beside = Path(placed.operators).parent / "meta.yaml"
    stated = re.findall(r"^vllm_version: *'?([\w.]+)", read_text(beside) if is_file(beside) else "", re.MULTILINE)
    return all_reduces_of(placed.parallel, placed.device, "vllm", *stated[:1]) if placed.parallel > 1 else None


def _reduced_s(placed: Placed, measured: Measured | None, numbers: Floats) -> Floats:
    return measured.at(numbers) if measured else np.array([all_reduce_s(placed, each) for each in numbers])


def attention_in(file: Path, layers: int) -> tuple[tuple[Grid, ...], tuple[Grid, ...]]:
    """Return the attention of so many layers: of decoding rows, also beside a chunk, and of chunks."""
    *columns, time_us = _columns(file, (*SIZES, "time_us")).values()
    sizes = np.stack(columns)
    common = (np.frexp(sizes)[0] % 0.5 == 0).all(axis=0)  # powers of two: some tables have a second, finer grid

    def grid(chunks: bool, rows: bool) -> Grid:
        used = common & ((sizes[0] > 0) == chunks) & ((sizes[2] > 0) == rows)
        picked, times_s = sizes[0 if chunks else 2 : 4 if rows else 2, used], (time_us[used] / 1e6).round(12)
        order, axes = np.lexsort(picked[::-1]), [np.unique(axis) for axis in picked]
        whole = np.stack(np.meshgrid(*axes, indexing="ij")).reshape(len(axes), -1)
        if not np.array_equal(picked[:, order], whole) or min(map(len, axes)) < 2 or not (times_s > 0).all():
            raise InputError(f"{file}: needs a time above 0 at all combinations of its sizes that are powers of two")
        return Grid(tuple(tuple(axis.tolist()) for axis in axes), tuple(times_s[order].tolist()), layers)

    return (grid(False, True), grid(True, True)), (grid(True, False),)


def experts_in(file: Path, placed: Placed) -> Measured:
    """Return the times of a layer's experts by tokens, each of which uses its experts at random."""
    tokens, activated, time_us = _columns(file, ("tokens", "activated_experts", "time_us")).values()
    shape, measured, times_s = placed.shape, np.unique(tokens), []
    for count in measured:
        own = tokens == count
        distinct = distinct_experts(shape.experts, shape.experts_used, float(count))
        times_s.append(float(np.interp(distinct, activated[own], time_us[own])) / 1e6)
    return Measured(tuple(measured.tolist()), tuple(times_s))


def by_operator(file: Path) -> dict[str, Measured]:
    """Return the times of each operator of a table by tokens, or by sequences."""
    rows = list(csv.reader(StringIO(read_text(file))))
    size = rows[0][1] if rows and len(rows[0]) == 3 else "tokens"
    table = _columns(file, (size, "time_us"))
    names = np.array([row[0] for row in rows[1:] if row])
    sizes, times_s = table[size], table["time_us"] / 1e6
    return {
        str(name): Measured(tuple(sizes[names == name].tolist()), tuple(times_s[names == name].tolist()))
        for name in np.unique(names)
    }


def _columns(file: Path, names: tuple[str, ...]) -> dict[str, Floats]:
    """Return columns of numbers; InputError for a file without them."""
    rows = list(csv.DictReader(StringIO(read_text(file))))
    try:
        columns = {name: np.array([float(row[name]) for row in rows]) for name in names}
    except (KeyError, TypeError, ValueError):
        columns = {}
    if not rows or not columns or not all(np.isfinite(column).all() for column in columns.values()):
        raise InputError(f"{file}: needs rows with numbers in the columns {', '.join(names)}")
    return columns
