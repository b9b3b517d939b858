"""Measured TTFT and TPOT of vLLM, SGLang and TensorRT-LLM against estimates: each run simulated by vLLM's rules.

Step times are rooflines and one fitted figure of each engine, the host time of a row; no other number is fitted.
"""

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import log2
from typing import Any

import msgspec
import numpy as np

from experiments.reproduce.rows import Inputs, Kind, PaperRow, Reproduction, row, score_of
from experiments.reproduce.serving_rows import FITTED, MeasuredRun, read_runs
from fleet.hardware.device import Figure
from fleet.hardware.memory import USED, kv_memory
from fleet.hardware.profile import estimated_profile, placed_of
from fleet.scenario.reading import make_scenario
from fleet.times.profile import HardwareProfile
from sim.run import observe

BACKENDS = {"vllm": "vLLM", "sglang": "SGLang by vLLM's rules", "trtllm": "TensorRT-LLM by vLLM's rules"}
EXPERTS = "qwen3-235b-a22b"  # a mixture of experts, scored apart from the dense models
MOST_SEQS = 1024  # vLLM's default on devices of 70 GiB and more
BATCHED_TOKENS = {"vllm": 8192, "sglang": 16384, "trtllm": 8192}  # defaults; SGLang's is max_prefill_tokens
MEMORY_SHARE = 0.9  # of a device, which these engines used: vLLM's default of 2025, and InferenceX's setting
RANGE = (0.8, 1.0)  # InferenceX draws both lengths from these shares of the stated ones
OUTPUTS = {"vllm": (0.97, 1.03), "sglang": (1.0, 1.0), "trtllm": (0.97, 1.03)}  # of the stated length, if it is fixed
WAVES = 10  # requests of a run over its concurrency

ASSUMED = [
    (
        "step times: rooflines, and the host time of a row from the engine's file. Every engine follows vLLM's "
        "scheduling, with 1024 requests and 8192 tokens a step; SGLang with its own 16384 tokens of prompts"
    ),
    (
        "InferenceX: lengths from 80 to 100 % of the stated ones, a KV cache of fp8 beside weights of fp8, and vLLM "
        "with asynchronous scheduling, which hides the host time of rows"
    ),
    (
        "vLLM's attention of October 2025 read a cache of fp8 no faster than one of 16 bits, say its authors, so its "
        "reads are priced at 16 bits; this was put in after the rows had been seen"
    ),
    (
        "other rows: prompts of one length; outputs, too, for SGLang, whose requests stay in step, and within 3 % of "
        "the stated length for others, whose requests do not"
    ),
    (
        "fitted on ten named rows of each backend: the host time of a row, these 3 %, SGLang's settings, and that only "
        "synchronous scheduling pays for rows; the settings were chosen after several tries, which also saw five "
        "neighbouring rows of vLLM"
    ),
    "a run has 10 requests for each of its concurrency, as InferenceX's, and begins with a burst",
    "experts spread over devices take as long as split ones",
]


class Predicted(msgspec.Struct, frozen=True):
    """Mean TTFT and TPOT of a run, and how many requests were simulated."""

    ttft_ms: float
    tpot_ms: float
    requests: int


def serving(inputs: Inputs) -> Reproduction:
    """Measured TPOT and TTFT on H100 and H200, run by run; errors by backend and concurrency; needs `--data`."""
    runs = read_runs(inputs.data)
    lacking = Counter(run.lacks for run in runs if run.lacks)
    notes = [f"{count} rows left out, for want of: {lacks}" for lacks, count in sorted(lacking.items())]
    rows: list[PaperRow] = []
    parts = {}
    for title, of_part in _parts([run for run in runs if not run.lacks]):
        own = [one for run in of_part for one in measured_rows(run, predicted(run))]
        rows += [*own, *_summary(title, of_part, own)]
        parts[title] = score_of(own)
    return Reproduction("serving", rows, [*notes, *ASSUMED], parts=parts)


def predicted(run: MeasuredRun, row_s: float | None = None) -> Predicted:
    """Simulate a run; `row_s` replaces the host time of a row of the engine."""
    concurrency = run.concurrency
    profile = _profile(run, row_s)
    low, high = RANGE if run.inferencex else OUTPUTS[run.backend]
    prompt: int | dict[str, int] = run.prompt_tokens
    longest = int(high * run.new_tokens)
    if run.inferencex:
        prompt = {"low": int(low * run.prompt_tokens), "high": run.prompt_tokens}
    if profile.kv and profile.kv.tokens() >= concurrency * (run.prompt_tokens + longest + 16):  # always enough
        profile = msgspec.structs.replace(profile, kv=None)
    scenario = make_scenario(
        {
            "name": "serving",
            "profile": msgspec.to_builtins(profile),
            "drafters": {"count": 0},
            "verifiers": {
                "max_num_seqs": concurrency if run.inferencex else MOST_SEQS,
                "max_num_batched_tokens": BATCHED_TOKENS[run.backend],
            },
            "workload": {
                "requests": WAVES * concurrency,
                "streams": concurrency,
                "prompt_tokens": prompt,
                "new_tokens": {"low": int(low * run.new_tokens), "high": longest},
            },
        }
    )
    found = observe(scenario).requests
    ttft_s = found.first_s - found.joined_s
    tpot_s = (found.last_s - found.first_s) / np.maximum(found.tokens - 1, 1)
    return Predicted(1000 * float(ttft_s.mean()), 1000 * float(tpot_s.mean()), WAVES * concurrency)


