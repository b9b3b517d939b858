"""`python -m sglang.bench_serving --output-details`: the times of each request, and the mean acceptance length."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from specfleet.calibration.readers.clients import Sent, Timed, load_without_starts
from specfleet.calibration.readers.counts import recording_of_mean
from specfleet.calibration.readers.entries import table_of
from specfleet.calibration.readers.laws import rounds_to, same
from specfleet.calibration.readers.load import Load, Spread
from specfleet.calibration.readers.recording import Recording
from specfleet.calibration.readers.requests import Count, Length, Real, Tokens
from specfleet.calibration.readers.sglang_log import STEPS_KEY
from specfleet.calibration.readers.vllm_bench import Time
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.strict import convert
from specfleet.fleet.inputs.text import parse_json, read_lines

MARK = "sharegpt_output_len"  # a key that no other benchmark writes; it stands there whatever the data set is
NO_LIMIT = '"request_rate": Infinity'  # all requests at once; not JSON


class Server(msgspec.Struct, frozen=True):
    """Settings of the server, which the benchmark asks for; None, or -1, where there is none."""

    max_running_requests: int | None = None
    chunked_prefill_size: int | None = None
    max_total_num_tokens: int | None = None
    speculative_num_steps: Tokens | None = None
    dp_size: Annotated[int, Meta(ge=1, le=10**4)] | None = None


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that are read; a request that failed has an answer of 0 tokens."""

    completed: Count
    duration: Annotated[float, Meta(gt=0, le=1e9)]
    total_output_tokens: Count
    max_concurrency: Annotated[int, Meta(ge=1, le=10**6)] | None = None
    request_rate: Annotated[float, Meta(gt=0)] | str | None = None
    accept_length: Real | None = None
    mean_ttft_ms: Time | None = None
    server_info: Server | None = None
    input_lens: list[Length] = []
    output_lens: list[Length] = []
    ttfts: list[Time] = []
    itls: list[list[Time]] = []


def read_sglang_bench(files: Sequence[Path], depth: int | None = None) -> Recording:
    """Read one run of the benchmark; InputError, naming key and values, where it contradicts itself.

    - `depth`: of drafts, where the run does not have its server's settings.
    """
    lines = [(f"{path}, line {number}", line) for path in files for number, line in read_lines(path)]
    if len(lines) != 1:
        raise InputError(f"{files[0]}: holds {len(lines)} runs; give a file with the line of one")
    origin, line = lines[0]
    entry = table_of(parse_json(line.replace(NO_LIMIT, '"request_rate": null'), origin), origin)
    bench = convert(entry, Bench, origin)
    length, server = bench.accept_length or 1.0, bench.server_info or Server()
    load = _load(origin, bench, length, server)
    if length <= 1:
        return Recording(format="SGLang's benchmark, without speculation", acceptance=None, depth=0, load=load)
    levels, rounds = server.speculative_num_steps or depth or 0, round(bench.total_output_tokens / length)
    return recording_of_mean(
        "SGLang's benchmark", origin, "accept_length, which the server averages since its start", rounds,
        "accept_length", length, levels, STEPS_KEY, stated=length, load=load,
    )  # fmt: skip


def _load(origin: str, bench: Bench, length: float, server: Server) -> Load:
    """Return the load of the requests that succeeded; their gaps are those of tokens, not of rounds."""
    lists = (bench.input_lens, bench.output_lens, bench.ttfts, bench.itls)
    if len({len(one) for one in lists}) != 1 or not bench.ttfts:
        lengths = ", ".join(str(len(one)) for one in lists)
        raise InputError(
            f"{origin}: input_lens, output_lens, ttfts, itls have {lengths} entries; needs equally many, which "
            "--output-details writes"
        )
    good = [each for each in zip(*lists, strict=True) if each[1]]
    same(origin, "completed", bench.completed, "the entries of output_lens above 0", len(good))
    same(origin, "total_output_tokens", bench.total_output_tokens, "the sum of output_lens", sum(bench.output_lens))
    timed = [Timed(0.0, ttft_s, ttft_s + sum(gaps_s), prompt, answer) for prompt, answer, ttft_s, gaps_s in good]
    sent = Sent(bench.duration, bench.max_concurrency, bench.request_rate is not None)
    load = load_without_starts(timed, 0, length, "SGLang's benchmark", sent)
    if load is None or load.ttft_s is None or load.prefill_s is None:
        raise InputError(f"{origin}: completed = 0; needs requests that succeeded")
    rounds_to(origin, "mean_ttft_ms", bench.mean_ttft_ms, "the mean of ttfts, in ms", 1e3 * load.ttft_s.mean)
    engines, follows = server.dp_size or 1, not (load.arrivals or load.is_open)
    # A request that follows another comes when a step has just begun, and waits for it.
    waited_s = (load.round_s or 0.0) if follows else 0.0
    return msgspec.structs.replace(
        load,
        prefill_s=Spread(max(load.prefill_s.mean - waited_s, 0.0)),
        prompts_per_round=load.prompts_per_round / engines,
        max_num_seqs=_setting((server.max_running_requests or 0) // engines),
        max_num_batched_tokens=_setting(server.chunked_prefill_size),
        kv_tokens=_setting(server.max_total_num_tokens),
        engines=engines,
    )


def _setting(value: int | None) -> int | None:
    return value if value and value > 0 else None
