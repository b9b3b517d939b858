"""vLLM's responses with acceptance per request: `--per-request-spec-decode-metrics summary` or `detailed` (from 0.28).

One response, a list of them, or one a line; of a streamed answer, the final usage chunk.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from calibrate.readers.entries import entries_of, found_in, table_of
from calibrate.readers.laws import same
from calibrate.readers.recording import Recording
from calibrate.readers.stats import MOST, Histogram, Length, Request, Stats, recording_of
from fleet.inputs.strict import convert

DraftLength = Annotated[str, Meta(pattern="^[0-9]{1,4}$")]  # as a key of JSON


class VllmStats(Stats, frozen=True, kw_only=True):
    """`metrics.speculative_decoding` of a response; its histogram counts 0, 1, ... num_spec_tokens accepted drafts."""

    acceptance_histogram: Histogram
    acceptance_histogram_by_draft_length: Annotated[dict[DraftLength, Histogram], Meta(max_length=MOST)] | None = None


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
        given = found_in(content, "metrics", "speculative_decoding")
        if given is None and "acceptance_histogram" in content:  # that part alone
            given = content
        if given is None:
            skipped += 1
        else:
            requests.append(_request(origin, convert(given, VllmStats, origin), content.get("usage")))
    return recording_of(requests, ", ".join(map(str, files)), "vLLM's metrics.speculative_decoding", skipped)


def _request(origin: str, stats: VllmStats, given: object) -> Request:
    usage = None if given is None else convert(given, Usage, f"{origin}: usage")
    if stats.num_spec_tokens is not None:
        length = len(stats.acceptance_histogram)
        same(origin, "len(acceptance_histogram)", length, "num_spec_tokens + 1", stats.num_spec_tokens + 1)
    by_length = stats.acceptance_histogram_by_draft_length
    return Request(
        origin,
        stats,
        dict(enumerate(stats.acceptance_histogram)),
        None if by_length is None else {int(length): counts for length, counts in by_length.items()},
        None if usage is None else (usage.prompt_tokens, usage.completion_tokens),
    )
