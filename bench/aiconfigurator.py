"""Reads measured runs of serving engines: rows of NVIDIA's aiconfigurator with mean TTFT and TPOT.

A run is a closed loop of requests at one concurrency. Its first column names it; `silicon_data_source` says where it is
from.
"""

import re
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from specfleet.experiments.reproduce.rows import Paper

FILE = "silicon-sample-half.csv"
PAPER = Paper("serving_rows", Path(__file__).parent)
MAX_DEVICES = 8  # of a server; rows of more are of several servers, some of which prefill
# Versions and precisions with times below a plain step, or TTFTs of seconds at C = 16. The last one's TPOT is up to
# 2.3 times shorter than that of others with equal settings: multi-token prediction, whose acceptance is not printed.
DOUBTFUL = (("vllm", "0.12.0", "fp8"), ("trtllm", "1.2.0rc6", ""), ("sglang", "0.5.8", ""), ("trtllm", "1.1.0rc2", ""))
DISAGGREGATED = "prefill and decoding on the same devices (out of scope)"


class MeasuredRun(msgspec.Struct, frozen=True):
    """One measured run.

    - `model`, `device`: names of ours; the file's where ours are missing.
    - `devices`: the devices that share the model's weights.
    - `inferencex`: whether InferenceX measured it, whose settings are published.
    - `lacks`: why it cannot be predicted; empty if it can.
    """

    name: str
    backend: str
    model: str
    device: str
    devices: int
    precision: str
    prompt_tokens: int
    new_tokens: int
    concurrency: int
    ttft_ms: float
    tpot_ms: float
    inferencex: bool = True
    doubtful: bool = False
    lacks: str = ""


def read_runs(file: Path) -> tuple[list[MeasuredRun], int]:
    """Return the runs of a file in its order, and how many more prefill and decode on different devices."""
    rows = pd.read_csv(file, keep_default_na=False, low_memory=False)
    aggregated = rows[rows["mode"] == "agg"]
    return [_run(cells) for cells in aggregated.to_dict("records")], len(rows) - len(aggregated)


def _run(cells: dict[str, Any]) -> MeasuredRun:
    source, backend, version = cells["silicon_data_source"], cells["backend"], cells["backend_version"]
    stated, inferencex = re.search(r"silicon_concurrency=(\d+)", source), "measured=" in source
    copies = max(_whole(cells["attention_dp_size"]), 1)
    precision = cells["precision"] or ("fp8" if cells["gemm_quant_mode"] else "bf16")
    parallel, splits, spreads = (_whole(cells[name]) for name in ("tp_size", "moe_tp_size", "moe_ep_size"))
    spread = parallel < splits * spreads
    if inferencex and parallel == splits * spreads and splits == spreads:
        parallel = splits  # InferenceX: 8 devices are 64 where their experts are spread
    model, device = PAPER["models"].get(cells["model_path"]), PAPER["devices"].get(cells["system"])
    lacks = ""
    if not device:
        lacks = f"device {cells['system']}"
    elif not model:
        lacks = f"model {cells['model_path']}"
    elif parallel > MAX_DEVICES:
        lacks = f"which of more than {MAX_DEVICES} devices prefill and which decode"
    elif copies > 1 or _whole(cells["pp_size"]) > 1 or spread:
        lacks = "attention in parallel copies, or pipelines"
    return MeasuredRun(
        name=cells["id"],
        backend=backend,
        model=model or cells["model_path"],
        device=device or cells["system"],
        devices=parallel,
        precision=precision,
        prompt_tokens=_whole(cells["isl"]),
        new_tokens=_whole(cells["osl"]),
        concurrency=int(stated[1]) if stated else _whole(cells["batch_size"]) * copies,
        ttft_ms=float(cells["silicon_ttft_ms"]),
        tpot_ms=float(cells["silicon_tpot_ms"]),
        inferencex=inferencex,
        doubtful=any(
            backend == engine and version.startswith(begins) and precision in (only or precision,)
            for engine, begins, only in DOUBTFUL
        ),
        lacks=lacks,
    )


def _whole(cell: Any) -> int:
    """Return a count; sizes are written as 4 or 4.0, and nothing is 0."""
    return int(float(cell)) if cell != "" else 0
