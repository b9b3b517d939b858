"""Benchmarks of vLLM and SGLang: acceptance of a run and, with details, the times of each request.

`vllm bench serve --save-result --save-detailed`, `python -m sglang.bench_serving --output-details`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from specfleet.calibration.readers.clients import AT_ONCE, Timed, asking, make_load, read_limit
from specfleet.calibration.readers.counts import counts_of_mean, counts_of_survivors, steps_without_draft
from specfleet.calibration.readers.entries import read_entries, table_of
from specfleet.calibration.readers.laws import falls, rounds_to, same
from specfleet.calibration.readers.load import Load
from specfleet.calibration.readers.recording import Counts, Recording
from specfleet.calibration.readers.requests import Count, Length, Real, Tokens
from specfleet.calibration.readers.sglang_log import STEPS_KEY, tree_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.strict import convert
from specfleet.fleet.policies.shapes import CHAIN

SGLANG = "sharegpt_output_len"  # a key that vLLM does not write; it stands there whatever the data set is
CHAT = "openai-chat"  # of vLLM: the first chunk has the role alone, and comes with the first token
Share = Annotated[float, Meta(ge=0, le=1)]
Time = Annotated[float, Meta(ge=0, le=1e12)]


class Server(msgspec.Struct, frozen=True):
    """Settings of SGLang's server, which the benchmark asks for; None, or -1, where there is none."""

    max_running_requests: int | None = None
    chunked_prefill_size: int | None = None
    max_total_num_tokens: int | None = None
    speculative_num_steps: Tokens | None = None
    speculative_eagle_topk: Tokens | None = None
    speculative_num_draft_tokens: Tokens | None = None
    dp_size: Annotated[int, Meta(ge=1, le=10**4)] | None = None


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that are read; a request that failed has a text in `errors`, or an answer of 0 tokens."""

    completed: Count
    duration: Time = 0.0
    request_rate: Annotated[float, Meta(gt=0)] | str | None = None
    max_concurrency: Annotated[int, Meta(ge=1, le=10**6)] | None = None
    input_lens: list[Length] = []
    output_lens: list[Length] = []
    ttfts: list[Time] = []
    itls: list[list[Time]] = []
    # of vLLM
    backend: str = ""
    endpoint_type: str = ""
    start_times: list[Time] | None = None  # not of versions before 2026
    errors: list[str] = []
    spec_decode_num_drafts: Count = 0
    spec_decode_draft_tokens: Count = 0
    spec_decode_accepted_tokens: Count = 0
    spec_decode_acceptance_length: Real | None = None
    spec_decode_per_position_acceptance_rates: list[Share] = []
    # of SGLang
    total_output_tokens: Count = 0
    accept_length: Real | None = None
    mean_ttft_ms: Time | None = None
    server_info: Server | None = None


def read_bench(files: Sequence[Path], depth: int | None = None, in_flight: int | None = None) -> Recording:
    """Read the result of one run; InputError, naming key and values, where it contradicts itself.

    - `depth`: of drafts, where a run of SGLang does not have its server's settings.
    - `in_flight`: requests that the client kept in flight, 0 if they arrived, where its settings do not say it.
    """
    entries = list(read_entries(files))
    if len(entries) != 1:
        raise InputError(f"{files[0]}: holds {len(entries)} runs; give a file with the line of one")
    origin, entry = entries[0]
    bench, is_sglang = convert(table_of(entry, origin), Bench, origin), SGLANG in entry
    counts = _of_sglang(origin, bench, depth) if is_sglang else _of_vllm(origin, bench)
    shape, server = CHAIN, bench.server_info or Server()
    if counts and is_sglang:
        shape, notes = tree_of(
            origin, counts.depth, server.speculative_eagle_topk or 0, server.speculative_num_draft_tokens or 0
        )
        counts = counts.noting(*notes)
    timed, length = _timed(origin, bench, is_sglang), counts.mean_length if counts else 1.0
    rounds = counts.rounds if counts and not is_sglang else 0
    if rounds and any(bench.errors):  # without those of requests that failed
        rounds = round(sum(request.answer - 1 for request in timed) / length)
    rate, limit = bench.request_rate or AT_ONCE, bench.max_concurrency
    limit = read_limit(origin, in_flight, limit, rate, bench.completed)
    name, lasted_s = "SGLang's benchmark" if is_sglang else "vllm bench serve", None
    where = name if is_sglang else f"`{name}`"
    if bench.start_times is None and (rate != AT_ONCE or limit):  # else all started at once
        where = f"{where}, which has no starts"
        lasted_s = bench.duration
        if limit:  # with all of them in flight
            lasted_s = sum(request.end_s for request in timed) / limit
    load = make_load(timed, rounds, bench.accept_length or 1.0 if is_sglang else length, where, limit, lasted_s)
    if load is None and counts is None:
        raise InputError(
            f"{origin}: has neither acceptance nor times of requests; run vLLM's with --save-detailed, SGLang's with "
            "--output-details"
        )
    if load is not None and is_sglang:
        load = _with_server(origin, bench, load)
    lengths = tuple((round(request.prompt), round(request.answer)) for request in timed)
    is_played = not is_sglang and load is not None and not load.arrivals and all(map(min, lengths))
    return Recording(
        source=name,
        counts=counts,
        load=asking(load, origin),
        lengths=lengths if is_played else (),
        lengths_from="of the requests",
        shape=shape,
    )


def _of_vllm(origin: str, bench: Bench) -> Counts | None:
    """Return the counts of a run of vLLM, by position; None without speculation."""
    drafts, rates = bench.spec_decode_num_drafts, bench.spec_decode_per_position_acceptance_rates
    if not drafts:
        return None
    passed = [round(rate * drafts) for rate in rates]
    falls(origin, "spec_decode_per_position_acceptance_rates", rates, "1", 1.0)
    accepted, stated = bench.spec_decode_accepted_tokens, bench.spec_decode_acceptance_length
    same(origin, "spec_decode_accepted_tokens", accepted, "the sum of rates by position times drafts", sum(passed))
    rounds_to(origin, "spec_decode_acceptance_length", stated, "1 + accepted / drafts", 1 + accepted / drafts)
    tokens = bench.spec_decode_draft_tokens
    plain, answers, failed = 0, sum(bench.output_lens), sum(map(bool, bench.errors))
    if answers and not failed:
        firsts = sum(length > 0 for length in bench.output_lens)
        plain = steps_without_draft(
            origin, "the sum of output_lens", answers, firsts, drafts, accepted, firsts * len(passed)
        )
    counts = counts_of_survivors(origin, "drafts during the run", passed, drafts, tokens, stated, plain)
    note = f"{failed} requests failed: their rounds count, too, and steps without a draft are not known"
    return counts.noting(note) if failed else counts


def _of_sglang(origin: str, bench: Bench, depth: int | None) -> Counts | None:
    """Return the counts of a run of SGLang, which has the mean alone; None without speculation."""
    length, server = bench.accept_length or 1.0, bench.server_info or Server()
    if length <= 1:
        return None
    levels, rounds = server.speculative_num_steps or depth or 0, round(bench.total_output_tokens / length)
    source = "accept_length, which the server averages since its start"
    return counts_of_mean(origin, source, rounds, "accept_length", length, levels, STEPS_KEY, is_stated=True)


def _timed(origin: str, bench: Bench, is_sglang: bool) -> list[Timed]:
    """Return the requests that succeeded, by single times if saved; SGLang spreads gaps evenly within a chunk."""
    count = len(bench.ttfts)
    if not count or (bench.start_times is None and not bench.duration):
        return []
    lists: dict[str, Sequence[Any]] = {
        "start_times": [0.0] * count if bench.start_times is None else bench.start_times,
        "ttfts": bench.ttfts,
        "itls": bench.itls,
        "input_lens": bench.input_lens,
        "output_lens": bench.output_lens,
        "errors": bench.errors or [""] * count,
    }
    if {len(values) for values in lists.values()} != {count}:
        lengths = str([len(values) for values in lists.values()])[1:-1]
        raise InputError(f"{origin}: {', '.join(lists)} have {lengths} entries; needs as many each")
    roles = int(CHAT in (bench.backend, bench.endpoint_type))
    return [
        Timed(at_s, at_s + ttft_s, at_s + ttft_s + sum(gaps_s), prompt, answer, [] if is_sglang else gaps_s[roles:])
        for at_s, ttft_s, gaps_s, prompt, answer, error in zip(*lists.values(), strict=True)
        if not error and answer
    ]


def _with_server(origin: str, bench: Bench, load: Load) -> Load:
    """Return the load with the settings of SGLang's server, of which each rank has its part; checks its sums."""
    same(origin, "completed", bench.completed, "the entries of output_lens above 0", load.requests)
    same(origin, "total_output_tokens", bench.total_output_tokens, "the sum of output_lens", sum(bench.output_lens))
    if load.ttft_s is not None:
        rounds_to(origin, "mean_ttft_ms", bench.mean_ttft_ms, "the mean of ttfts, in ms", 1e3 * load.ttft_s.mean)
    server = bench.server_info or Server()
    engines = server.dp_size or 1
    return msgspec.structs.replace(
        load,
        prompts_per_round=load.prompts_per_round / engines,
        max_num_seqs=_setting((server.max_running_requests or 0) // engines),
        max_num_batched_tokens=_setting(server.chunked_prefill_size),
        kv_tokens=_setting(server.max_total_num_tokens),
        engines=engines,
    )


def _setting(value: int | None) -> int | None:
    return value if value and value > 0 else None
