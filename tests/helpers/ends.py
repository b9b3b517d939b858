"""Records of a run that tell where its texts ended by themselves."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def write_ends(path: Path, ends: Mapping[int, int]) -> Path:
    """Write records that tell after how many new tokens texts ended, by request; prompts of 7 tokens."""
    rows = [{"event": "join", "request": request, "tokens": 7, "goal": 999, "flag": False} for request in ends]
    rows += [
        {"event": "done", "request": request, "tokens": 5, "goal": 7 + length, "flag": True}
        for request, length in ends.items()
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path
