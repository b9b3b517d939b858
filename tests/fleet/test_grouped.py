"""Columns and groups of rows against plain loops."""

import math
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.fleet.records.columns import Table, Words
from specfleet.fleet.records.metrics.grouped import Groups, at, find, packed

# Small keys that repeat often, and keys as far apart as possible: a packed key must distinguish all.
keys = st.one_of(st.integers(-2, 2), st.sampled_from([-(2**62), 2**40, 2**62, 2**62 + 1]))
named = st.lists(st.tuples(keys, keys, keys), max_size=30)
values = st.floats(-100, 100)


def columns(rows: list[tuple[int, ...]]) -> tuple[np.ndarray, ...]:
    return tuple(np.array([row[place] for row in rows], dtype=np.int64) for place in range(3))


@given(st.lists(st.tuples(st.tuples(keys, keys, keys), values), max_size=30))
def test_groups_agree_with_a_plain_loop(rows: list[tuple[tuple[int, int, int], float]]) -> None:
    of: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for number, (key, _) in enumerate(rows):
        of[key].append(number)
    members = [of[key] for key in sorted(of)]
    groups = Groups(*columns([key for key, _ in rows]))
    value = np.array([row[1] for row in rows])
    assert len(groups) == len(members)
    assert groups.first.tolist() == [group[0] for group in members]
    assert groups.counts().tolist() == [len(group) for group in members]
    assert np.flatnonzero(groups.is_first).tolist() == sorted(group[0] for group in members)
    assert groups.largest(value).tolist() == [max(value[group]) for group in members]
    assert groups.smallest(value).tolist() == [min(value[group]) for group in members]
    assert groups.sums(value).tolist() == pytest.approx([sum(value[group]) for group in members])
    assert groups.means(value).tolist() == pytest.approx([value[group].mean() for group in members])
    before = {later: earlier for group in members for earlier, later in pairwise(group)}
    assert groups.before().tolist() == [before.get(number, -1) for number in range(len(rows))]


@given(named, named)
def test_the_first_row_that_agrees_is_found(wanted: list[tuple[int, ...]], among: list[tuple[int, ...]]) -> None:
    found = find(columns(wanted), columns(among))
    assert found.tolist() == [among.index(row) if row in among else -1 for row in wanted]


@given(named)
def test_a_packed_key_has_the_order_of_the_keys(rows: list[tuple[int, ...]]) -> None:
    packed_keys, room = packed(*columns(rows))
    code = packed_keys.tolist()
    assert all(0 <= key < room for key in code)
    pairs = [(a, b) for a in range(len(rows)) for b in range(len(rows))]
    assert all((code[a] < code[b]) == (rows[a] < rows[b]) for a, b in pairs)


def test_what_is_not_there_is_not_a_number() -> None:
    assert at(np.array([5, 7]), np.array([1, -1, 0])).tolist() == pytest.approx([7, math.nan, 5], nan_ok=True)
    assert at(np.array([]), np.array([-1])).tolist() == pytest.approx([math.nan], nan_ok=True)


def test_tables_select_and_add_columns_and_sort_words() -> None:
    table = Table.of_arrow(pa.table({"name": ["b", "a", "b", "c"], "time_s": [1.0, 2.0, 3.0, 4.0]}))
    assert table.name.present() == ["a", "b", "c"]
    assert table.name.among("b", "c", "x").tolist() == [True, False, True, True]
    chosen = table.where(table.name.among("b")).plus(twice_s=np.array([2.0, 6.0]), time_s=np.array([0.0, 1.0]))
    assert (len(chosen), chosen.names) == (2, ("name", "time_s", "twice_s"))
    assert chosen.name.to_numpy().tolist() == ["b", "b"]
    assert chosen.where(np.array([1])).frame().to_dict("records") == [{"name": "b", "time_s": 1.0, "twice_s": 6.0}]
    with pytest.raises(AttributeError, match="no column 'seq'"):
        chosen.seq  # noqa: B018


def test_an_empty_table_has_columns_without_rows() -> None:
    table = Table.of_arrow(pa.schema([("name", pa.string()), ("time_s", pa.float64())]).empty_table())
    assert len(table.where(table.name.among("b"))) == len(table.time_s) == 0
    assert len(Groups(table.name)) == 0
    assert Words(np.zeros(0, dtype=int), []).present() == []
