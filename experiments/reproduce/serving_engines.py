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
from experiments.reproduce.serving_rows import MeasuredRun, read_runs
from fleet.hardware.memory import USED, kv_memory
from fleet.hardware.profile import estimated_profile, placed_of
from fleet.scenario.reading import make_scenario
from fleet.times.profile import HardwareProfile
from sim.run import observe

BACKENDS = {"vllm": "vLLM", "sglang": "SGLang by vLLM's rules", "trtllm": "TensorRT-LLM by vLLM's rules"}
EXPERTS = "qwen3-235b-a22b"  # a mixture of experts, scored apart from the dense models
BATCHED_TOKENS, MOST_SEQS = 8192, 1024  # vLLM's defaults on devices of 70 GiB and more
MEMORY_SHARE = 0.9  # of a device, which these engines used: vLLM's default of 2025, and InferenceX's setting
RANGE = (0.8, 1.0)  # InferenceX draws both lengths from these shares of the stated ones
OUT_OF_STEP = (0.9, 1.1)  # of the stated output length, where it is said to be fixed
WAVES = {True: 10, False: 5}  # requests of a run over its concurrency: InferenceX's, and assumed for others
SHORT_TOKENS, LONG_TOKENS = 60_000, 150_000  # output tokens: of a whole run, and of one wave

FITTED: dict[str, tuple[str, ...]] = {"vllm": (), "sglang": (), "trtllm": ()}
"""The rows that the host time of a row was fitted on."""

ASSUMED = [
    "step times: rooflines; every engine follows vLLM's scheduling, with 8192 tokens and 1024 requests a step",
    (
        "InferenceX: lengths from 80 to 100 % of the stated ones, 10 requests for each of the concurrency, at most as "
        "many running, KV cache of fp8 beside weights of fp8. vLLM's attention of October 2025 read it no faster than "
        "one of 16 bits (vllm-project/flash-attention #96), so its reads are priced at 16 bits"
    ),
    "other rows: fixed prompts, outputs within 10 % of the stated length, 5 requests for each of the concurrency",
    (
        f"a run of more than {SHORT_TOKENS} output tokens is cut to its first wave, part of the waves between, and its "
        f"last one, which count as in the whole run. Where a wave has more than {LONG_TOKENS} tokens, TPOT is the "
        "first wave's, and TTFT weighs the requests after it"
    ),
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
    waves, concurrency = WAVES[run.inferencex], run.concurrency
    wave_tokens = concurrency * run.new_tokens
    if waves * wave_tokens <= SHORT_TOKENS:
        requests = waves * concurrency
    elif wave_tokens <= LONG_TOKENS:
        requests = 2 * concurrency + max(2, concurrency // 8)
    else:
        requests = concurrency + max(2, concurrency // 16)
    profile = _profile(run, row_s)
    low, high = RANGE if run.inferencex else OUT_OF_STEP
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
                "max_num_batched_tokens": BATCHED_TOKENS,
            },
            "workload": {
                "requests": requests,
                "streams": concurrency,
                "prompt_tokens": prompt,
                "new_tokens": {"low": int(low * run.new_tokens), "high": longest},
            },
        }
    )
    found = observe(scenario).requests
    order = np.argsort(found.joined_s, kind="stable")
    ttft_s = (found.first_s - found.joined_s)[order]
    tpot_s = ((found.last_s - found.first_s) / np.maximum(found.tokens - 1, 1))[order]
    return Predicted(
        1000 * mean_of_waves(ttft_s, concurrency, waves),
        1000 * mean_of_waves(tpot_s if requests >= 2 * concurrency else tpot_s[:concurrency], concurrency, waves),
        requests,
    )


def mean_of_waves(values: np.ndarray, wave: int, waves: int) -> float:
    """Return the mean of a run of so many waves of requests from its first one, some of the middle, and the last."""
    if len(values) in (wave, waves * wave):
        return float(values.mean())
    first, rest = values[:wave].mean(), values[wave:]
    if len(rest) < wave:
        return float((first + (waves - 1) * rest.mean()) / waves)
    return float((first + (waves - 2) * rest[:-wave].mean() + rest[-wave:].mean()) / waves)


def _profile(run: MeasuredRun, row_s: float | None) -> HardwareProfile:
    eight_bits = run.inferencex and run.precision == "fp8"
    profile = _estimated(run.backend, run.model, run.devices, run.device, run.precision, eight_bits)
    if row_s is None:
        return profile
    shift_s = row_s - profile.verify.per_row_s

    def shifted(name: str) -> Any:
        time = getattr(profile, name)
        return msgspec.structs.replace(time, base_s=time.base_s + shift_s, per_row_s=row_s)

    return msgspec.structs.replace(profile, **{name: shifted(name) for name in ("verify", "decode", "verify_prefill")})


@lru_cache
def _estimated(
    backend: str, model: str, devices: int, device: str, precision: str, eight_bits: bool
) -> HardwareProfile:
    """Return the estimated profile of a place; `eight_bits`: of its KV cache."""
    place = f"{model}@{devices}x{device}:{precision}"
    placed = placed_of(place, backend)
    small = msgspec.structs.replace(placed, cache="kv-fp8" if eight_bits else placed.cache)
    less_bytes = (USED - MEMORY_SHARE) * placed.device.memory_bytes.value
    kv = kv_memory(small, None)
    kv = msgspec.structs.replace(kv, free_bytes=max(kv.free_bytes - less_bytes, 0.0))
    return msgspec.structs.replace(estimated_profile(placed if backend == "vllm" else small), kv=kv)


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
                case = {"of": title, "rows": which, "number": len(found)}
                yield row(f"{quantity}, mean absolute error, %", case, "identity", None, 100 * statistics.fmean(found))
    signed: dict[int, list[float]] = {}
    tpots = [one for one in rows if one.quantity.startswith("TPOT")]
    for run, one in zip(runs, tpots, strict=True):
        if one.error is not None and not run.doubtful:
            signed.setdefault(run.concurrency, []).append(one.error)
    for concurrency, errors_at in sorted(signed.items()):
        case = {"of": title, "rows": "without doubtful", "concurrency": concurrency, "number": len(errors_at)}
        yield row("TPOT, signed error, %", case, "identity", None, 100 * statistics.fmean(errors_at))
    if len(signed) > 1:
        points = [(log2(concurrency), 100 * error) for concurrency, errors_at in signed.items() for error in errors_at]
        slope = statistics.linear_regression(*zip(*points, strict=True)).slope
        case = {"of": title, "rows": "without doubtful"}
        yield row("TPOT, signed error for each doubling of concurrency, points", case, "identity", None, slope)
