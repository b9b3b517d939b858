"""vLLM's Prometheus text (/metrics): counters of speculative decoding, since the start or between two scrapes."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from calibrate.readers.counts import model_of, rounds_of, totals
from calibrate.readers.laws import at_most, falls, same
from calibrate.readers.recording import Recording
from calibrate.readers.requests import MOST
from fleet.errors import InputError
from fleet.inputs.text import read_lines, shortened

PREFIX = "vllm:spec_decode_num_"
SAMPLE = re.compile(r"vllm:spec_decode_num_(\w+?)(?:_total)?(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
MOST_COUNTED = 2**53  # a counter is a float, which knows no larger whole numbers


class VllmCounters(NamedTuple):
    """Rounds, drafted and accepted tokens, and how many drafts were accepted at each place, over all engines."""

    drafts: int
    draft_tokens: int
    accepted_tokens: int
    accepted_per_pos: tuple[int, ...]
    model: str


def read_vllm_metrics(files: Sequence[Path]) -> Recording:
    """Read one scrape, with counts since the server's start, or two, with counts between them.

    Raises InputError, naming file, metric and both values, where counters are missing, contradict each other, or fall.
    """
    if len(files) > 2:
        raise InputError(f"{files[2]}: a third file; give one scrape, or the one before and the one after")
    scrapes = [_read(path) for path in files]
    for path, scrape in zip(files, scrapes, strict=True):
        _check(str(path), scrape)
    names = ", ".join(map(str, files))
    counted = scrapes[0] if len(files) == 1 else _between(files[1], *scrapes)
    _check(names, counted)
    survivors = (counted.drafts, *counted.accepted_per_pos)
    depth = len(counted.accepted_per_pos)
    rounds = rounds_of(depth, [here - after for here, after in zip(survivors, (*survivors[1:], 0), strict=True)])
    model, depth = model_of(rounds, names)
    count, accepted = totals(rounds)
    notes = []
    if counted.draft_tokens < count * depth:
        notes.append(
            f"{count} drafts had {counted.draft_tokens} tokens, and not {depth} each: shares are of all drafts, so "
            "later places come out lower than full drafts would have them"
        )
    since = "since the server's start" if len(files) == 1 else "between the two scrapes"
    return Recording(
        format="vLLM's Prometheus metrics",
        acceptance=model,
        depth=depth,
        rounds=count,
        accepted=accepted,
        stated=1 + counted.accepted_tokens / counted.drafts,
        sources={"acceptance": f"{count} drafts of {counted.model or 'the model'} {since}"},
        notes=tuple(notes),
    )


def _read(path: Path) -> VllmCounters:
    """Add up the engines' counters of one scrape."""
    sums: dict[tuple[str, int], int] = {}
    read: set[tuple[str, str]] = set()
    models = set()
    for origin, name, labels, value in _samples(path):
        if (name, labels) in read:
            raise InputError(f"{origin}: {PREFIX}{name}{{{shortened(labels, quoted=False)}}} stands there twice")
        read.add((name, labels))
        named = dict(LABEL.findall(labels))
        models.add(named.get("model_name", ""))
        position = _position(origin, named) if name == "accepted_tokens_per_pos" else -1
        sums[name, position] = sums.get((name, position), 0) + value
    if len(models) > 1:
        raise InputError(f"{path}: counts the models {', '.join(sorted(models))}; give a scrape of one")
    missing = [name for name in ("drafts", "draft_tokens", "accepted_tokens") if (name, -1) not in sums]
    places = sorted(position for name, position in sums if name == "accepted_tokens_per_pos")
    if missing or places != list(range(len(places))) or not places:
        lacking = f"{missing[0]}_total" if missing else "accepted_tokens_per_pos_total of each position"
        raise InputError(f"{path}: lacks {PREFIX}{lacking}, which a server with speculative decoding tells")
    per_pos = tuple(sums["accepted_tokens_per_pos", place] for place in places)
    return VllmCounters(
        sums["drafts", -1], sums["draft_tokens", -1], sums["accepted_tokens", -1], per_pos, models.pop()
    )


def _samples(path: Path) -> Iterator[tuple[str, str, str, int]]:
    """Yield origin, short name, labels and value of each counter of speculative decoding."""
    for number, line in read_lines(path):
        if not line.lstrip().startswith(PREFIX):
            continue
        origin, sample = f"{path}, line {number}", SAMPLE.fullmatch(line.strip())
        if sample is None:
            raise InputError(f"{origin}: {shortened(line.strip())} is no sample of Prometheus text")
        name, labels, text = sample[1], sample[2] or "", sample[3]
        if name.endswith("_created"):  # when the counter began
            continue
        try:
            value = float(text)
        except ValueError as error:
            raise InputError(f"{origin}: {PREFIX}{name} = {shortened(text)}; needs a number") from error
        if not 0 <= value <= MOST_COUNTED or not value.is_integer():
            raise InputError(f"{origin}: {PREFIX}{name} = {text}; allowed: whole numbers from 0")
        yield origin, name, labels, int(value)


def _position(origin: str, labels: dict[str, str]) -> int:
    text = labels.get("position", "")
    if not re.fullmatch(r"[0-9]{1,4}", text, re.ASCII) or int(text) >= MOST:
        raise InputError(f'{origin}: position="{shortened(text, quoted=False)}"; allowed: 0 to {MOST - 1}')
    return int(text)


def _check(origin: str, counters: VllmCounters) -> None:
    drafts, draft_tokens, accepted, per_pos, _ = counters
    falls(origin, f"{PREFIX}accepted_tokens_per_pos of position", per_pos, f"{PREFIX}drafts", drafts)
    same(origin, f"{PREFIX}accepted_tokens", accepted, "the sum over its positions", sum(per_pos))
    at_most(origin, f"{PREFIX}accepted_tokens", accepted, f"{PREFIX}draft_tokens", draft_tokens)
    at_most(origin, f"{PREFIX}draft_tokens", draft_tokens, f"{PREFIX}drafts times its positions", drafts * len(per_pos))


def _between(second: Path, before: VllmCounters, after: VllmCounters) -> VllmCounters:
    """Return what was counted between two scrapes; InputError where a counter fell, as after a restart."""
    if (before.model, len(before.accepted_per_pos)) != (after.model, len(after.accepted_per_pos)):
        counted = f"{after.model!r} with {len(after.accepted_per_pos)} positions"
        raise InputError(
            f"{second}: counts {counted}; the scrape before it {before.model!r} with {len(before.accepted_per_pos)}"
        )
    pairs = [
        *zip(("drafts", "draft_tokens", "accepted_tokens"), before[:3], after[:3], strict=True),
        *(
            (f"accepted_tokens_per_pos of position {place}", *pair)
            for place, pair in enumerate(zip(before.accepted_per_pos, after.accepted_per_pos, strict=True))
        ),
    ]
    for name, one, other in pairs:
        if other < one:
            raise InputError(f"{second}: {PREFIX}{name} = {other} is below the scrape before it, {one}: a restart?")
    drafts, draft_tokens, accepted, *per_pos = [other - one for _, one, other in pairs]
    return VllmCounters(drafts, draft_tokens, accepted, tuple(per_pos), after.model)
