"""`vllm bench serve --save-result`: acceptance and, with `--save-detailed`, the times of each request."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from specfleet.calibration.readers.clients import Sent, Timed, load_of, load_without_starts
from specfleet.calibration.readers.counts import recording_of_survivors, steps_without_draft
from specfleet.calibration.readers.entries import entries_of
from specfleet.calibration.readers.laws import falls, rounds_to, same
from specfleet.calibration.readers.recording import Recording
from specfleet.calibration.readers.requests import Count, Length, Real
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.strict import convert

AT_ONCE = "inf"  # the rate of requests that come as soon as the limit allows
CHAT = "openai-chat"  # the first chunk has the role alone, and comes with the first token
Share = Annotated[float, Meta(ge=0, le=1)]
Time = Annotated[float, Meta(ge=0, le=1e12)]


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that are read; a request that failed has a text in `errors`."""

    completed: Count
    duration: Time = 0.0
    backend: str = ""
    endpoint_type: str = ""
    request_rate: Annotated[float, Meta(gt=0)] | str | None = None
    max_concurrency: Annotated[int, Meta(ge=1)] | None = None
    input_lens: list[Length] = []
    output_lens: list[Length] = []
    ttfts: list[Time] = []
    itls: list[list[Time]] = []
    start_times: list[Time] | None = None  # not of versions before 2026
    errors: list[str] = []
    spec_decode_num_drafts: Count = 0
    spec_decode_draft_tokens: Count = 0
    spec_decode_accepted_tokens: Count = 0
    spec_decode_acceptance_length: Real | None = None
    spec_decode_per_position_acceptance_rates: list[Share] = []


def read_vllm_bench(files: Sequence[Path]) -> Recording:
    """Read the result of one run; InputError, naming key and values, where it contradicts itself."""
    entries = list(entries_of(files))
    if len(entries) != 1:
        raise InputError(f"{files[0]}: holds {len(entries)} runs; give a file with the line of one")
    origin, entry = entries[0]
    bench = convert(entry, Bench, origin)
    recording = (
        _acceptance(origin, bench)
        if bench.spec_decode_num_drafts
        else Recording(format="vllm bench serve, without speculation", acceptance=None, depth=0)
    )
    timed, rounds, length = _timed(origin, bench), recording.rounds, 1 + recording.mean_accepted
    if rounds and any(bench.errors):  # without those of requests that failed
        rounds = round(sum(one.answer - 1 for one in timed) / length)
    lengths = tuple((round(one.prompt), round(one.answer)) for one in timed)
    sent = Sent(bench.duration, bench.max_concurrency, bench.request_rate not in (None, AT_ONCE))
    of = timed, rounds, length, "`vllm bench serve`"
    load = load_without_starts(*of, sent) if bench.start_times is None else load_of(*of, _is_closed(bench))
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
    plain, answers, failed = 0, sum(bench.output_lens), sum(map(bool, bench.errors))
    if answers and not failed:
        firsts = sum(one > 0 for one in bench.output_lens)
        plain = steps_without_draft(
            origin, "the sum of output_lens", answers, firsts, drafts, accepted, firsts * len(passed)
        )
    source = "drafts during the run"
    made = recording_of_survivors("vllm bench serve", origin, source, passed, drafts, tokens, stated, plain)
    note = f"{failed} requests failed: their rounds count, too, and steps without a draft are not known"
    return msgspec.structs.replace(made, notes=(*made.notes, note)) if failed else made


def _timed(origin: str, bench: Bench) -> list[Timed]:
    """Return the requests that succeeded; none where the run was saved without its single times."""
    count = len(bench.ttfts)
    if not count or (bench.start_times is None and not bench.duration):
        return []
    starts = [0.0] * count if bench.start_times is None else bench.start_times
    lists = (starts, bench.ttfts, bench.itls, bench.input_lens, bench.output_lens, bench.errors or [""] * count)
    if {len(one) for one in lists} != {count}:
        lengths, names = [len(one) for one in lists], "start_times, ttfts, itls, input_lens, output_lens, errors"
        raise InputError(f"{origin}: {names} have {str(lengths)[1:-1]} entries; needs as many each")
    roles = int(CHAT in (bench.backend, bench.endpoint_type))
    return [
        Timed(start_s, start_s + ttft_s, start_s + ttft_s + sum(gaps_s), prompt, answer, gaps_s[roles:])
        for start_s, ttft_s, gaps_s, prompt, answer, error in zip(*lists, strict=True)
        if not error and answer
    ]
