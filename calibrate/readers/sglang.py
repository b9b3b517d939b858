"""SGLang's responses with acceptance per request: `meta_info` of /generate, or of the choices of its OpenAI API.

One response, a list of them, or one a line. The OpenAI API tells it with `return_spec_tokens_details: true`.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from calibrate.readers.counts import Rounds, model_of, rounds_of, totals
from calibrate.readers.entries import entries_of, found_in, table_of
from calibrate.readers.laws import at_most, rounds_to, same
from calibrate.readers.recording import Recording
from calibrate.readers.stats import Count, Histogram, Length, Real
from fleet.errors import InputError
from fleet.inputs.strict import convert


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """What `meta_info` says of speculation; `spec_accept_length` is completion tokens over verifications."""

    spec_verify_ct: Count
    spec_num_correct_drafts: Count | None = None
    spec_num_proposed_drafts: Count | None = None
    spec_correct_drafts_histogram: Histogram | None = None
    spec_accept_histogram: Histogram | None = None  # its older name
    spec_accept_rate: Real | None = None
    spec_accept_length: Real | None = None
    prompt_tokens: Length | None = None
    completion_tokens: Length | None = None

    @property
    def histogram(self) -> list[int] | None:
        """How many verifications accepted 0, 1, ... draft tokens, by either name."""
        return self.spec_accept_histogram if self.spec_correct_drafts_histogram is None else (
            self.spec_correct_drafts_histogram
        )  # fmt: skip


def read_sglang(files: Sequence[Path]) -> Recording:
    """Read responses; those without the counts are left out.

    Raises InputError, naming file, line or entry, key and both values, where one contradicts itself.
    """
    names = ", ".join(map(str, files))
    read = [(origin, _meta(origin, table_of(entry, origin))) for origin, entry in entries_of(files)]
    told = [(origin, meta) for origin, meta in read if meta is not None]
    if not told:
        raise InputError(f"{names}: holds no meta_info with spec_verify_ct, which a server that speculates tells")
    rounds: Rounds = Counter()
    unsure, lengths = 0, 0.0
    for origin, meta in told:
        _check(origin, meta)
        own, sure = _rounds(meta)
        rounds += own
        unsure += not sure
        lengths += (meta.spec_accept_length or 0.0) * meta.spec_verify_ct
    model, depth = model_of(rounds, names)
    count, accepted = totals(rounds)
    pairs = [(meta.prompt_tokens or 0, meta.completion_tokens or 0) for _, meta in told]
    notes = []
    if len(told) < len(read):
        notes.append(f"{len(read) - len(told)} entries tell no counts of speculative decoding and are left out")
    if unsure:
        notes.append(
            f"{unsure} of {len(told)} requests do not tell the length of their drafts, or not all were as long: "
            "all are taken to be of the longest"
        )
    return Recording(
        format="SGLang's meta_info",
        acceptance=model,
        depth=depth,
        rounds=count,
        accepted=accepted,
        told=lengths / count if all(meta.spec_accept_length is not None for _, meta in told) else None,
        lengths=tuple(pairs) if all(min(pair) > 0 for pair in pairs) else (),
        sources={
            "acceptance": f"{count} verifications by spec_correct_drafts_histogram (requests: {len(told)})",
            "lengths": "prompt_tokens and completion_tokens",
        },
        notes=tuple(notes),
    )


def _meta(origin: str, content: dict[str, Any]) -> Meta | None:
    """Return the counts of a response, with the tokens of `usage` where `meta_info` has none; None without counts."""
    found = content if "spec_verify_ct" in content else None
    for keys in (("meta_info",), ("choices", 0, "meta_info")):
        found = found_in(content, *keys) if found is None else found
    if not isinstance(found, dict) or found.get("spec_verify_ct") is None:
        return None
    usage = found_in(content, "usage", "prompt_tokens"), found_in(content, "usage", "completion_tokens")
    defaults = dict(zip(("prompt_tokens", "completion_tokens"), usage, strict=True))
    given = {key: value for key, value in defaults.items() if value is not None} | found
    meta = convert(given, Meta, origin)
    if meta.histogram is None:
        raise InputError(f"{origin}: lacks spec_correct_drafts_histogram (older: spec_accept_histogram)")
    return meta


def _check(origin: str, meta: Meta) -> None:
    histogram, rounds = meta.histogram or [], meta.spec_verify_ct
    accepted = sum(j * count for j, count in enumerate(histogram))
    same(origin, "spec_verify_ct", rounds, "the sum of spec_correct_drafts_histogram", sum(histogram))
    if meta.spec_num_correct_drafts is not None:
        meaning = "the sum of j times spec_correct_drafts_histogram[j]"
        same(origin, "spec_num_correct_drafts", meta.spec_num_correct_drafts, meaning, accepted)
    proposed = meta.spec_num_proposed_drafts
    if proposed is not None:
        at_most(origin, "spec_num_correct_drafts", accepted, "spec_num_proposed_drafts", proposed)
        if proposed:
            meaning = "spec_num_correct_drafts / spec_num_proposed_drafts"
            rounds_to(origin, "spec_accept_rate", meta.spec_accept_rate, meaning, accepted / proposed)
    if meta.completion_tokens is not None and rounds:
        length, meaning = meta.completion_tokens / rounds, "completion_tokens / spec_verify_ct"
        rounds_to(origin, "spec_accept_length", meta.spec_accept_length, meaning, length)


def _rounds(meta: Meta) -> tuple[Rounds, bool]:
    """Return the rounds of a request, and whether the length of its drafts is sure."""
    histogram, proposed, rounds = meta.histogram or [], meta.spec_num_proposed_drafts, meta.spec_verify_ct
    longest = max((j for j, count in enumerate(histogram) if count), default=0)
    if not proposed or not rounds:
        return rounds_of(max(longest, len(histogram) - 1), histogram), not rounds
    depth = max(longest, -(-proposed // rounds))
    return rounds_of(depth, histogram), proposed == depth * rounds
