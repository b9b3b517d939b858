"""Acceptance by place: the result of a draft begun at each place of recorded texts, for any depth and schedule.

A recording is a Parquet file with the columns of SCHEMA, one row for each place. Other depths, batch rules and
policies start their drafts at other places of the same text and look the result up there; see `ByPlace`.
"""

import io
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Meta

from specfleet.fleet.errors import InputError
from specfleet.fleet.files import write_file
from specfleet.fleet.inputs.parquet import read_table
from specfleet.fleet.inputs.text import reason

Text = tuple[int, ...]  # accepted draft tokens at place 1, 2, ...


class PlaceRow(NamedTuple):
    """One row of a file of places: a place of a recorded text, and the result of a draft that begins there.

    Keys:
        text (number): Number of the recorded text; texts are numbered in the order of the requests that decode them.
        place (tokens): Committed tokens of the answer when the draft begins: 1 right after the prefill, which gives
            the first token. A text has all places from 1 to its last.
        accepted (tokens): Accepted draft tokens, from 0 to the depth of the recording.
    """

    text: int
    place: int
    accepted: int


SCHEMA = pa.schema([(name, pa.int64()) for name in PlaceRow.__annotations__])


class ByPlace(msgspec.Struct, frozen=True, tag="by-place", tag_field="model", forbid_unknown_fields=True):
    """Recorded texts, and the result of a draft begun at each place.

    After a round that commits k tokens the next draft begins k places further. Depth, batch rule and length rule can
    therefore change over real text. Request i decodes text i modulo the number of texts. An answer longer than its
    text continues with other texts, chosen at random.

    Keys:
        file: A file of places (Parquet; records.md has its columns), found relative to the scenario's folder.
        depth (tokens): The recorded depth. An entry equal to it means "at least as many"; deeper drafts are refused.
    """

    file: str
    depth: Annotated[int, Meta(ge=1, le=4096)]


def walk(text: Sequence[int], depth: int) -> Iterator[int]:
    """Yield the accepted draft tokens of each round of one text at a depth."""
    place = 0
    while place < len(text):
        accepted = min(text[place], depth)
        yield accepted
        place += accepted + 1


def reached(model: ByPlace, depth: int) -> np.ndarray:
    """Return P(l >= j) for j = 1 .. depth over all rounds of all texts; shape (depth,).

    Raises InputError as `read_places`.
    """
    return np.array(_reached(*as_it_is(Path(model.file)), model.depth, depth), dtype=np.float64)


@lru_cache(maxsize=64)
def _reached(path: Path, state: tuple[int, int, int], recorded: int, depth: int) -> tuple[float, ...]:
    lengths = np.array([k for text in _read(path, state, recorded) for k in walk(text, depth)])
    return tuple(float(np.mean(lengths >= j)) for j in range(1, depth + 1))


class PlaceSampler:
    """Looks up the acceptance lengths of a run's sessions; only the continuation after a text's end is random.

    A request's lengths do not depend on the order of calls.
    """

    def __init__(self, model: ByPlace, rng: np.random.Generator) -> None:
        self.texts = read_places(model)
        self.root = int(rng.integers(1 << 62))
        self._playing: dict[int, _Playing] = {}  # by tag

    def begin_session(self, tag: int, first: int, request: int) -> None:
        """Start request `request`, whose prompt has `first` tokens; it replaces an earlier session with this tag."""
        self._playing[tag] = _Playing(first, self.texts[request % len(self.texts)], self._further(request))

    def draw(self, tag: int, drafted: int, base: int) -> int:
        """Return the acceptance length of a round that drafted `drafted` tokens after `base` committed ones."""
        playing = self._playing[tag]
        place = base - playing.first - 1
        while place >= len(playing.accepted):  # the text is too short
            playing = playing._replace(accepted=(*playing.accepted, *self.texts[next(playing.further)]))
            self._playing[tag] = playing
        return min(playing.accepted[place], drafted)

    def _further(self, request: int) -> Iterator[int]:
        """Yield the numbers of the texts that continue a request's own."""
        rng = np.random.default_rng([self.root, request])
        while True:
            yield int(rng.integers(len(self.texts)))


class _Playing(NamedTuple):
    """A session's text: prompt length, accepted tokens by place, and the texts that continue it."""

    first: int
    accepted: Text
    further: Iterator[int]


def read_places(model: ByPlace) -> tuple[Text, ...]:
    """Read the texts of a model in the order of their numbers; cached until the file changes.

    Raises InputError, with the file's name, if it is missing, lacks a column or a place, or contains impossible
    values.
    """
    return _read(*as_it_is(Path(model.file)), model.depth)


def as_it_is(path: Path) -> tuple[Path, tuple[int, int, int]]:
    """Return a file and what changes with its content; InputError if it cannot be read."""
    try:
        stat = path.stat()
    except (OSError, ValueError) as error:
        raise InputError(f"acceptance.file {path}: cannot be read ({reason(error)})") from error
    return path.absolute(), (stat.st_ino, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=4)
def _read(path: Path, _state: tuple[int, int, int], depth: int) -> tuple[Text, ...]:
    what = "acceptance.file"
    table = read_table(path, SCHEMA, what)
    if not len(table):
        raise InputError(f"{what} {path}: needs rows; has none")
    text, place, accepted = (table.column(name).to_numpy() for name in SCHEMA.names)
    for wrong in np.flatnonzero((accepted < 0) | (accepted > depth)):
        raise InputError(
            f"{what} {path}: text {text[wrong]}, place {place[wrong]}: accepted = {accepted[wrong]}; allowed: 0 to "
            f"acceptance.depth = {depth}"
        )
    order = np.lexsort((place, text))
    text, place, accepted = text[order], place[order], accepted[order]
    starts = np.flatnonzero(np.concatenate([[True], text[1:] != text[:-1]]))
    expected = np.arange(len(text)) - np.repeat(starts, np.diff(starts, append=len(text))) + 1
    for wrong in np.flatnonzero(place != expected):
        raise InputError(
            f"{what} {path}: text {text[wrong]} has place {place[wrong]} where place {expected[wrong]} follows; needs "
            "a row for each place from 1"
        )

    return tuple(tuple(part.tolist()) for part in np.split(accepted, starts[1:]))


def write_places(texts: Sequence[Sequence[int]], path: Path) -> None:
    """Write the accepted draft tokens at places 1, 2, ... of each text."""
    columns = {
        "text": [number for number, text in enumerate(texts) for _ in text],
        "place": [place for text in texts for place in range(1, len(text) + 1)],
        "accepted": [k for text in texts for k in text],
    }
    content = io.BytesIO()
    table = pa.table({name: pa.array(column, pa.int64()) for name, column in columns.items()})
    pq.write_table(table, content, write_page_checksum=True)
    write_file(path, content.getvalue())
