"""Tables of numpy columns and of words, the input of metrics."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from specfleet.fleet.records.arrow import codes_of, numbers_of

if TYPE_CHECKING:
    import pandas as pd  # only for frames; metrics never import it

Bools = NDArray[np.bool_]
Integers = NDArray[np.signedinteger[Any]]


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
        matches = np.array([matcher(word) for word in self.words], dtype=bool)
        chosen: Bools = matches[self.codes] if matches.any() else np.zeros(len(self.codes), dtype=bool)
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


Column = NDArray[Any] | Words


class Table:
    """Columns of equal length by name, as attributes: `table.time_s`; each is computed at its first use.

    Columns are numpy arrays, or Words. A selection of rows computes only the columns that are used.
    """

    def __init__(self, rows: int, names: Sequence[str], column: Callable[[str], Column]) -> None:
        self._rows = rows
        self._column = column
        self.names = tuple(names)

    @classmethod
    def of(cls, **columns: Column) -> "Table":
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
        return Table(len(rows), self.names, lambda name: getattr(self, name)[rows])

    def plus(self, **columns: Column) -> "Table":
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
    return Words(*codes_of(column)) if pa.types.is_string(column.type) else numbers_of(column)
