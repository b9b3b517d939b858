"""Every number of a scenario has bounds; what lies beyond is refused in one line that names key, value and bounds."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from msgspec import inspect

from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.reading import change_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.writing import fields_of, tag_of
from specfleet.sim.run import simulate
from tests.helpers.stars import star
from tests.helpers.values import values_of
from tools.reference.entries import KeyTable, arms, keys_of, tables_from

ROOMS = ("specfleet.fleet.scenario", "specfleet.fleet.policies", "specfleet.fleet.acceptance")
OWN = [t for t in tables_from(Scenario) if not t.is_of_profile and t.struct.__module__.startswith(ROOMS)]


def numbers(tables: list[KeyTable]) -> Iterator[tuple[KeyTable, str, inspect.IntType | inspect.FloatType]]:
    """Yield the numbers among the keys of tables, in lists or not."""
    for table in tables:
        for field in fields_of(table.struct):
            for arm in arms(field.type):
                if isinstance(arm, inspect.IntType | inspect.FloatType):
                    yield table, field.encode_name, arm


@pytest.mark.parametrize(
    "table", [t for t in OWN if "acceptance" not in t.struct.__module__], ids=lambda table: table.title
)
def test_reference_lists_the_bounds_of_every_number(table: KeyTable) -> None:
    for key in keys_of(table.struct):
        if any(word in key.facts["type"] for word in ("integer", "number")):
            assert ">" in key.facts["allowed"] and "<" in key.facts["allowed"], key.name  # noqa: PT018  (one statement: both ends)


def beyond(kind: inspect.IntType | inspect.FloatType) -> list[Any]:
    """Values just beyond the bounds of a number, and far beyond; counts of recordings have no upper bound."""
    below = kind.gt if kind.gt is not None else kind.ge - 1  # type: ignore[operator]  (one of them is there)
    above = kind.lt if kind.lt is not None else kind.le + 1 if kind.le is not None else 10**30
    far = [10**19, -(10**19), 10**30] if isinstance(kind, inspect.IntType) else [float("inf"), -float("inf"), 1e300]
    return [below, above, *(far if above != 10**30 else far[1:])]


def within_lists(kind: inspect.Type, value: Any) -> Any:
    """The value in as many lists as the type has around its number."""
    parts = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    lists = [part for part in parts if isinstance(part, inspect.VarTupleType)]
    return [within_lists(lists[0].item_type, value)] if lists else value


def tables_with(struct: KeyTable, key: str, value: Any) -> dict[str, Any]:
    """A change that puts the value at the key of a table, in a scenario that has that table."""
    path, content = struct.paths[0], {key: value}
    field, name = tag_of(struct.struct)
    if field:
        required = {part.encode_name: next(values_of(part.type)) for part in fields_of(struct.struct) if part.required}
        content = {field: name} | required | content
    if path.endswith("tiers"):
        return {path: [{"first": 1} | content]}
    if path.startswith("workload.") and path.endswith("tokens"):
        return {path: {"low": 3, "high": 4} | content}
    if name == "adaedl" or path == "verifiers.aligned":
        return {"drafters.place": "target", path: content}
    return {path: content} if path else content


@pytest.mark.parametrize(
    ("table", "key", "kind"), list(numbers(OWN)), ids=lambda part: getattr(part, "title", str(part)[:30])
)
def test_values_beyond_bounds_are_refused_in_one_line(
    table: KeyTable, key: str, kind: inspect.IntType | inspect.FloatType
) -> None:
    (of_key,) = (field.type for field in fields_of(table.struct) if field.encode_name == key)
    for value in beyond(kind):
        with pytest.raises(InputError, match=key):
            change_scenario(star(), tables_with(table, key, within_lists(of_key, value)))
    least = kind.ge if kind.ge is not None else kind.gt / 2 if kind.gt else 0.001
    least = int(least) if isinstance(kind, inspect.IntType) else float(least)
    with suppress(InputError):
        changes = tables_with(table, key, within_lists(of_key, least))
        simulate(change_scenario(star(workload={"requests": 3}), changes))
