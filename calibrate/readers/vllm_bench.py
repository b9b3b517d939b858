"""`vllm bench serve --save-result`: acceptance and, with `--save-detailed`, the times of each request."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from calibrate.readers.clients import Timed, load_of
from calibrate.readers.counts import recording_of_survivors, steps_without_draft
from calibrate.readers.laws import falls, rounds_to, same
from calibrate.readers.recording import Recording
from calibrate.readers.requests import Count, Length, Real
from fleet.errors import InputError
from fleet.inputs.strict import convert
from fleet.inputs.text import read_json

AT_ONCE = "inf"  # the rate of requests that come as soon as the limit allows
CHAT = "openai-chat"  # the first chunk has the role alone, and comes with the first token
Share = Annotated[float, Meta(ge=0, le=1)]
Time = Annotated[float, Meta(ge=0, le=1e12)]


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that are read; a request that failed has a text in `errors`."""

    completed: Count
    backend: str = ""
    endpoint_type: str = ""
    request_rate: Annotated[float, Meta(gt=0)] | str | None = None
    max_concurrency: Annotated[int, Meta(ge=1)] | None = None
    input_lens: list[Length] = []
    output_lens: list[Length] = []
    ttfts: list[Time] = []
    itls: list[list[Time]] = []
    start_times: list[Time] | None = None
    errors: list[str] = []
    spec_decode_num_drafts: Count = 0
    spec_decode_draft_tokens: Count = 0
    spec_decode_accepted_tokens: Count = 0
    spec_decode_acceptance_length: Real | None = None
    spec_decode_per_position_acceptance_rates: list[Share] = []


def read_vllm_bench(files: Sequence[Path]) -> Recording:
    """Read the result of one run; InputError, naming key and values, where it contradicts itself."""
    if len(files) > 1:
        raise InputError(f"{files[1]}: a second run; give one")
    origin = str(files[0])
    bench = convert(read_json(files[0]), Bench, origin)
    recording = (
        _acceptance(origin, bench)
        if bench.spec_decode_num_drafts
        else Recording(format="vllm bench serve, without speculation", acceptance=None, depth=0)
    )
    timed, length = _timed(origin, bench), 1 + recording.mean_accepted
    lengths = tuple((round(one.prompt), round(one.answer)) for one in timed)
    load = load_of(timed, recording.rounds, length, "`vllm bench serve`", _is_closed(bench))
    if load is None and not recording.rounds:
        raise InputError(f"{origin}: has neither acceptance nor times of requests; run it with --save-detailed")
    return msgspec.structs.replace(
        recording,
        load=load,
        lengths=() if load is None or load.arrivals or not all(map(min, lengths)) else lengths,
        sources=recording.sources | {"lengths": "of the requests"},
    )


def _is_closed(bench: Bench) -> bool | None:
    """Return whether requests follow each other, by the settings; None where those do not say."""
    rate, limit = bench.request_rate, bench.max_concurrency
    if rate is None or (limit is not None and rate != AT_ONCE):
        return None
    return limit is not None and limit < bench.completed


def _acceptance(origin: str, bench: Bench) -> Recording:
    drafts, rates = bench.spec_decode_num_drafts, bench.spec_decode_per_position_acceptance_rates
    passed = [round(rate * drafts) for rate in rates]
    falls(origin, "spec_decode_per_position_acceptance_rates", rates, "1", 1.0)
    accepted, stated = bench.spec_decode_accepted_tokens, bench.spec_decode_acceptance_length
    same(origin, "spec_decode_accepted_tokens", accepted, "the sum of rates by position times drafts", sum(passed))
    rounds_to(origin, "spec_decode_acceptance_length", stated, "1 + accepted / drafts", 1 + accepted / drafts)
    tokens = bench.spec_decode_draft_tokens
    plain, answers = 0, sum(bench.output_lens)
    if answers:
        firsts = sum(one > 0 for one in bench.output_lens)
        plain = steps_without_draft(
            origin, "the sum of output_lens", answers, firsts, drafts, accepted, firsts * len(passed)
        )
    source = "drafts during the run"
    return recording_of_survivors("vllm bench serve", origin, source, passed, drafts, tokens, stated, plain)


def _timed(origin: str, bench: Bench) -> list[Timed]:
    """Return the requests that succeeded; none where the run was saved without its single times."""
    starts, count = bench.start_times, len(bench.ttfts)
    if not count or starts is None:
        return []
    lists = (starts, bench.ttfts, bench.itls, bench.input_lens, bench.output_lens)
    if {len(one) for one in lists} != {count}:
        lengths = ", ".join(str(len(one)) for one in lists)
        raise InputError(
            f"{origin}: start_times, ttfts, itls, input_lens, output_lens have {lengths} entries; needs equally many"
        )
    roles = int(CHAT in (bench.backend, bench.endpoint_type))
    return [
        Timed(start_s, start_s + ttft_s, start_s + ttft_s + sum(gaps_s), prompt, answer, gaps_s[roles:])
        for start_s, ttft_s, gaps_s, prompt, answer, error in zip(*lists, bench.errors or [""] * count, strict=True)
        if not error and answer
    ]
