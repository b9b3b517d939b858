"""The event table of the compiled loop, in batches."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from specfleet.fleet.records.columns import Integers, Words
from specfleet.fleet.records.schema import SCHEMA, Row
from specfleet.fleet.scenario.names import verifier_name
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.sim.fast.events import Array

EVENTS = pa.array(["join", "draft-request", "draft", "leave", "start", "done"])  # by their numbers in `events.py`
KINDS = ["", "prefill", "draft", "verify", "decode", "chunk", "draft_prefill"]


def station_names(fleet: Fleet) -> list[str]:
    """Return the station names of a fleet in the order of the loop."""
    targets = [verifier_name(target) for target in range(fleet.verifiers.count)]
    return targets + fleet.drafter_names


class RowBatches:
    """Batches of the event table. Constant columns share their memory."""

    def __init__(self, fleet: Fleet) -> None:
        self.named = {"station": pa.array(station_names(fleet)), "event": EVENTS, "kind": pa.array(KINDS)}
        self.constants: dict[str, Array] = {}
        self.batches: list[pa.RecordBatch] = []

    def take(self, written: Mapping[str, Array], count: int) -> None:
        """Append a row for each place of the columns that the loop has written. The table takes ownership of them."""
        columns = []
        for field in SCHEMA:
            if field.name not in written:
                columns.append(self._constant(field, count))
            elif field.name in self.named:
                columns.append(self.named[field.name].take(pa.array(written[field.name])))
            elif field.type == pa.bool_():
                columns.append(pa.array(written[field.name].astype(np.bool_)))
            else:
                columns.append(pa.array(written[field.name].astype(field.type.to_pandas_dtype(), copy=False)))
        self.batches.append(pa.record_batch(columns, schema=SCHEMA))

    def _constant(self, field: pa.Field, count: int) -> Array:
        """Return a constant column of a field that the loop does not write."""
        if count > len(self.constants.get(field.name, ())):
            value = "simulated" if field.name == "origin" else Row._field_defaults[field.name]
            self.constants[field.name] = pa.repeat(pa.scalar(value, type=field.type), count)
        return self.constants[field.name].slice(0, count)

    def whole(self) -> pa.Table:
        """Return the table."""
        return pa.Table.from_batches(self.batches, schema=SCHEMA)

    def counts(self, written: Array) -> dict[str, int]:
        """Return the number of rows by station, without stations that wrote none."""
        names = self.named["station"].to_pylist()
        return {name: count for name, count in zip(names, written.tolist(), strict=True) if count}


def words_of(numbers: Integers, names: Sequence[str]) -> Words:
    """Return a column of words from their places among `names`."""
    alphabetical = sorted(names)
    place = {word: number for number, word in enumerate(alphabetical)}
    return Words(np.array([place[name] for name in names], dtype=np.int32)[numbers], alphabetical)
