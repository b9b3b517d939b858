"""Schemas of tables, and a user's Parquet file against one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from specfleet.fleet.errors import InputError, OtherFormatError
from specfleet.fleet.inputs.text import named, reason

MAX_ROWS = 10**8  # rows of a file: about as many gigabytes as a large host's memory


def schema_of(row: type[tuple[Any, ...]]) -> pa.Schema:
    """Return the columns of a named tuple of numbers, words, booleans and lists of numbers."""
    stored = {
        float: pa.float64(), str: pa.string(), int: pa.int64(), bool: pa.bool_(),
        tuple[float, ...]: pa.list_(pa.float64()), tuple[int, ...]: pa.list_(pa.int64()),
    }  # fmt: skip
    return pa.schema([(name, stored[kind]) for name, kind in row.__annotations__.items()])


def read_table(path: Path, schema: pa.Schema, what: str = "", lists: Sequence[str] = ()) -> pa.Table:
    """Read the columns of `schema` from a Parquet file, cast to its types; the file's metadata is kept.

    Integers and floats of another width are cast, also in lists. Other columns are ignored. `lists`: columns of lists
    that may be missing, and are empty then. Raises InputError, with
    file and column, if the file cannot be read, has more than MAX_ROWS rows, or a column is missing, has another kind,
    or contains nulls, NaN or infinities.
    """
    origin = named(path, what)
    try:
        file = path.open("rb")
    except (OSError, ValueError) as error:
        raise InputError(f"{origin}: cannot be read ({getattr(error, 'strerror', '') or reason(error)})") from error
    try:
        with file:
            if file.read(4) != b"PAR1":
                raise OtherFormatError(f"{origin}: cannot be read as Parquet (it begins otherwise)", path)
            with pq.ParquetFile(file, page_checksum_verification=True) as stored:
                if stored.metadata.num_rows > MAX_ROWS:
                    raise InputError(
                        f"{origin}: {stored.metadata.num_rows} rows; allowed: up to {MAX_ROWS}, which fit in memory; "
                        "pyarrow.parquet.ParquetFile reads more, group by group"
                    )
                table, metadata = stored.read(), stored.metadata.metadata
    except InputError:
        raise
    except (OSError, pa.ArrowException, ValueError, MemoryError, NotImplementedError, TypeError, KeyError) as error:
        raise InputError(f"{origin}: cannot be read as Parquet ({reason(error)})") from error
    for name in lists:
        if name not in table.column_names:
            table = table.append_column(name, pa.array([[]] * len(table), type=schema.field(name).type))
    missing = [name for name in schema.names if table.column_names.count(name) != 1]
    if missing:
        raise InputError(f"{origin}: lacks the column {missing[0]!r}; needs {', '.join(schema.names)}")
    columns = [_column(table.column(field.name), field, origin) for field in schema]
    return pa.table(columns, schema=schema.with_metadata(metadata))


def _column(column: pa.ChunkedArray, field: pa.Field, origin: str) -> pa.ChunkedArray:
    """Return a column cast to the type of `field`."""
    kind, place = column.type, f"{origin}: column {field.name!r}"
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not _fits(kind, field.type):
        raise InputError(f"{place} holds {kind}; needs {field.type}")
    lacking = column.null_count or (pc.list_flatten(column).null_count if pa.types.is_list(field.type) else 0)
    if lacking:
        raise InputError(f"{place} lacks {lacking} of its {len(column)} values")
    try:
        typed = column.cast(field.type)
        typed.validate(full=True)  # for example text that is not UTF-8
    except (pa.ArrowException, ValueError) as error:
        raise InputError(f"{place}: {reason(error)}") from error
    numbers = pc.list_flatten(typed) if pa.types.is_list(field.type) else typed
    if pa.types.is_floating(numbers.type) and pc.all(pc.is_finite(numbers)).as_py() is False:
        raise InputError(f"{place} holds NaN or infinity; needs finite numbers")
    return typed


def _fits(kind: pa.DataType, wanted: pa.DataType) -> bool:
    types = pa.types
    if types.is_list(wanted):
        return (types.is_list(kind) or types.is_large_list(kind)) and _fits(kind.value_type, wanted.value_type)
    if types.is_string(wanted):
        allowed = (types.is_string, types.is_large_string)
    elif types.is_floating(wanted):
        allowed = (types.is_floating, types.is_integer)
    else:
        allowed = tuple(is_kind for is_kind in (types.is_boolean, types.is_integer) if is_kind(wanted))
    return any(is_kind(kind) for is_kind in allowed)
