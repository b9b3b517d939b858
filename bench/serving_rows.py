"""Measured TTFT and TPOT of vLLM, SGLang and TensorRT-LLM against estimates: each run simulated by vLLM's rules.

Step times are rooflines and one fitted figure of each engine, the host time of a row; no other number is fitted. Runs
are rows of NVIDIA's aiconfigurator with mean TTFT and TPOT, closed loops of requests at one concurrency. The first
column names a run; `silicon_data_source` says where it is from.
"""

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import permutations
from math import log2
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
import pandas as pd

from bench.harness import SINGLE, data_file
from specfleet.experiments.reproduce.rows import Kind, Paper, PaperRow, Reproduction, in_parts, row
from specfleet.fleet.hardware.profile import estimated_profile, kv_memory, placed_of
from specfleet.fleet.hardware.shipped import engine_of, shape_of
from specfleet.fleet.records.columns import Table
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.effects import USED
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.sim.run import observe

FILE = "silicon-sample-half.csv"
PAPER = Paper("serving_rows", Path(__file__).parent)
MAX_DEVICES = 8  # of a server; rows of more are of several servers, some of which prefill
# Versions and precisions with times below a plain step, or TTFTs of seconds at C = 16. The last one's TPOT is up to
# 2.3 times shorter than that of others with equal settings: multi-token prediction, whose acceptance is not printed.
DOUBTFUL = (("vllm", "0.12.0", "fp8"), ("trtllm", "1.2.0rc6", ""), ("sglang", "0.5.8", ""), ("trtllm", "1.1.0rc2", ""))
LEAST_DECODING = 0.5  # share of C requests that decode at once, by Little's law; below it most of them wait
FALL = 0.05  # share by which TPOT falls, beyond chance
DISAGGREGATED = "prefill and decoding on the same devices (out of scope)"


class MeasuredRun(msgspec.Struct, frozen=True):
    """One measured run.

    - `model`, `device`: names of ours; the file's where ours are missing.
    - `devices`: the devices that share the model's weights.
    - `inferencex`: whether InferenceX measured it, whose settings are published.
    - `version`: of the engine, and how it spreads experts; no estimate depends on it.
    - `doubt`: why the measurement is doubtful; empty if it is not.
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
    version: str = ""
    doubt: str = ""
    lacks: str = ""

    @property
    def decoding(self) -> float:
        """Requests that decode at once, by Little's law."""
        decoding_ms = (self.new_tokens - 1) * self.tpot_ms
        return self.concurrency * decoding_ms / (self.ttft_ms + decoding_ms)


def read_runs(file: Path) -> tuple[list[MeasuredRun], int]:
    """Return the runs of a file in its order, and how many more prefill and decode on different devices.

    Copies of one run, under another name, are left out.
    """
    rows = pd.read_csv(file, keep_default_na=False, low_memory=False)
    aggregated = rows[rows["mode"] == "agg"].drop_duplicates(
        ["backend", "system", "isl", "osl", "silicon_ttft_ms", "silicon_tpot_ms"]
    )
    return doubted(_run(cells) for cells in aggregated.to_dict("records")), sum(rows["mode"] != "agg")


def doubted(runs: Iterable[MeasuredRun]) -> list[MeasuredRun]:
    """Mark the runs that did not have C requests at once, by measurements alone.

    Of such a run most requests wait (Little's law), or at its place TPOT falls where C rises.
    """
    made, places = list(runs), defaultdict(list)
    for run in made:
        settings = msgspec.structs.replace(run, name="", concurrency=0, ttft_ms=0.0, tpot_ms=0.0)
        places[settings].append(run)
    falls = {
        run.name
        for of_place in places.values()
        for few, many in permutations(of_place, 2)
        if few.concurrency < many.concurrency and many.tpot_ms < (1 - FALL) * few.tpot_ms
        for run in (few, many)
    }
    for number, run in enumerate(made):
        waits = run.decoding < LEAST_DECODING * run.concurrency
        doubt = run.doubt or (WAITING if waits else FALLING if run.name in falls else "")
        made[number] = msgspec.structs.replace(run, doubt=doubt)
    return made


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
    is_doubtful = any(
        backend == engine and version.startswith(begins) and precision in (only or precision,)
        for engine, begins, only in DOUBTFUL
    )
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
        version=f"{version}, experts over {spreads}",
        doubt=DOUBTED if is_doubtful else "",
        lacks=lacks,
    )


