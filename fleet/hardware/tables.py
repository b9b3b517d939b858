"""Measured times of experts and of all-reduces, from NVIDIA's aiconfigurator-core where that package is installed.

`systems/data/SYSTEM/moe/ENGINE/VERSION/moe_perf.parquet` has the experts of a layer on one of the devices that share a
model, in milliseconds, by the shape of the layer, the precision of its experts and the tokens of a step.
`comm/ENGINE/VERSION/custom_allreduce_perf.parquet` has all-reduces inside CUDA graphs and outside. Its `message_size`
counts numbers: on two RTX PRO 6000 NCCL takes half as long for those of 8 bits as for those of 16, and vLLM 0.24 as
long as for the latter (39 GB/s, over PCIe Gen5; vLLM 0.19: 15 GB/s).
"""

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from specfleet.fleet.hardware.device import Accelerator, HostOverhead
from specfleet.fleet.hardware.shape import ModelShape
from specfleet.fleet.inputs.parquet import read_table

Floats = NDArray[np.float64]
PACKAGE, MODULE, FILE = "aiconfigurator-core", "aiconfigurator_core", "moe_perf.parquet"
COUNTS = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
BLOCK = 128  # inputs and outputs of a matrix that share a scale in fp8
SPREAD = "power_law_1.01"  # of tokens over experts: the package's own choice for these models
SCHEMA = pa.schema(
    [(name, pa.int64()) for name in (*COUNTS, "num_tokens")]
    + [("moe_dtype", pa.string()), ("distribution", pa.string()), ("latency", pa.float64())]
)
REDUCED = "custom_allreduce_perf.parquet"
REDUCED_SCHEMA = pa.schema(
    [(name, pa.int64()) for name in ("num_gpus", "message_size")]
    + [("kernel_source", pa.string()), ("allreduce_dtype", pa.string()), ("latency", pa.float64())]
)
BRINGS = "estimated: rooflines; `pip install 'specfleet[tables]'` brings measured ones, on Python 3.11 to 3.13"


class Measured(msgspec.Struct, frozen=True):
    """Measured times of an operator in seconds by tokens, or numbers: linear between, in proportion beyond the last."""

    tokens: tuple[float, ...]
    times_s: tuple[float, ...]
    source: str = ""

    def at(self, fed: Floats | float) -> Floats:
        """Return the times of steps with so many tokens."""
        times_s: Floats = np.interp(fed, self.tokens, self.times_s) * np.maximum(np.divide(fed, self.tokens[-1]), 1.0)
        return times_s


def experts_of(
    shape: ModelShape, parallel: int, precision: str, device: Accelerator, engine: HostOverhead
) -> Measured | None:
    """Return the measured times of a layer's experts on each of `parallel` devices, of the newest version with them.

    Devices that cannot split each expert, for their shares do not fill the blocks of a precision, hold whole ones. None
    where the engine takes such experts from no table, the package is not there, or lacks them.
    """
    root, dtypes = tables_at(), engine.tabled_experts.get(precision, ())
    if not (shape.experts and device.tables and dtypes and root):
        return None
    layer = (shape.hidden, shape.intermediate, shape.experts_used, shape.experts)
    splits = [(*layer, parallel, 1), *([(*layer, 1, parallel)] if shape.intermediate // parallel % BLOCK else [])]
    folder = root / device.tables / "moe" / engine.kernels
    files = sorted(folder.glob(f"*/{FILE}"), key=_version, reverse=True)
    for dtype, sizes, file in product(dtypes, splits, files):
        table = _columns(file, SCHEMA)
        own = (table["moe_dtype"] == dtype) & (table["distribution"] == SPREAD)
        for name, size in zip(COUNTS, sizes, strict=True):
            own &= table[name] == size
        if own.any():
            tokens = np.unique(table["num_tokens"][own])
            least_s = [table["latency"][own & (table["num_tokens"] == count)].min() / 1e3 for count in tokens]
            rising_s = np.minimum.accumulate(least_s[::-1])[::-1]  # more tokens take no less: a higher time is noise
            source = _source(engine.kernels, file, device)
            return Measured(tuple(tokens.astype(float).tolist()), tuple(rising_s.tolist()), source)
    return None


def all_reduces_of(parallel: int, device: Accelerator, engine: str, engine_version: str = "") -> Measured | None:
    """Return the measured times of an engine's all-reduces, inside CUDA graphs, by numbers of 16 bits.

    They are of that version of the engine, else of the newest. None where the package is not there, or lacks them.
    """
    root = tables_at()
    if not device.all_reduces or root is None:
        return None
    files = sorted((root / device.all_reduces / "comm" / engine).glob(f"*/{REDUCED}"), key=_version, reverse=True)
    for file in sorted(files, key=lambda file: file.parent.name != engine_version):
        table = _columns(file, REDUCED_SCHEMA)
        own = (table["num_gpus"] == parallel) & (table["allreduce_dtype"] == "bfloat16")
        own &= np.char.endswith(table["kernel_source"].astype(str), "_graph")
        if own.any():
            order = np.argsort(table["message_size"][own])
            numbers, times_s = table["message_size"][own][order], table["latency"][own][order] / 1e3
            source = _source(engine, file, device)
            return Measured(tuple(numbers.astype(float).tolist()), tuple(times_s.tolist()), source)
    return None


def tables_at() -> Path | None:
    """Return the folder of tables of the installed package; None without it."""
    found = find_spec(MODULE)
    if found is None or not found.submodule_search_locations:
        return None
    return Path(found.submodule_search_locations[0]) / "systems" / "data"


def _version(file: Path) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", file.parent.name)))


def _source(engine: str, file: Path, device: Accelerator) -> str:
    try:
        package = version(PACKAGE)
    except PackageNotFoundError:  # a copy without metadata
        package = "of unknown version"
    return f"{PACKAGE} {package}, {engine} {file.parent.name} on {device.title}"


@cache
def _columns(file: Path, schema: pa.Schema) -> dict[str, NDArray[np.generic]]:
    table = read_table(file, schema)
    return {name: np.asarray(table.column(name).to_pylist()) for name in schema.names}
