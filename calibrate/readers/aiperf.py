"""AIPerf's acceptance records: profile_export.jsonl with `--export-level records`, or its JSON export's pooled counts.

A line of profile_export.jsonl holds the record under `spec_decode_acceptance`, beside the request's own metrics. The
aggregate export has one histogram of all requests, `pooled_spec_decode_acceptance_histogram`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from calibrate.readers.counts import model_of, rounds_of, totals
from calibrate.readers.entries import entries_of, found_in, table_of
from calibrate.readers.laws import rounds_to, same
from calibrate.readers.recording import Recording
from calibrate.readers.requests import Length, Real, Sparse, recording_of
from calibrate.readers.vllm import Counts
from fleet.errors import InputError
from fleet.inputs.strict import convert

LENGTHS = {"prompt": "input_sequence_length", "answer": "output_sequence_length"}  # among the request's metrics


class Record(Counts, frozen=True, kw_only=True):
    """The acceptance record of one request; counts of zero are left out of its histogram."""

    histogram: Sparse = field(name="acceptance_histogram")
    answer: Length | None = field(name="completion_tokens", default=None)


class Value(msgspec.Struct, frozen=True):
    """A metric of one request."""

    value: Real


class Total(msgspec.Struct, frozen=True):
    """A metric of the whole run."""

    avg: Annotated[float, Meta(ge=0, le=1e12)]


class Pooled(msgspec.Struct, frozen=True):
    """Acceptance in the aggregate export."""

    pooled_spec_decode_acceptance_histogram: Sparse
    total_spec_decode_steps: Total | Annotated[float, Meta(ge=0, le=1e12)] | None = None


def read_aiperf(files: Sequence[Path]) -> Recording:
    """Read records; lines without one are left out. InputError where one contradicts itself."""
    requests, skipped = [], 0
    for origin, entry in entries_of(files):
        content = table_of(entry, origin)
        if "pooled_spec_decode_acceptance_histogram" in content:
            if len(files) > 1:
                raise InputError(f"{origin}: holds all requests together; give it alone")
            return _pooled(origin, convert(content, Pooled, origin))
        counts = content if "acceptance_histogram" in content else content.get("spec_decode_acceptance")
        if counts is None:
            skipped += 1
            continue
        record = convert(counts, Record, origin)
        requests.append((origin, msgspec.structs.replace(record, **_lengths(origin, content))))
    return recording_of(requests, files, "AIPerf's acceptance records", skipped)


def _lengths(origin: str, content: dict[str, Any]) -> dict[str, int]:
    """Return the tokens of the prompt and of the answer, where the request's metrics have them."""
    found = {ours: (name, found_in(content, "metrics", name)) for ours, name in LENGTHS.items()}
    return {
        ours: round(convert(value, Value, f"{origin}: metrics.{name}").value)
        for ours, (name, value) in found.items()
        if value is not None
    }


def _pooled(origin: str, pooled: Pooled) -> Recording:
    histogram = {int(j): count for j, count in pooled.pooled_spec_decode_acceptance_histogram.items()}
    total = pooled.total_spec_decode_steps
    steps = total.avg if isinstance(total, Total) else total
    key = "pooled_spec_decode_acceptance_histogram"
    if steps is not None and not steps.is_integer():
        rounds_to(origin, "total_spec_decode_steps", steps, f"the sum of {key}", sum(histogram.values()))
    elif steps is not None:
        same(origin, "total_spec_decode_steps", int(steps), f"the sum of {key}", sum(histogram.values()))
    depth = max((j for j, count in histogram.items() if count), default=0)
    rounds = rounds_of(depth, histogram)
    model, depth = model_of(rounds, origin)
    count, accepted = totals(rounds)
    return Recording(
        format="AIPerf's pooled histogram",
        acceptance=model,
        depth=depth,
        rounds=count,
        accepted=accepted,
        sources={"acceptance": f"{count} rounds of all requests together"},
        notes=(f"the export does not say how many tokens were drafted: {depth}, the most that were accepted",),
    )