def _whole(cell: Any) -> int:
    """Return a count; sizes are written as 4 or 4.0, and nothing is 0."""
    return int(float(cell)) if cell != "" else 0


DATA = (FILE,)
BACKENDS = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM by vLLM's rules"}
KINDS = {"h100": "Hopper", "h200": "Hopper", "b200": "Blackwell", "b300": "Blackwell", "gb200": "Blackwell"}
FORMS = {"deepseek-r1": "deepseek-v3"}  # models of one form
MAX_SEQS = 1024  # vLLM's default on devices of 70 GiB and more
MEMORY_SHARE = 0.9  # of a device, which these engines used: vLLM's default of 2025, and InferenceX's setting
RANGE = (0.8, 1.0)  # InferenceX draws both lengths from these shares of the stated ones
OUTPUTS = (0.97, 1.03)  # of the stated length, if it is fixed
IN_STEP = ("sglang", "h100")  # whose outputs have one length: all requests begin and end together
WAVES, FEW_WAVES, MANY_TOKENS = 10, 4, 1 << 20  # requests of a run over its concurrency; few if a wave is so large
DOUBTED = (
    "doubtful groups: times below a plain step or below those of other versions, TTFTs of seconds at a concurrency "
    "of 16"
)
WAITING = "most of the stated requests wait: fewer than half of them decode at once, by Little's law"
FALLING = "TPOT falls while the number of requests at once rises"
LITTLE_CACHE = "the cache that weights leave hangs on settings that the file does not have"
TIGHT = 0.8  # share of the memory beyond which what weights leave for the cache hangs on settings


class Predicted(msgspec.Struct, frozen=True):
    """Mean TTFT and TPOT of a run, and how many requests were simulated."""

    ttft_ms: float
    tpot_ms: float
    requests: int


def reproduce(folder: Path | None) -> Reproduction:
    """Hold simulations against measured TPOT and TTFT, run by run; errors by backend, kind of device and model."""
    runs, disaggregated = read_runs(data_file(folder, FILE))
    lacking = Counter(run.lacks for run in runs if run.lacks) + Counter({DISAGGREGATED: disaggregated})
    notes = [f"{count} rows left out, for want of: {lacks}" for lacks, count in sorted(lacking.items())]
    parts: dict[str, list[PaperRow]] = {}
    known = [run for run in runs if not run.lacks]
    for title, of_part in _parts(known):
        rows = [judged for run in of_part for judged in measured_rows(run, predicted(run))]
        parts[title] = [*rows, *_summary(title, of_part, rows)]
    singles = [judged for rows in parts.values() for judged in rows if SINGLE in judged.case]
    parts["all"] = list(_errors("all", singles))
    doubts = [f"doubtful: {run.name}: {run.doubt}" for run in known if run.doubt not in ("", DOUBTED)]
    return in_parts("serving", parts, [*notes, *doubts, *PAPER.assumed()])


def predicted(run: MeasuredRun) -> Predicted:
    """Simulate a run. Runs of equal settings take one time."""
    return _predicted(msgspec.structs.replace(run, name="", ttft_ms=0.0, tpot_ms=0.0, version="", doubt=""))


@cache
def _predicted(run: MeasuredRun) -> Predicted:
    scenario = serving_scenario(run)
    ttft_s, tpot_s = _means_s(observe(scenario).requests, _profile(run).request_s)
    return Predicted(1000 * ttft_s, 1000 * tpot_s, scenario.workload.requests)


