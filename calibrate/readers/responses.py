"""Responses and records with acceptance per request, of vLLM, SGLang and AIPerf: a table of fields for each.

- vLLM: `metrics.speculative_decoding` of responses, by `--per-request-spec-decode-metrics` (from 0.28); of a streamed
  answer, of the final usage chunk.
- SGLang: `meta_info` of /generate, or of the choices of its OpenAI API with `return_spec_tokens_details: true`.
- AIPerf: `spec_decode_acceptance` in the lines of profile_export.jsonl (`--export-level records`), beside the request's
  own metrics.

A file is one response, a list of them, or one a line.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, field
from msgspec.structs import replace

from specfleet.calibration.readers.clients import RealLength, Seconds, Timed, asking, make_load
from specfleet.calibration.readers.entries import Fields, fields_in, found_in, read_entries, table_of
from specfleet.calibration.readers.recording import Recording
from specfleet.calibration.readers.requests import (
    ByLength,
    Count,
    Depth,
    Histogram,
    Length,
    Real,
    RequestCounts,
    Sparse,
    Tokens,
    make_recording,
)
from specfleet.fleet.inputs.strict import convert

HISTOGRAM, PROPOSED, CORRECT = "spec_correct_drafts_histogram", "spec_num_proposed_drafts", "spec_num_correct_drafts"
OLDER = {HISTOGRAM: "spec_accept_histogram", PROPOSED: "spec_draft_token_num", CORRECT: "spec_accept_token_num"}


class VllmCounts(RequestCounts, frozen=True, kw_only=True):
    """Counts as vLLM and AIPerf name them.

    vLLM's histogram counts 0, 1, ... num_spec_tokens accepted drafts, AIPerf's leaves counts of zero out.
    """

    rounds: Count = field(name="num_spec_steps")
    accepted: Count = field(name="num_accepted_draft_tokens")
    drafted: Count = field(name="num_draft_tokens")
    depth: Depth | None = field(name="num_spec_tokens", default=None)
    mean_length: Real | None = field(name="mean_acceptance_length", default=None)
    rate: Real | None = field(name="draft_acceptance_rate", default=None)
    histogram: Histogram | Sparse = field(name="acceptance_histogram")
    by_length: ByLength | None = field(name="acceptance_histogram_by_draft_length", default=None)
    accepted_by_round: list[Tokens] | None = field(name="per_step_accepted", default=None)
    drafted_by_round: list[Tokens] | None = field(name="per_step_drafted", default=None)
    answer: Length | None = field(name="completion_tokens", default=None)


class SglangCounts(RequestCounts, frozen=True, kw_only=True):
    """Counts as SGLang names them."""

    rounds: Count = field(name="spec_verify_ct")
    histogram: Histogram = field(name=HISTOGRAM)
    accepted: Count | None = field(name=CORRECT, default=None)
    drafted: Count | None = field(name=PROPOSED, default=None)
    rate: Real | None = field(name="spec_accept_rate", default=None)
    answer_a_round: Real | None = field(name="spec_accept_length", default=None)
    prompt: Length | None = field(name="prompt_tokens", default=None)
    answer: Length | None = field(name="completion_tokens", default=None)


class Format(NamedTuple):
    """Where an engine's responses have the counts of a request.

    - `name`: the format, in words.
    - `counts`: their names.
    - `mark`: a key of all counts.
    - `ways`: to the counts; a file may also hold these alone.
    - `lengths`: ways to the tokens of prompt and answer, where the counts have none.
    """

    name: str
    counts: type[RequestCounts]
    mark: str
    ways: Sequence[str]
    lengths: Mapping[str, str]


BY_SERVER = "spec_decode_acceptance.completion_tokens", "metrics.usage_completion_tokens.value"  # tokens of an answer
RECORD: Fields = {
    "start_ns": ("metadata.request_start_ns",),
    "first_ms": ("metrics.time_to_first_token.value",),
    "latency_ms": ("metrics.request_latency.value",),
    "gaps_ms": ("metrics.inter_chunk_latency.value",),
    "prompt": ("metrics.usage_prompt_tokens.value", "metrics.input_sequence_length.value"),
    "answer": (*BY_SERVER, "metrics.output_sequence_length.value"),
}
USAGE = {"prompt": "usage.prompt_tokens", "answer": "usage.completion_tokens"}
VLLM = Format(
    "vLLM's metrics.speculative_decoding", VllmCounts, "acceptance_histogram",
    ["metrics.speculative_decoding"], USAGE,
)  # fmt: skip
SGLANG = Format("SGLang's meta_info", SglangCounts, "spec_verify_ct", ["meta_info", "choices.0.meta_info"], USAGE)
AIPERF = Format(
    "AIPerf's acceptance records", VllmCounts, "acceptance_histogram", ["spec_decode_acceptance"],
    {"prompt": "metrics.usage_prompt_tokens.value", "answer": "metrics.usage_completion_tokens.value"},
)  # fmt: skip


class AiperfRecord(msgspec.Struct, frozen=True):
    """What is read of a record of AIPerf, in its units: nanoseconds, milliseconds and tokens.

    Tokens are those that the server counted, if it did, and those of the client's tokenizer. Times are missing of a
    request that failed or did not stream.
    """

    start_ns: Annotated[float, Meta(ge=0, le=1e20)] | None = None
    first_ms: Seconds | None = None
    latency_ms: Seconds | None = None
    gaps_ms: list[Seconds] = []
    prompt: RealLength = 0
    answer: RealLength = 0

    def timed(self, origin: str) -> Timed | None:
        """Return the times of the request; None without them."""
        start_ns, first_ms, latency_ms = self.start_ns, self.first_ms, self.latency_ms
        if start_ns is None or first_ms is None or latency_ms is None:
            return None
        start_s, gaps_s = start_ns * 1e-9, [gap_ms / 1000 for gap_ms in self.gaps_ms]
        ends_s = {"start_s": start_s, "first_s": start_s + first_ms * 1e-3, "end_s": start_s + latency_ms * 1e-3}
        return convert(ends_s | {"prompt": self.prompt, "answer": self.answer, "gaps_s": gaps_s}, Timed, origin)


class Number(msgspec.Struct, frozen=True):
    """A number of tokens; AIPerf writes it as a real one."""

    value: RealLength


def read_responses(format_: Format, files: Sequence[Path]) -> Recording:
    """Read responses; those without the counts (more than one answer, no speculation) are left out.

    Raises InputError, naming file, line or entry, key and both values, where one contradicts itself.
    """
    return _recording(format_, files, [(origin, table_of(entry, origin)) for origin, entry in read_entries(files)])


def _recording(format_: Format, files: Sequence[Path], entries: Sequence[tuple[str, dict[str, Any]]]) -> Recording:
    read = [(origin, _counts(format_, origin, content)) for origin, content in entries]
    requests = [(origin, request) for origin, request in read if request is not None]
    return make_recording(requests, files, format_.name, len(read) - len(requests))


def _counts(format_: Format, origin: str, content: dict[str, Any]) -> RequestCounts | None:
    """Return the counts of a response, with its lengths; None where it has no counts."""
    counted = content if format_.mark in content else found_in(content, *format_.ways)
    if counted is None or (isinstance(counted, dict) and counted.get(format_.mark) is None):
        return None
    if format_ is SGLANG and isinstance(counted, dict):  # of an older server, or of one that counts no proposed drafts
        counted = counted | {name: counted.get(name) or counted.get(older) or None for name, older in OLDER.items()}
    request = convert(counted, format_.counts, origin)
    lengths = {name: found_in(content, way) for name, way in format_.lengths.items() if getattr(request, name) is None}
    tokens = {
        name: round(convert({"value": value}, Number, f"{origin}: {format_.lengths[name]}").value)
        for name, value in lengths.items()
        if value is not None
    }
    return replace(request, **tokens)


read_vllm, read_sglang = partial(read_responses, VLLM), partial(read_responses, SGLANG)


def read_aiperf(files: Sequence[Path], in_flight: int | None = None) -> Recording:
    """Read records; requests to warm up are left out.

    - `in_flight`: requests that the client kept in flight, 0 if they arrived by themselves.

    Records of a server that does not speculate have a load only.
    """
    entries = []
    for origin, entry in read_entries(files):
        if found_in(table_of(entry, origin), "metadata.benchmark_phase") != "warmup":
            entries.append((origin, entry))
    records = [convert(fields_in(entry, RECORD), AiperfRecord, origin) for origin, entry in entries]
    timed = [record.timed(origin) for (origin, _), record in zip(entries, records, strict=True)]
    streamed = [request for request in timed if request is not None]
    recording = Recording(source="AIPerf's records")
    has_counts = [AIPERF.mark in entry or found_in(entry, *AIPERF.ways) for _, entry in entries]
    if any(has_counts) or not streamed:
        recording = _recording(AIPERF, files, entries)
    counts = recording.counts
    rounds, length = (counts.rounds, counts.mean_length) if counts else (0, 1.0)
    load = make_load(streamed, rounds, length, "AIPerf", in_flight)
    load = asking(load, ", ".join(map(str, files)))
    if not any(has_counts):
        return replace(recording, load=load)
    counted = list(compress(records, has_counts))
    lengths = [(round(record.prompt), round(record.answer)) for record in counted]
    by_client = sum(found_in(entry, *BY_SERVER) is None for _, entry in compress(entries, has_counts))
    note = (
        f"{by_client} answers have no completion_tokens of the server: their lengths are by the client's tokenizer, "
        "and steps without a draft, if there were any, are not known"
    )
    is_known = all(map(min, lengths)) and not (load and load.arrivals)
    return replace(recording, load=load, lengths=tuple(lengths) if is_known else (), notes=(note,) if by_client else ())
