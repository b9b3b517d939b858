"""The event table of the compiled loop, in parts or as columns."""

from functools import cache
from itertools import chain

import numpy as np
import pyarrow as pa

from specfleet.fleet.records.columns import Column, Table, Words, array_of, spelled, words_of
from specfleet.fleet.records.schema import SCHEMA, Row
from specfleet.fleet.scenario.names import verifier_name
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.sim.fast.compiled import CODE, ready
from specfleet.sim.fast.events import JOIN, Array
from specfleet.sim.fast.logged import REALS, WHOLES, expand
from specfleet.sim.fast.serving_arrays import ServingArrays
from specfleet.sim.fast.serving_state import StepLog
from specfleet.sim.fast.sharing_arrays import identity_lists

EVENTS = ["join", "draft-request", "draft", "leave", "start", "done"]  # by their numbers in `events.py`
KINDS = ["", "prefill", "draft", "verify", "decode", "chunk", "draft_prefill"]


def station_names(fleet: Fleet) -> list[str]:
    """Return the station names of a fleet in the order of the loop."""
    targets = [verifier_name(target) for target in range(fleet.verifiers.count)]
    return targets + fleet.drafter_names


def names_of(fleet: Fleet) -> dict[str, list[str]]:
    """Return the words of each column of words, by their numbers in the loop."""
    return {"station": station_names(fleet), "event": EVENTS, "kind": KINDS}


def rows_of(fleet: Fleet, serving: ServingArrays, log: StepLog) -> Table:
    """Return the rows of a log as numpy columns, the input of metrics, which need no lists."""
    written, named, count = cache(lambda: columns_of(serving, log)), names_of(fleet), int(log.blocks["parts"].sum())

    def column(name: str) -> Column:
        if name in named:
            return words_of(written()[name], named[name])
        if name in (*REALS, *WHOLES):
            numbers: Column = written()[name]
            return numbers
        value = "simulated" if name == "origin" else Row._field_defaults[name]
        if isinstance(value, str):
            return Words(np.zeros(count, dtype=np.int32), [value])
        return np.full(count, value)

    return Table(count, [field.name for field in SCHEMA if not pa.types.is_list(field.type)], column)


def columns_of(serving: ServingArrays, log: StepLog) -> dict[str, Array]:
    """Return the rows of a log, column by column; words as numbers."""
    rows = int(log.blocks["parts"].sum())
    room = (-(-rows // 8) | 1) * 8  # an odd number of cache lines: columns do not displace each other
    reals, wholes = np.empty((len(REALS), room)), np.empty((len(WHOLES), room), dtype=np.int64)
    arguments = CODE, serving.texts, serving.limits.streams, *log, reals, wholes
    ready(expand, *arguments)(*arguments)
    written = dict(zip((*REALS, *WHOLES), (column[:rows] for column in chain(reals, wholes)), strict=True))
    return written | {"tag": serving.tags(written["request"])} if serving.sharing is not None else written


class EventTable:
    """Makes parts of the event table. Constant columns share their memory."""

    def __init__(self, fleet: Fleet) -> None:
        self.words = names_of(fleet)
        self.constants: dict[str, Array] = {}

    def rows(self, serving: ServingArrays, log: StepLog) -> pa.Table:
        """Return the rows of a log, without copies of its columns."""
        written, columns = columns_of(serving, log), []
        for field in SCHEMA:
            if field.name == "identity" and serving.sharing is not None:
                joined = np.where(written["event"] == JOIN, written["request"], -1)
                bounds, values = identity_lists(serving.sharing, joined)
                columns.append(pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), pa.array(values)))
            elif field.name not in written:
                columns.append(self._constant(field, len(written["time_s"])))
            elif field.name in self.words:
                columns.append(spelled(written[field.name], self.words[field.name]))
            else:
                columns.append(array_of(written[field.name], field.type))
        return pa.table(columns, schema=SCHEMA)

    def _constant(self, field: pa.Field, count: int) -> Array:
        if count > len(self.constants.get(field.name, ())):
            value = "simulated" if field.name == "origin" else Row._field_defaults[field.name]
            self.constants[field.name] = pa.repeat(pa.scalar(value, type=field.type), count)
        return self.constants[field.name].slice(0, count)