def serving_scenario(run: MeasuredRun) -> Scenario:
    """Return the scenario that a run is simulated as."""
    concurrency = run.concurrency
    requests = (FEW_WAVES if concurrency * run.new_tokens > MANY_TOKENS else WAVES) * concurrency
    profile = _profile(run)
    low, high = RANGE if run.inferencex else (1.0, 1.0) if (run.backend, run.device) == IN_STEP else OUTPUTS
    prompt: int | dict[str, int] = run.prompt_tokens
    longest = int(high * run.new_tokens)
    has_large_steps = run.backend == "sglang" and run.device not in ("h100", "h200")  # more memory
    if run.inferencex:
        prompt = {"low": int(low * run.prompt_tokens), "high": run.prompt_tokens}
    if profile.kv and profile.kv.tokens() >= concurrency * (run.prompt_tokens + longest + 16):  # always enough
        profile = msgspec.structs.replace(profile, kv=None)
    limits = {"max_num_seqs": concurrency if run.inferencex else MAX_SEQS}
    limits |= {"max_num_batched_tokens": 16384 if has_large_steps else 8192}
    lengths = {"prompt_tokens": prompt, "new_tokens": {"low": int(low * run.new_tokens), "high": longest}}
    return make_scenario(
        {
            "name": "serving",
            "profile": msgspec.to_builtins(profile),
            "drafters": {"count": 0},
            "verifiers": limits | {"prefill_first": engine_of(run.backend).prefill_first},
            "workload": {"requests": requests, "streams": concurrency} | lengths,
        }
    )


def _means_s(answers: Table, outside_s: float) -> tuple[float, float]:
    """Return the mean TTFT and TPOT of all answers, from their table or, of a long run, from its sums.

    `outside_s`: time of a request outside its target's steps.
    """
    if "ttft_s" in answers.names:
        ttft_s, tpot_s = (float(of.sums.sum() / of.counts.sum()) for of in (answers.ttft_s, answers.tpot_s))
        return ttft_s, tpot_s
    decoded_s = (answers.last_s - answers.first_s) / np.maximum(answers.tokens - 1, 1)
    return float((answers.first_s - answers.joined_s).mean()) + outside_s, float(decoded_s.mean())


def _profile(run: MeasuredRun) -> HardwareProfile:
    engine = "graphs" if run.inferencex and run.backend == "vllm" else run.backend  # asynchronous scheduling
    eight_bits = run.inferencex and run.precision != "bf16"
    return _estimated(_place(run), engine, eight_bits, run.backend != "vllm")


def _place(run: MeasuredRun) -> str:
    return f"{run.model}@{run.devices}x{run.device}:{weights_of(run.model, run.precision)}"


@cache
def _weights_share(place: str) -> float:
    """Return the share of its devices' memory that a model's weights take."""
    placed = placed_of(place)
    return placed.weights_bytes / placed.parallel / placed.device.memory_bytes.value


def weights_of(model: str, precision: str) -> str:
    """Return the precisions of a run's weights: checkpoints of 4 bits keep attention in 16."""
    if model.startswith("gpt-oss"):
        return "bf16"  # the experts are mxfp4 as published
    if precision == "fp4":
        return (
            "bf16:mlp-nvfp4" if model.startswith("deepseek") else "bf16:experts-nvfp4" if is_mixture(model) else "nvfp4"
        )
    return "bf16:experts-int4" if precision == "int4" else precision


def is_mixture(model: str) -> bool:
    """Return whether a model has experts."""
    return shape_of(model).experts > 0


@cache
def _estimated(place: str, engine: str, eight_bits: bool, read_in_8_bits: bool) -> HardwareProfile:
    """Return the estimated profile of a place; `eight_bits`: of its KV cache."""
    placed = placed_of(place, engine)
    small = msgspec.structs.replace(placed, cache="kv-fp8" if eight_bits else placed.cache)
    less_bytes = (USED - MEMORY_SHARE) * placed.device.memory_bytes.value
    kv = kv_memory(small, None)
    kv = msgspec.structs.replace(kv, free_bytes=max(kv.free_bytes - less_bytes, 0.0))
    return msgspec.structs.replace(estimated_profile(small if read_in_8_bits else placed), kv=kv)


