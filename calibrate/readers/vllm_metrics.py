"""vLLM's Prometheus text (/metrics): acceptance and load, since the start or between two scrapes."""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from calibrate.readers.counts import recording_of_survivors
from calibrate.readers.laws import at_most, falls, same
from calibrate.readers.prometheus import Sample, Sums, add_up, between, number_of, samples
from calibrate.readers.recording import Recording
from calibrate.readers.requests import MOST
from calibrate.readers.vllm_load import TOKENS, read_load
from fleet.errors import InputError
from fleet.inputs.text import shortened

PREFIX = "vllm:spec_decode_num_"
DRAFTS, DRAFT_TOKENS, ACCEPTED = (f"{PREFIX}{name}" for name in ("drafts", "draft_tokens", "accepted_tokens"))
PASSED = f"{PREFIX}accepted_tokens_per_pos"
MOST_COUNTED = 2**53  # a counter is a float, which knows no larger whole numbers


def read_vllm_metrics(files: Sequence[Path], seconds: float | None = None) -> Recording:
    """Read one scrape, with counts since the server's start, or two, with counts between them.

    - `seconds`: time between two scrapes; else by their samples' times, or by the files'.

    A server without these counters does not speculate: its scrapes have a load only. Raises InputError, naming file,
    metric and both values, where counters are missing, contradict each other, or fall.
    """
    if len(files) > 2:
        raise InputError(f"{files[2]}: a third file; give one scrape, or the one before and the one after")
    scrapes = [list(samples(path, "vllm:")) for path in files]
    model = _model(files, scrapes)
    recording = Recording(format="vLLM's Prometheus metrics, without speculation", acceptance=None, depth=0)
    if any(one.name.startswith(PREFIX) for scrape in scrapes for one in scrape):
        recording = _acceptance(files, scrapes, model)
    load = read_load(files, scrapes, recording.rounds, 1 + recording.mean_accepted, seconds)
    if recording.acceptance is None and load is None:
        lacks = f"{DRAFTS}_total, which a server with speculative decoding tells, and a load"
        raise InputError(f"{', '.join(map(str, files))}: lacks {lacks}")
    return msgspec.structs.replace(recording, load=load)


def _model(files: Sequence[Path], scrapes: Sequence[Sequence[Sample]]) -> str:
    """Return the name of the model that is counted; InputError where there are several."""
    models = set()
    for path, scrape in zip(files, scrapes, strict=True):
        models |= {one.labels.get("model_name", "") for one in scrape if one.name.startswith((PREFIX, TOKENS))}
        if len(models) > 1:
            raise InputError(f"{path}: counts the models {', '.join(sorted(models))}; give a scrape of one")
    return models.pop() if models else ""


def _acceptance(files: Sequence[Path], scrapes: Sequence[Sequence[Sample]], model: str) -> Recording:
    each = [_counters(path, scrape) for path, scrape in zip(files, scrapes, strict=True)]
    origin, counted, since = str(files[-1]), each[-1], "since the server's start"
    if len(each) == 2:
        before, after = each
        if before.keys() != after.keys():
            after_it, before_it = (len(counters) - 3 for counters in (after, before))
            raise InputError(f"{origin}: counts {after_it} positions; the scrape before it {before_it}")
        counted = between(before, after, frozenset(), origin)
        origin, since = ", ".join(map(str, files)), "between the two scrapes"
    drafts, draft_tokens, accepted, *passed = _checked(origin, counted)
    return recording_of_survivors(
        "vLLM's Prometheus metrics", origin, f"drafts of {model or 'the model'} {since}", passed, drafts, draft_tokens,
        1 + accepted / max(drafts, 1),
    )  # fmt: skip


def _counters(path: Path, scrape: Sequence[Sample]) -> Sums:
    """Return the counters of acceptance: drafts, their tokens, accepted tokens, and those of each position."""
    counters = [one for one in scrape if one.name.startswith(PREFIX)]
    for one in counters:
        value = number_of(one)
        if value > MOST_COUNTED or not value.is_integer():
            raise InputError(f"{one.origin}: {one.name} = {one.value}; allowed: whole numbers from 0")
        position = one.labels.get("position", "")
        is_place = re.fullmatch(r"[0-9]{1,4}", position, re.ASCII) and int(position) < MOST
        if one.name.startswith(PASSED) and not is_place:
            raise InputError(f'{one.origin}: position="{shortened(position, quoted=False)}"; allowed: 0 to {MOST - 1}')
    sums = add_up(counters)
    positions = max(sum(name.startswith(PASSED) for name in sums), 1)
    names = (DRAFTS, DRAFT_TOKENS, ACCEPTED, *(f"{PASSED} of position {place}" for place in range(positions)))
    if missing := [name for name in names if name not in sums]:
        metric, _, position = missing[0].partition(" of ")
        lacking = f"{metric}_total" + " of each position" * bool(position)
        raise InputError(f"{path}: lacks {lacking}, which a server with speculative decoding tells")
    counted = {name: sums[name] for name in names}
    _checked(str(path), counted)
    return counted


def _checked(origin: str, counters: Sums) -> list[int]:
    """Return the counts; InputError where they contradict each other."""
    drafts, draft_tokens, accepted, *passed = counts = list(map(int, counters.values()))
    falls(origin, f"{PASSED} of position", passed, DRAFTS, drafts)
    same(origin, ACCEPTED, accepted, "the sum over its positions", sum(passed))
    at_most(origin, ACCEPTED, accepted, DRAFT_TOKENS, draft_tokens)
    at_most(origin, DRAFT_TOKENS, draft_tokens, f"{DRAFTS} times its positions", drafts * len(passed))
    return counts
