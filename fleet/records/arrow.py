"""Converts between Arrow and numpy without copies.

pyarrow's own conversions (`pa.array`, `to_numpy`) import pandas if it is installed, which takes longer than a small
simulation.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

DTYPES = {pa.float64(): np.dtype(np.float64), pa.int64(): np.dtype(np.int64)}


def array_of(values: Sequence[Any] | NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return an Arrow array of 64-bit numbers, booleans, words, or lists of 64-bit numbers."""
    if pa.types.is_string(kind):
        words = list(dict.fromkeys(values))
        place = {word: number for number, word in enumerate(words)}
        codes = np.fromiter(map(place.__getitem__, values), dtype=np.int64, count=len(values))
        return _of_words(words).take(array_of(codes, pa.int64()))
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


def codes_of(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], list[str]]:
    """Return a column of words without nulls as indices into the sorted list of words."""
    coded = column.combine_chunks().dictionary_encode()
    words = coded.dictionary.to_pylist()
    alphabetical = sorted(words)
    place = {word: number for number, word in enumerate(alphabetical)}
    codes = np.array([place[word] for word in words], dtype=np.int64)
    return codes[_numbers(coded.indices)], alphabetical


def _numbers(array: pa.Array) -> NDArray[Any]:
    if array.type == pa.bool_():
        return np.from_dlpack(array.cast(pa.uint8())).astype(bool)
    return np.from_dlpack(array)


def _of_words(words: Sequence[str]) -> pa.Array:
    encoded = [word.encode() for word in words]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(words), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))])