def measured_rows(run: MeasuredRun, ours: Predicted) -> Iterator[PaperRow]:
    """Return the rows of a run: TPOT and TTFT."""
    case: dict[str, Any] = {
        SINGLE: run.name,
        "tokens in": run.prompt_tokens,
        "out": run.new_tokens,
        "concurrency": run.concurrency,
        "requests": ours.requests,
    }
    fitted = run.name in PAPER["fitted"][run.backend]
    kind: Kind = "fitted" if fitted else "estimated"
    tight = not fitted and _weights_share(_place(run)) > TIGHT
    note = run.doubt if run.doubt and not fitted else LITTLE_CACHE if tight else ""
    yield row("TPOT, ms", case, kind, run.tpot_ms, ours.tpot_ms, note=note)
    yield row("TTFT, ms", case, kind, run.ttft_ms, ours.ttft_ms, note=note)


def _parts(runs: Sequence[MeasuredRun]) -> Iterator[tuple[str, list[MeasuredRun]]]:
    """Yield the runs by backend, kind of device, and model: dense models together, each mixture of experts apart."""
    parts: dict[tuple[str, str, str], list[MeasuredRun]] = {}
    for run in runs:
        model = run.model if is_mixture(run.model) else "dense models"
        parts.setdefault((BACKENDS[run.backend], KINDS[run.device], FORMS.get(model, model)), []).append(run)
    for (backend, kind, model), of_part in sorted(parts.items()):
        yield f"{backend}, {model}, {kind}", of_part


def _summary(title: str, runs: Sequence[MeasuredRun], rows: Sequence[PaperRow]) -> Iterator[PaperRow]:
    """Yield mean errors, and TPOT's slope by concurrency."""
    yield from _errors(title, rows)
    tpots = [judged for judged in rows if judged.quantity.startswith("TPOT")]
    points = [
        (log2(run.concurrency), 100 * judged.error)
        for run, judged in zip(runs, tpots, strict=True)
        if judged.error is not None and judged.kind != "unsettled"
    ]
    if len({at for at, _ in points}) > 1:
        slope = statistics.linear_regression(*zip(*points, strict=True)).slope
        case = {"part": title, "rows": "without doubtful"}
        yield row("TPOT, signed error for each doubling of concurrency, points", case, "identity", None, slope)


def _errors(title: str, rows: Sequence[PaperRow]) -> Iterator[PaperRow]:
    """Yield mean absolute errors, with and without doubtful rows and fitted ones, and medians with their spread."""
    for quantity in ("TPOT", "TTFT"):
        of_quantity = [judged for judged in rows if judged.quantity.startswith(quantity) and judged.error is not None]
        before = -1
        for which, left_out in (
            ("all", ()), ("without doubtful", ("unsettled",)), ("without doubtful and fitted", ("unsettled", "fitted"))
        ):  # fmt: skip
            some = [judged for judged in of_quantity if judged.kind not in left_out]
            if some and len(some) != before:
                yield _mean_error(quantity, title, which, some)
            before = len(some)
        clean = [judged for judged in of_quantity if judged.kind != "unsettled"]
        signed = [100 * (judged.error or 0.0) for judged in clean]
        if signed:
            low, median, high = np.quantile(signed, (0.1, 0.5, 0.9))
            case = {"part": title, "rows": f"without doubtful; the middle 80 %: {low:+.0f} .. {high:+.0f}"}
            yield row(f"{quantity}, median signed error, %", case, "identity", None, float(median))
        for which, is_fitted in (("half, on which figures were fitted", True), ("other half", False)):
            if half := [judged for judged in clean if fits(judged.case[SINGLE]) == is_fitted]:
                yield _mean_error(quantity, title, which, half)


def _mean_error(quantity: str, title: str, which: str, rows: Sequence[PaperRow]) -> PaperRow:
    case = {"part": title, "rows": which, "number": len(rows)}
    mean = 100 * statistics.fmean(abs(judged.error or 0.0) for judged in rows)
    return row(f"{quantity}, mean absolute error, %", case, "identity", None, mean)


def fits(name: str) -> bool:
    """Return whether a run is in the random half that set the host's times of requests, and of rows of mixtures."""
    return crc32(name.encode()) % 2 == 0
