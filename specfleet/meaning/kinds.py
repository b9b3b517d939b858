"""Types, bounds and defaults of keys in words."""

import dataclasses
import json

import msgspec
from msgspec import inspect

from fleet.scenario.writing import default_of, tag_of, toml

REQUIRED, LEFT_OUT, OF_ITS_KEYS = "required", "left out", "its keys' defaults"  # defaults that are no value
TABLE_BY_NAME = "table by name"
_WORDS: dict[type[inspect.Type], str] = {
    inspect.BoolType: "true or false",
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.StrType: "text",
    inspect.LiteralType: "text",
    inspect.AnyType: "anything",
    inspect.DataclassType: "table with `kind`, or a name",
}


def arms(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    """List the alternatives of a type but for None; the items of lists, and the values of tables, take their place."""
    if isinstance(kind, inspect.UnionType):
        return tuple(arm for part in kind.types for arm in arms(part))
    if isinstance(kind, inspect.VarTupleType | inspect.ListType):
        return arms(kind.item_type)
    if isinstance(kind, inspect.DictType):
        return arms(kind.value_type)
    return () if isinstance(kind, inspect.NoneType) else (kind,)


def tables_in(kind: inspect.Type) -> tuple[type, ...]:
    """List the structs and dataclasses that a value of a type may be, or hold."""
    return tuple(arm.cls for arm in arms(kind) if isinstance(arm, inspect.StructType | inspect.DataclassType))


def in_words(kind: inspect.Type) -> str:
    """Name a type for people: what a value of it is in TOML."""
    if type(kind) in _WORDS:
        return _WORDS[type(kind)]
    if isinstance(kind, inspect.VarTupleType | inspect.ListType):
        return f"list: {in_words(kind.item_type)}"
    if isinstance(kind, inspect.TupleType):
        return f"list of {len(kind.item_types)}: {', '.join(in_words(item) for item in kind.item_types)}"
    if isinstance(kind, inspect.DictType):
        return f"{TABLE_BY_NAME}: {in_words(kind.value_type)}"
    if isinstance(kind, inspect.UnionType):
        names = [in_words(part) for part in kind.types if not isinstance(part, inspect.NoneType)]
        return " or ".join(dict.fromkeys(names))
    assert isinstance(kind, inspect.StructType), kind
    field, _ = tag_of(kind.cls)
    return f"table with `{field}`, or a name" if field else "table"


def allowed(kind: inspect.Type) -> str:
    """Tell what values of a type are allowed, beyond the type itself; empty where all are."""
    names = [f'"{tag_of(arm.cls)[1]}"' for arm in arms(kind) if isinstance(arm, inspect.StructType)]
    texts = [name for name in names if name != '""']
    for arm in arms(kind):
        if isinstance(arm, inspect.LiteralType):
            texts += [json.dumps(value) for value in arm.values]
        elif isinstance(arm, inspect.IntType | inspect.FloatType):
            texts += [bounds(arm)] if bounds(arm) else []
        elif isinstance(arm, inspect.StrType) and arm.pattern:
            texts.append(f"text that matches {arm.pattern}")
    least = getattr(kind, "min_length", None) if isinstance(kind, inspect.VarTupleType) else None
    return ", ".join([*dict.fromkeys(texts), *([f"{least} or more entries"] if least else [])])


def bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    """Tell the bounds of a number, such as `> 0 and <= 1`."""
    limits = ((">=", kind.ge), (">", kind.gt), ("<=", kind.le), ("<", kind.lt))
    return " and ".join(f"{sign} {limit:g}" for sign, limit in limits if limit is not None)


def allowed_of(struct: type, field: inspect.Field) -> str:
    """Tell what values of a key are allowed; a plain dataclass has the bounds of its numbers in their metadata."""
    of_type = allowed(field.type)
    if of_type or not dataclasses.is_dataclass(struct):
        return of_type
    bounds_of = next(part.metadata for part in dataclasses.fields(struct) if part.name == field.name)
    return bounds(inspect.IntType(**bounds_of))


def is_number(kind: inspect.Type) -> bool:
    """Whether values of a type are numbers, or lists of them, so that they have a unit."""
    return any(isinstance(arm, inspect.IntType | inspect.FloatType) for arm in arms(kind))


def default_text(field: inspect.Field) -> str:
    """Write a field's default as TOML; in words where there is no value, or a table whose keys have their defaults."""
    default = default_of(field)
    if default is msgspec.NODEFAULT:
        return REQUIRED
    text = LEFT_OUT if default is None else toml(default)
    return OF_ITS_KEYS if text == "{}" and isinstance(default, msgspec.Struct) else text
