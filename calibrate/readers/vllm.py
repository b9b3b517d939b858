"""vLLM's responses with acceptance per request: `--per-request-spec-decode-metrics summary` or `detailed` (from 0.28).

One response, a list of them, or one a line; of a streamed answer, the final usage chunk.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import field

from calibrate.readers.entries import entries_of, found_in, table_of
from calibrate.readers.laws import same
from calibrate.readers.recording import Recording
from calibrate.readers.requests import (
    ByLength,
    Count,
    Depth,
    Histogram,
    Length,
    Real,
    RequestCounts,
    Tokens,
    recording_of,
)
from fleet.inputs.strict import convert


class Counts(RequestCounts, frozen=True, kw_only=True):
    """What vLLM and AIPerf call a request's counts."""

    rounds: Count = field(name="num_spec_steps")
    accepted: Count = field(name="num_accepted_draft_tokens")
    drafted: Count = field(name="num_draft_tokens")
    depth: Depth | None = field(name="num_spec_tokens", default=None)
    mean_length: Real | None = field(name="mean_acceptance_length", default=None)
    rate: Real | None = field(name="draft_acceptance_rate", default=None)
    accepted_by_round: list[Tokens] | None = field(name="per_step_accepted", default=None)
    drafted_by_round: list[Tokens] | None = field(name="per_step_drafted", default=None)


class VllmCounts(Counts, frozen=True, kw_only=True):
    """`metrics.speculative_decoding` of a response; its histogram counts 0, 1, ... num_spec_tokens accepted drafts."""

    histogram: Histogram = field(name="acceptance_histogram")
    by_length: ByLength | None = field(name="acceptance_histogram_by_draft_length", default=None)


class Usage(msgspec.Struct, frozen=True):
    """Tokens of a request."""

    prompt_tokens: Length = 0
    completion_tokens: Length = 0


def read_vllm(files: Sequence[Path]) -> Recording:
    """Read responses; those without the counts (more than one answer, no speculation) are left out.

    Raises InputError, naming file, line or entry, key and both values, where one contradicts itself.
    """
    requests, skipped = [], 0
    for origin, entry in entries_of(files):
        content = table_of(entry, origin)
        counts = found_in(content, "metrics", "speculative_decoding")
        if counts is None and "acceptance_histogram" in content:  # that part alone
            counts = content
        if counts is None:
            skipped += 1
            continue
        one = convert(counts, VllmCounts, origin)
        usage = convert(content.get("usage") or {}, Usage, f"{origin}: usage")
        if one.depth is not None:
            same(origin, "len(acceptance_histogram)", len(one.histogram), "num_spec_tokens + 1", one.depth + 1)
        tokens = {"prompt": usage.prompt_tokens, "answer": usage.completion_tokens}
        requests.append((origin, msgspec.structs.replace(one, **tokens)))
    return recording_of(requests, files, "vLLM's metrics.speculative_decoding", skipped)
