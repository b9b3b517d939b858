"""Tables of numpy columns and of words, the input of metrics; they come from Arrow and go back without copies.

pyarrow's own conversions (`pa.array`, `to_numpy`) import pandas if it is installed, which takes longer than a small
simulation.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

DTYPES = {pa.float64(): np.dtype(np.float64), pa.int64(): np.dtype(np.int64)}
Bools = NDArray[np.bool_]
Integers = NDArray[np.signedinteger[Any]]


def array_of(values: Sequence[Any] | NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return an Arrow array of 64-bit numbers, booleans, words, or lists of 64-bit numbers."""
    if pa.types.is_string(kind):
        words = list(dict.fromkeys(values))
        place = {word: number for number, word in enumerate(words)}
        codes = np.fromiter(map(place.__getitem__, values), dtype=np.int64, count=len(values))
        return spelled(codes, words)
    if pa.types.is_list(kind):
        ends = np.cumsum([0, *map(len, values)], dtype=np.int32)
        inner = array_of([number for row in values for number in row], kind.value_type)
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(ends)], children=[inner])
    if pa.types.is_boolean(kind):
        bits = np.packbits(np.asarray(values, dtype=bool), bitorder="little")
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(bits)])
    numbers = np.ascontiguousarray(values, dtype=DTYPES[kind])
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(numbers)])


def numbers_of(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column of 64-bit numbers or booleans without nulls; one chunk is not copied."""
    chunks = [_numbers(chunk) for chunk in column.chunks]
    if len(chunks) == 1:
        return chunks[0]
    return np.concatenate([np.empty(0, dtype=bool if column.type == pa.bool_() else DTYPES[column.type]), *chunks])


def _numbers(array: pa.Array) -> NDArray[Any]:
    if array.type == pa.bool_():
        return np.from_dlpack(array.cast(pa.uint8())).astype(bool)
    return np.from_dlpack(array)


def spelled(numbers: Integers, names: Sequence[str]) -> pa.Array:
    """Return an Arrow array of words from their places among `names`."""
    encoded = [name.encode() for name in names]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(names), buffers).take(array_of(numbers, pa.int64()))


if TYPE_CHECKING:
    import pandas as pd  # only for frames; metrics never import it


class Words:
    """A column of words: `codes`, shape (rows,), are indices into the sorted `words`."""

    __slots__ = ("codes", "words")

    def __init__(self, codes: Integers, words: Sequence[str]) -> None:
        self.codes = codes
        self.words = words

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, picked: Bools | Integers) -> "Words":
        return Words(self.codes[picked], self.words)

    def having(self, matcher: Callable[[str], bool]) -> Bools:
        """Return which rows have a word for which `matcher` is true; it is called once for each word."""
        matches = [matcher(word) for word in self.words]
        if sum(matches) == 1:  # comparing is faster than looking up
            return np.equal(self.codes, matches.index(True))
        chosen: Bools = np.array(matches, dtype=bool)[self.codes] if any(matches) else np.zeros(len(self), dtype=bool)
        return chosen

    def among(self, *words: str) -> Bools:
        """Return which rows have one of these words."""
        return self.having(lambda word: word in words)

    def present(self) -> list[str]:
        """Return the words that occur, sorted."""
        return [self.words[code] for code in np.unique(self.codes)]

    def to_numpy(self) -> NDArray[np.object_]:
        """Return the words themselves, shape (rows,)."""
        return np.array(self.words, dtype=object)[self.codes]


def words_of(numbers: Integers, names: Sequence[str]) -> Words:
    """Return a column of words from their places among `names`."""
    alphabetical = sorted(names)
    place = {word: number for number, word in enumerate(alphabetical)}
    return Words(np.array([place[name] for name in names], dtype=np.int32)[numbers], alphabetical)


class Series:
    """A column of values that were summed as they came: sums and numbers of values, row by row.

    - `sample_s`, `sample`: times and values of all of them, or of an even share; None where no percentile needs them.
    """

    __slots__ = ("counts", "sample", "sample_s", "sums")

    def __init__(
        self, sums: NDArray[Any], counts: NDArray[Any], sample_s: NDArray[Any] | None = None,
        sample: NDArray[Any] | None = None,
    ) -> None:  # fmt: skip
        self.sums, self.counts, self.sample_s, self.sample = sums, counts, sample_s, sample

    def __len__(self) -> int:
        return len(self.sums)

    def __getitem__(self, picked: Bools | Integers) -> "Series":
        return Series(self.sums[picked], self.counts[picked], self.sample_s, self.sample)


Column = NDArray[Any] | Words


class Table:
    """Columns of equal length by name, as attributes: `table.time_s`; each is computed at its first use.

    Columns are numpy arrays, or Words. A selection of rows computes only the columns that are used.
    """

    def __init__(self, rows: int, names: Sequence[str], column: Callable[[str], Column | Series]) -> None:
        self._rows = rows
        self._column = cache(column)
        self._of_event: dict[str, Table] = {}
        self.names = tuple(names)

    @classmethod
    def of(cls, **columns: Column | Series) -> "Table":
        """Return the table of these columns."""
        return cls(len(next(iter(columns.values()))), tuple(columns), columns.__getitem__)

    @classmethod
    def of_arrow(cls, table: pa.Table) -> "Table":
        """Return the table of an Arrow table of numbers, booleans, words and lists without nulls."""
        return cls(table.num_rows, table.column_names, lambda name: _of_arrow(table.column(name)))

    def __len__(self) -> int:
        return self._rows

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.names:
            raise AttributeError(f"no column {name!r}")
        column = self.__dict__[name] = self._column(name)
        return column

    def where(self, picked: Bools | Integers) -> "Table":
        """Return the rows of a mask, or the rows of these indices, in their order."""
        if picked.dtype == bool and picked.all():
            return self
        rows = np.flatnonzero(picked) if picked.dtype == bool else picked
        column = self._column  # not the table, which may keep this one
        return Table(len(rows), self.names, lambda name: column(name)[rows])

    def of_event(self, event: str) -> "Table":
        """Return the rows of an event; all calls return the same table."""
        if event not in self._of_event:
            self._of_event[event] = self.where(self.event.among(event))
        return self._of_event[event]

    def named(self, **names: str) -> "Table":
        """Return the table of some columns, by new names and their present ones."""
        return Table(self._rows, tuple(names), lambda name: getattr(self, names[name]))

    def plus(self, **columns: Column | Series) -> "Table":
        """Return the table with further columns, or replaced ones."""
        names = dict.fromkeys([*self.names, *columns])
        return Table(self._rows, tuple(names), lambda name: columns[name] if name in columns else getattr(self, name))

    def frame(self) -> "pd.DataFrame":
        """Return the table as a pandas frame."""
        columns = {name: getattr(self, name) for name in self.names}
        return pa.table(
            {name: column.to_numpy() if isinstance(column, Words) else column for name, column in columns.items()}
        ).to_pandas()


def _of_arrow(column: pa.ChunkedArray) -> Column:
    if pa.types.is_list(column.type):
        return np.fromiter(map(tuple, column.to_pylist()), dtype=object, count=len(column))
    if not pa.types.is_string(column.type):
        return numbers_of(column)
    coded = column.combine_chunks().dictionary_encode()
    return words_of(_numbers(coded.indices), coded.dictionary.to_pylist())
