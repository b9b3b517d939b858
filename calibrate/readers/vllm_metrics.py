"""vLLM's Prometheus text (/metrics): acceptance and load, since the start or between two scrapes."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from calibrate.readers.counts import model_of, rounds_of, totals
from calibrate.readers.laws import at_most, falls, same
from calibrate.readers.prometheus import LABEL, Sample, number_of, samples
from calibrate.readers.recording import Recording
from calibrate.readers.requests import MOST
from calibrate.readers.vllm_load import read_load
from fleet.errors import InputError
from fleet.inputs.text import shortened

PREFIX = "vllm:spec_decode_num_"
MOST_COUNTED = 2**53  # a counter is a float, which knows no larger whole numbers
TOTALS, PER_POSITION = ("drafts", "draft_tokens", "accepted_tokens"), "accepted_tokens_per_pos"


class VllmCounters(NamedTuple):
    """Counts over all engines by name: TOTALS, then how many drafts were accepted at each place."""

    model: str
    counts: dict[str, int]


def read_vllm_metrics(files: Sequence[Path], seconds: float | None = None) -> Recording:
    """Read one scrape, with counts since the server's start, or two, with counts between them.

    - `seconds`: time between two scrapes; else by their samples' times, or by the files'.

    A server without these counters does not speculate: its scrapes have a load only. Raises InputError, naming file,
    metric and both values, where counters are missing, contradict each other, or fall.
    """
    if len(files) > 2:
        raise InputError(f"{files[2]}: a third file; give one scrape, or the one before and the one after")
    read = [list(samples(path, "vllm:")) for path in files]
    names = ", ".join(map(str, files))
    recording = None
    if any(one.name.startswith(PREFIX) for each in read for one in each):
        recording = _acceptance(files, names, [_read(path, each) for path, each in zip(files, read, strict=True)])
    tokens_per_round = 1 + recording.mean_accepted if recording else 1.0
    load = read_load(files, read, recording.rounds if recording else 0, tokens_per_round, seconds)
    if recording is None:
        if load is None:
            lacks = f"{PREFIX}drafts_total, which a server with speculative decoding tells, and a load"
            raise InputError(f"{names}: lacks {lacks}")
        recording = Recording(format="vLLM's Prometheus metrics, without speculation", acceptance=None, depth=0)
    return msgspec.structs.replace(recording, load=load)


def _acceptance(files: Sequence[Path], names: str, scrapes: "list[VllmCounters]") -> Recording:
    for path, scrape in zip(files, scrapes, strict=True):
        _check(str(path), scrape)
    counted = scrapes[0] if len(files) == 1 else _between(files[1], *scrapes)
    _check(names, counted)
    drafts, draft_tokens, accepted_tokens, *per_pos = counted.counts.values()
    survivors, depth = (drafts, *per_pos), len(per_pos)
    rounds = rounds_of(depth, [here - after for here, after in zip(survivors, (*survivors[1:], 0), strict=True)])
    model, depth = model_of(rounds, names)
    count, accepted = totals(rounds)
    notes = []
    if draft_tokens < count * depth:
        notes.append(
            f"{count} drafts had {draft_tokens} tokens, and not {depth} each: shares are of all drafts, so "
            "later places come out lower than full drafts would have them"
        )
    since = "since the server's start" if len(files) == 1 else "between the two scrapes"
    return Recording(
        format="vLLM's Prometheus metrics",
        acceptance=model,
        depth=depth,
        rounds=count,
        accepted=accepted,
        stated=1 + accepted_tokens / drafts,
        sources={"acceptance": f"{count} drafts of {counted.model or 'the model'} {since}"},
        notes=tuple(notes),
    )


def _read(path: Path, scrape: Iterable[Sample]) -> VllmCounters:
    """Add up the engines' counters of one scrape."""
    sums: dict[str, int] = {}
    models = set()
    for sample in scrape:
        if not sample.name.startswith(PREFIX):
            continue
        value = number_of(sample)
        if value > MOST_COUNTED or not value.is_integer():
            raise InputError(f"{sample.origin}: {sample.name} = {sample.value}; allowed: whole numbers from 0")
        named = dict(LABEL.findall(sample.labels))
        models.add(named.get("model_name", ""))
        name = sample.name.removeprefix(PREFIX).removesuffix("_total")
        key = _at(_position(sample.origin, named)) if name == PER_POSITION else name
        sums[key] = sums.get(key, 0) + int(value)
    if len(models) > 1:
        raise InputError(f"{path}: counts the models {', '.join(sorted(models))}; give a scrape of one")
    positions = sum(name.startswith(PER_POSITION) for name in sums)
    names = (*TOTALS, *map(_at, range(max(positions, 1))))
    missing = [name for name in names if name not in sums]
    if missing:
        lacking = f"{missing[0]}_total" if missing[0] in TOTALS else f"{PER_POSITION}_total of each position"
        raise InputError(f"{path}: lacks {PREFIX}{lacking}, which a server with speculative decoding tells")
    return VllmCounters(models.pop(), {name: sums[name] for name in names})


def _at(position: int) -> str:
    return f"{PER_POSITION} of position {position}"


def _position(origin: str, labels: dict[str, str]) -> int:
    text = labels.get("position", "")
    if not re.fullmatch(r"[0-9]{1,4}", text, re.ASCII) or int(text) >= MOST:
        raise InputError(f'{origin}: position="{shortened(text, quoted=False)}"; allowed: 0 to {MOST - 1}')
    return int(text)


def _check(origin: str, counters: VllmCounters) -> None:
    drafts, draft_tokens, accepted, *per_pos = counters.counts.values()
    falls(origin, f"{PREFIX}accepted_tokens_per_pos of position", per_pos, f"{PREFIX}drafts", drafts)
    same(origin, f"{PREFIX}accepted_tokens", accepted, "the sum over its positions", sum(per_pos))
    at_most(origin, f"{PREFIX}accepted_tokens", accepted, f"{PREFIX}draft_tokens", draft_tokens)
    at_most(origin, f"{PREFIX}draft_tokens", draft_tokens, f"{PREFIX}drafts times its positions", drafts * len(per_pos))


def _between(second: Path, before: VllmCounters, after: VllmCounters) -> VllmCounters:
    """Return what was counted between two scrapes; InputError where a counter fell, as after a restart."""
    (model, counts), (earlier, before_counts) = after, before
    if (earlier, before_counts.keys()) != (model, counts.keys()):
        counted, before_it = (f"{name!r} with {len(each) - len(TOTALS)}" for name, each in (after, before))
        raise InputError(f"{second}: counts {counted} positions; the scrape before it {before_it}")
    for name, count in counts.items():
        if count < before_counts[name]:
            raise InputError(
                f"{second}: {PREFIX}{name} = {count} is below the scrape before it, {before_counts[name]}: a restart?"
            )
    return VllmCounters(model, {name: count - before_counts[name] for name, count in counts.items()})
