"""Mutations of tables: columns and rows of Parquet and CSV files, and the headers within."""

import csv
import io
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.inputs.values import TEXTS, json_of, mutated

CELLS = (
    "", " ", "x", "-1", "0", "1.5", "1e3", "1e30", "-1e30", "nan", "inf", "-inf", "NaN", "1_000", "0x10", "9" * 40,
    "9" * 5000,
    "1e400", "½", "\x00", '"', "1;2", "1 ", "True", "None",
)  # fmt: skip
STRANGE = (None, float("nan"), float("inf"), -float("inf"), 1e30, -1e30, 1e300, -1.0, 0.0, 0.5)
WHOLE = (None, 0, -1, 1, 2**31, 2**62, -(2**63), 10**12, 7)
LISTS = (None, [], [None], [0], [1], [1, -1], [1, None], [1, 22], [1, 2**15 - 1], [-(2**15)], [1] * 4000, [1, 2, 21])


def csv_mutated(text: str, rng: random.Random) -> tuple[str, str]:
    """Return a CSV text with a cell, a row or a column changed, and what was done."""
    rows = list(csv.reader(io.StringIO(text)))
    row, column = rng.randrange(len(rows)), rng.randrange(len(rows[0]))
    what = rng.choice(
        ["cell", "cell", "cell", "cell", "head", "column lost", "column twice", "row cut", "row long", "text"]
    )
    match what:
        case "head":
            rows[0][column] = rng.choice([*CELLS, *rows[0]])
        case "column lost":
            rows = [cells[:column] + cells[column + 1 :] for cells in rows]
        case "column twice":
            rows = [[*cells, cells[column]] for cells in rows]
        case "row cut":
            rows[row] = rows[row][:column]
        case "row long":
            rows[row] = rows[row] * 3
        case "text":
            rows[row][column] = rng.choice(TEXTS)
        case _:
            rows[row][column] = rng.choice(CELLS)
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(rows)
    return written.getvalue(), f"{what} at {row}, {column}: {rows[row][column : column + 1]!r:.60}"


def parquet_mutated(path: Path, rng: random.Random) -> str:  # noqa: C901  (a branch a kind of damage)
    """Change a column, the rows or the header of a Parquet file in place; say what was done."""
    table = pq.ParquetFile(path).read()
    name = rng.choice(table.column_names)
    place = table.column_names.index(name)
    what = rng.choice(
        [
            "value", "value", "value", "type", "type", "lost", "renamed", "extra", "twice", "rows", "header",
            "metadata",
            "order",
        ]
    )  # fmt: skip
    column = table.column(name)
    match what:
        case "value":
            values = column.to_pylist()
            number = rng.randrange(len(values))
            kinds = {pa.float64(): STRANGE, pa.int64(): WHOLE, pa.int32(): WHOLE[:4], pa.bool_(): (None, True, False)}
            others = LISTS if pa.types.is_list(column.type) else (None, *TEXTS)
            values[number] = rng.choice(kinds.get(column.type, others))
            table = table.set_column(place, name, pa.array(values, column.type))
            what = f"{name}[{number}] = {values[number]!r:.40}"
        case "type":
            kind = rng.choice(
                [pa.string(), pa.int8(), pa.float32(), pa.int32(), pa.list_(pa.int64()), pa.binary(), pa.timestamp("s")]
            )
            values = column.to_pylist()
            texts = [str(value) for value in values]
            made = {
                pa.string(): texts, pa.binary(): [text.encode("utf-16") for text in texts],
                pa.list_(pa.int64()): [[1]] * len(values),
            }  # fmt: skip
            array = pa.array(made[kind], kind) if kind in made else pa.array([len(text) for text in texts]).cast(kind)
            table = table.set_column(place, name, array)
            what = f"{name} as {kind}"
        case "lost":
            table = table.remove_column(place)
        case "renamed":
            table = table.rename_columns([f"{old}_" if old == name else old for old in table.column_names])
        case "extra":
            table = table.append_column("extra", column)
        case "twice":
            table = table.append_column(name, column)
        case "rows":
            table = rng.choice(
                [table.slice(0, 0), table.slice(0, len(table) // 2), table.slice(1), pa.concat_tables([table] * 3)]
            )
        case "header":
            metadata = dict(table.schema.metadata or {})
            for key, value in metadata.items():
                try:
                    metadata[key] = json_of(mutated(json.loads(value), rng)[0]).encode()
                except ValueError:
                    metadata[key] = value[:-1]
            table = table.replace_schema_metadata(metadata)
        case "metadata":
            table = table.replace_schema_metadata(None)
        case "order":
            table = table.select(table.column_names[::-1])
    pq.write_table(table, path)
    return f"{what} ({name})"