def _profile(run: MeasuredRun, row_s: float | None) -> HardwareProfile:
    engine = "graphs" if run.inferencex and run.backend == "vllm" else run.backend  # asynchronous scheduling
    eight_bits = run.inferencex and run.precision == "fp8"
    place = f"{run.model}@{run.devices}x{run.device}:{run.precision}"
    return _estimated(place, engine, row_s, eight_bits, run.backend != "vllm")


@lru_cache
def _estimated(place: str, engine: str, row_s: float | None, eight_bits: bool, read_in_8_bits: bool) -> HardwareProfile:
    """Return the estimated profile of a place; `eight_bits`: of its KV cache."""
    placed = placed_of(place, engine)
    if row_s is not None:
        host = msgspec.structs.replace(placed.engine, row_s=Figure(row_s, "assumed: tried"))
        placed = msgspec.structs.replace(placed, engine=host)
    small = msgspec.structs.replace(placed, cache="kv-fp8" if eight_bits else placed.cache)
    less_bytes = (USED - MEMORY_SHARE) * placed.device.memory_bytes.value
    kv = kv_memory(small, None)
    kv = msgspec.structs.replace(kv, free_bytes=max(kv.free_bytes - less_bytes, 0.0))
    return msgspec.structs.replace(estimated_profile(small if read_in_8_bits else placed), kv=kv)


def measured_rows(run: MeasuredRun, ours: Predicted) -> Iterator[PaperRow]:
    """Return the rows of a run: TPOT and TTFT."""
    case: dict[str, Any] = {
        "row": run.name,
        "tokens in": run.prompt_tokens,
        "out": run.new_tokens,
        "concurrency": run.concurrency,
        "requests": ours.requests,
    }
    kind: Kind = "fitted" if run.name in FITTED[run.backend] else "unsettled" if run.doubtful else "estimated"
    note = "doubtful groups: times below a plain step, or TTFTs of seconds at a concurrency of 16"
    for quantity, measured_ms, ours_ms in (
        ("TPOT, ms", run.tpot_ms, ours.tpot_ms),
        ("TTFT, ms", run.ttft_ms, ours.ttft_ms),
    ):
        yield row(quantity, case, kind, measured_ms, ours_ms, note=note if kind == "unsettled" else "")


def _parts(runs: Sequence[MeasuredRun]) -> Iterator[tuple[str, list[MeasuredRun]]]:
    """Yield the runs by backend, those of the mixture of experts apart."""
    for backend, title in BACKENDS.items():
        for is_large, of in ((False, "dense models"), (True, EXPERTS)):
            own = [run for run in runs if run.backend == backend and (run.model == EXPERTS) == is_large]
            if own:
                yield f"{title}, {of}", own


def _summary(title: str, runs: Sequence[MeasuredRun], rows: Sequence[PaperRow]) -> Iterator[PaperRow]:
    """Yield mean absolute errors, with and without doubtful rows and fitted ones, and TPOT's by concurrency."""
    for quantity in ("TPOT", "TTFT"):
        errors = [one.error for one in rows if one.quantity.startswith(quantity)]
        kinds = [one.kind for one in rows if one.quantity.startswith(quantity)]
        for which, chosen in (
            ("all", errors),
            ("without doubtful", [e for e, run in zip(errors, runs, strict=True) if not run.doubtful]),
            ("without doubtful and fitted", [e for e, kind in zip(errors, kinds, strict=True) if kind == "estimated"]),
        ):
            found = [abs(error) for error in chosen if error is not None]
            if found:
                case = {"part": title, "rows": which, "number": len(found)}
                yield row(f"{quantity}, mean absolute error, %", case, "identity", None, 100 * statistics.fmean(found))
    signed: dict[int, list[float]] = {}
    tpots = [one for one in rows if one.quantity.startswith("TPOT")]
    for run, one in zip(runs, tpots, strict=True):
        if one.error is not None and not run.doubtful:
            signed.setdefault(run.concurrency, []).append(one.error)
    for concurrency, errors_at in sorted(signed.items()):
        case = {"part": title, "rows": "without doubtful", "concurrency": concurrency, "number": len(errors_at)}
        yield row("TPOT, signed error, %", case, "identity", None, 100 * statistics.fmean(errors_at))
    if len(signed) > 1:
        points = [(log2(concurrency), 100 * error) for concurrency, errors_at in signed.items() for error in errors_at]
        slope = statistics.linear_regression(*zip(*points, strict=True)).slope
        case = {"part": title, "rows": "without doubtful"}
        yield row("TPOT, signed error for each doubling of concurrency, points", case, "identity", None, slope)
