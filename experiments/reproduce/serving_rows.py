"""Reads measured runs of serving engines: rows of NVIDIA's aiconfigurator with mean TTFT and TPOT.

A run is a closed loop of requests at one concurrency. Its first column names it; `silicon_data_source` says where it is
from.
"""

import re

import msgspec

from specfleet.experiments.reproduce.rows import Inputs, data_file
from specfleet.fleet.data.shipped import published_tables
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.text import read_csv

FILE = "silicon-sample-half.csv"
COLUMNS = (
    "id", "silicon_data_source", "backend", "backend_version", "model_path", "system", "precision", "mode", "isl",
    "osl", "gemm_quant_mode", "batch_size", "tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size",
    "silicon_ttft_ms", "silicon_tpot_ms",
)  # fmt: skip
MODELS = {
    "meta-llama/Llama-3.1-70B": "llama-3.1-70b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b",
    "Qwen/Qwen3-32B": "qwen3-32b",
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
    "Qwen/Qwen3.5-397B-A17B": "qwen3.5-397b-a17b",
    "MiniMaxAI/MiniMax-M2.5": "minimax-m2",
    "deepseek-ai/DeepSeek-R1": "deepseek-r1",
    "deepseek-ai/DeepSeek-V3": "deepseek-v3",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-r1",
    "nvidia/DeepSeek-V3.1-NVFP4": "deepseek-v3",
    "moonshotai/Kimi-K2.5": "kimi-k2.5",
    "openai/gpt-oss-120b": "gpt-oss-120b",
}
DEVICES = {name: name.removesuffix("_sxm") for name in ("h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "gb200")}
MAX_DEVICES = 8  # of a server; rows of more are of several servers, some of which prefill
# Versions and precisions with times below a plain step, or TTFTs of seconds at C = 16. The last one's TPOT is up to
# 2.3 times shorter than that of others with equal settings: multi-token prediction, whose acceptance is not printed.
DOUBTFUL = (("vllm", "0.12.0", "fp8"), ("trtllm", "1.2.0rc6", ""), ("sglang", "0.5.8", ""), ("trtllm", "1.1.0rc2", ""))

FITTED: dict[str, list[str]] = published_tables()["fitted"]
"""The rows that the host time of a row was fitted on, by backend."""


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
    inferencex: bool
    doubtful: bool
    lacks: str = ""


def read_runs(inputs: Inputs) -> list[MeasuredRun]:
    """Return the runs of the data folder's file, in its order.

    Raises InputError where the folder, the file or a column is missing, and for a row without numbers.
    """
    path = data_file(inputs, FILE, "serving")
    return [_run(cells, f"{path}, line {number}") for number, cells in read_csv(path, COLUMNS)]


def _run(cells: dict[str, str], place: str) -> MeasuredRun:
    if cells["mode"] != "agg":
        apart = "prefill and decoding on the same devices (out of scope)"
        return MeasuredRun(cells["id"], "", "", "", 0, "", 0, 0, 0, 0.0, 0.0, False, False, apart)
    try:
        return _aggregated(cells)
    except ValueError as error:
        raise InputError(f"{place}: {error}; needs numbers for lengths, sizes and times") from error


def _aggregated(cells: dict[str, str]) -> MeasuredRun:
    source, backend, version = cells["silicon_data_source"], cells["backend"], cells["backend_version"]
    stated = re.search(r"silicon_concurrency=(\d+)", source)
    copies = max(_whole(cells["attention_dp_size"]), 1)
    precision = cells["precision"] or ("fp8" if cells["gemm_quant_mode"] else "bf16")
    written, spread = _whole(cells["tp_size"]), _whole(cells["moe_tp_size"]) * _whole(cells["moe_ep_size"])
    parallel = written
    if "measured=" in source and written == spread and cells["moe_tp_size"] == cells["moe_ep_size"]:
        parallel = _whole(cells["moe_tp_size"])  # InferenceX: 8 devices are 64 where their experts are spread
    model, device = MODELS.get(cells["model_path"], ""), DEVICES.get(cells["system"], "")
    lacks = ""
    if not device:
        lacks = f"device {cells['system']}"
    elif not model:
        lacks = f"model {cells['model_path']}"
    elif parallel > MAX_DEVICES:
        lacks = f"which of more than {MAX_DEVICES} devices prefill and which decode"
    elif copies > 1 or _whole(cells["pp_size"]) > 1 or spread > written:
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
        inferencex="measured=" in source,
        doubtful=any(
            backend == one and version.startswith(begins) and precision in (of or precision,)
            for one, begins, of in DOUBTFUL
        ),
        lacks=lacks,
    )


def _whole(text: str) -> int:
    """Return a count; sizes are written as 4 or 4.0, and nothing is 0."""
    return int(float(text)) if text else 0
