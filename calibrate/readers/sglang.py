"""SGLang's responses with acceptance per request: `meta_info` of /generate, or of the choices of its OpenAI API.

One response, a list of them, or one a line. The OpenAI API reports it with `return_spec_tokens_details: true`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import field
from msgspec.structs import replace

from calibrate.readers.entries import entries_of, found_in, table_of
from calibrate.readers.recording import Recording
from calibrate.readers.requests import Count, Histogram, Length, Real, RequestCounts, recording_of
from fleet.errors import InputError
from fleet.inputs.strict import convert

HISTOGRAM, OLDER = "spec_correct_drafts_histogram", "spec_accept_histogram"


class Meta(RequestCounts, frozen=True, kw_only=True):
    """What `meta_info` says of speculation."""

    rounds: Count = field(name="spec_verify_ct")
    histogram: Histogram = field(name=HISTOGRAM)
    accepted: Count | None = field(name="spec_num_correct_drafts", default=None)
    drafted: Count | None = field(name="spec_num_proposed_drafts", default=None)
    rate: Real | None = field(name="spec_accept_rate", default=None)
    answer_a_round: Real | None = field(name="spec_accept_length", default=None)
    prompt: Length | None = field(name="prompt_tokens", default=None)
    answer: Length | None = field(name="completion_tokens", default=None)


def read_sglang(files: Sequence[Path]) -> Recording:
    """Read responses; those without the counts are left out.

    Raises InputError, naming file, line or entry, key and both values, where one contradicts itself.
    """
    read = [(origin, _meta(origin, table_of(entry, origin))) for origin, entry in entries_of(files)]
    requests = [(origin, meta) for origin, meta in read if meta is not None]
    return recording_of(requests, files, "SGLang's meta_info", len(read) - len(requests))


def _meta(origin: str, content: dict[str, Any]) -> Meta | None:
    """Return the counts of a response, with the tokens of `usage` where `meta_info` has none; None without counts."""
    found = content if "spec_verify_ct" in content else None
    for keys in (("meta_info",), ("choices", 0, "meta_info")):
        found = found_in(content, *keys) if found is None else found
    if not isinstance(found, dict) or found.get("spec_verify_ct") is None:
        return None
    usage = {key: found_in(content, "usage", key) for key in ("prompt_tokens", "completion_tokens")}
    counts = {key: value for key, value in usage.items() if value is not None} | found
    if counts.get(HISTOGRAM) is None:
        if counts.get(OLDER) is None:
            raise InputError(f"{origin}: lacks {HISTOGRAM} (older: {OLDER})")
        counts[HISTOGRAM] = counts[OLDER]
    meta = convert(counts, Meta, origin)
    return replace(meta, drafted=meta.drafted or None)  # zero where the server does not count them
