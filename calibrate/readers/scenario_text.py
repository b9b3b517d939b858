"""The text of a scenario that was made of another engine's records: what each number comes from stands in it."""

import textwrap
from collections.abc import Iterator, Sequence

import msgspec

from calibrate.readers.recording import Recording
from fleet.chance.places import ByPlace
from fleet.inputs.text import shortened
from fleet.scenario.scenario import Workload
from fleet.scenario.writing import changed, tag_of, toml
from fleet.times.profile import HardwareProfile

WIDTH = 110


def recorded_lines(
    name: str,
    kind: str,
    read: Sequence[str],
    recording: Recording,
    depth: int,
    profile: HardwareProfile | str,
    times: str,
    places: str,
    lengths: str,
) -> Iterator[str]:
    """Yield the lines of the scenario's file.

    `read`: names of the files that were read. `times`: where the step times come from, empty for nowhere. `places` and
    `lengths`: names of the files beside it, empty where there is none.
    """
    for text in _head(kind, read, recording, times, lengths):
        printable = "".join(character if character.isprintable() else "?" for character in text)
        yield from textwrap.wrap(printable, WIDTH, initial_indent="# ", subsequent_indent="#   ")
    yield f"name = {toml(name.encode('ascii', 'replace').decode())}"
    yield "seed = 0"
    if isinstance(profile, str):
        yield f"profile = {toml(profile)}" if profile else '# profile = "rtx-4090"'
    else:
        yield from ("", "[profile]", *(f"{key} = {toml(value)}" for key, value in _plain(profile).items()))
    yield from ("", "[drafters]", "count = 1", f"depth = {depth}")
    if recording.drafts != "model":
        yield f"kind = {toml(recording.drafts)}"
    yield from ("", "[verifiers]", "count = 1")
    model = recording.acceptance
    if isinstance(model, ByPlace):
        model = msgspec.structs.replace(model, file=places)
    field, tag = tag_of(type(model))
    yield from ("", "[acceptance]", f"{field} = {toml(tag)}")
    yield from (f"{key} = {toml(value)}" for key, value in changed(model).items())
    yield from ("", "[workload]")
    yield from _workload(recording, lengths)


def _head(kind: str, read: Sequence[str], recording: Recording, times: str, lengths: str) -> Iterator[str]:
    """Yield what there is to say of where the numbers come from."""
    told = "says nothing of it" if recording.told is None else f"says {recording.told:.4g}"
    mean = recording.mean_accepted
    yield f"Written by `specfleet import {kind}`: {recording.format}, from {', '.join(map(shortened, read))}."
    yield f"Acceptance: {recording.sources['acceptance']}, recorded at depth {_recorded(recording)}."
    at = f" at depth {recording.depth}" if recording.texts else ""
    yield f"Mean acceptance length{at}: {mean + 1:.4f} with the bonus token, {mean:.4f} without; the file {told}."
    if lengths:
        yield f"Lengths: {recording.sources['lengths']}."
    yield f"Step times: {times}." if times else "Step times: none yet. Name a profile below."
    yield from (f"Note: {note}." for note in recording.notes)


def _recorded(recording: Recording) -> int:
    model = recording.acceptance
    return model.depth if isinstance(model, ByPlace) else recording.depth


def _plain(profile: HardwareProfile) -> dict[str, object]:
    return {key: value for key, value in changed(profile).items() if value is not None}


def _workload(recording: Recording, lengths: str) -> Iterator[str]:
    if lengths:
        yield f"requests = {len(recording.lengths)}"
        yield f"lengths = {toml(lengths)}"
        return
    default = Workload()
    yield f"requests = {default.requests}  # assumed"
    yield f"prompt_tokens = {default.prompt_tokens}  # assumed"
    if recording.answer_tokens:
        yield f"new_tokens = {recording.answer_tokens}  # the mean of the recorded answers"
    else:
        yield f"new_tokens = {default.new_tokens}  # assumed"
