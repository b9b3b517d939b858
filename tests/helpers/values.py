"""Other valid values for a key, made from its type, for generic tests."""

import operator
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

from specfleet.fleet.inputs.strict import name_key
from specfleet.fleet.scenario.writing import fields_of

NUMBERS = (3, 0.7, 2, 0.2, 1, 0)


def values_of(kind: inspect.Type) -> Iterator[Any]:
    """Yield plain values of a type: numbers within their bounds, tables with all keys and with few."""
    match kind:
        case inspect.UnionType():
            for part in kind.types:
                yield from values_of(part)
        case inspect.VarTupleType() | inspect.ListType():
            yield from ([item] for item in values_of(kind.item_type))
        case inspect.TupleType():
            yield from (list(items) for items in zip(*map(values_of, kind.item_types), strict=False))
        case inspect.DictType():
            yield from ({"other": item} for item in values_of(kind.value_type))
        case inspect.StructType():
            yield from _tables(kind)
        case inspect.IntType() | inspect.FloatType():
            yield from _numbers(kind)
        case _:
            yield from _others(kind)


def _others(kind: inspect.Type) -> Iterator[Any]:
    match kind:
        case inspect.BoolType():
            yield from (True, False)
        case inspect.StrType():
            yield "1011" if kind.pattern else "other"
        case inspect.LiteralType():
            yield from kind.values
        case _:
            assert isinstance(kind, inspect.NoneType | inspect.AnyType), kind  # else a type of no key so far


def _numbers(kind: inspect.IntType | inspect.FloatType) -> Iterator[float]:
    is_whole = isinstance(kind, inspect.IntType)
    for number in NUMBERS:
        if _within(kind, number) and (isinstance(number, int) or not is_whole):
            yield number if is_whole else float(number)


def _tables(kind: inspect.StructType) -> Iterator[dict[str, Any]]:
    """Yield a table with a value for each key, one with the required keys only, and with each value of a Literal."""
    name = {kind.tag_field: kind.tag} if kind.tag_field else {}
    first = {part.encode_name: next(values_of(part.type), None) for part in kind.fields}
    required = {part.encode_name for part in kind.fields if part.required}
    yield name | {key: value for key, value in first.items() if value is not None}
    yield name | {key: first[key] for key in first if key in required}
    for part in kind.fields:
        if isinstance(part.type, inspect.LiteralType):
            for value in part.type.values:
                yield name | {key: first[key] for key in first if key in required} | {part.encode_name: value}


def _within(kind: inspect.IntType | inspect.FloatType, number: float) -> bool:
    bounds = ((operator.ge, kind.ge), (operator.gt, kind.gt), (operator.le, kind.le), (operator.lt, kind.lt))
    return all(bound is None or holds(number, bound) for holds, bound in bounds)


def keys_below(table: Any, path: str = "") -> Iterator[tuple[str, inspect.Type]]:
    """Yield the dotted name and the type of every key of a table, and of those below.

    A plain table has no value but its keys' values; that of a policy, model or shape is another one.
    """
    for field in fields_of(type(table)):
        name, value = f"{path}{field.encode_name}", getattr(table, field.name)
        is_table = isinstance(value, msgspec.Struct)
        if not is_table or name_key(type(value)):
            yield name, field.type
        if is_table:
            yield from keys_below(value, f"{name}.")
