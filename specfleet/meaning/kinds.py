"""Types, bounds and defaults of keys in words, and values as TOML."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import inspect

Fields = tuple[inspect.Field, ...]
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
Documented = inspect.StructType | inspect.DataclassType | inspect.NamedTupleType


def fields_of(struct: type) -> Fields:
    """Return the fields of a struct, dataclass or named tuple."""
    kind = inspect.type_info(struct)
    assert isinstance(kind, Documented), struct
    return kind.fields


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


def tag_of(struct: type) -> tuple[str, str]:
    """Return the key that names a policy or model, and its name; empty for a struct that is neither."""
    config = getattr(struct, "__struct_config__", None)
    return (str(config.tag_field), str(config.tag)) if config is not None and config.tag_field else ("", "")


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


def default_of(field: inspect.Field) -> Any:
    """Return a field's default; NODEFAULT where it is required."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def default_text(field: inspect.Field) -> str:
    """Write a field's default as TOML; in words where there is no value, or a table whose keys have their defaults."""
    default = default_of(field)
    if default is msgspec.NODEFAULT:
        return REQUIRED
    text = LEFT_OUT if default is None else toml(default)
    return OF_ITS_KEYS if text == "{}" and isinstance(default, msgspec.Struct) else text


def toml(value: Any) -> str:
    """Write a value in one line of TOML; of policies, models and tables only what differs from the defaults."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{key} = {toml(item)}" for key, item in value.items())
        return "{" + pairs + "}"
    if isinstance(value, bool | str | int | float):
        return json.dumps(value)
    content = changed(value)
    field, name = tag_of(type(value))
    if field:
        return toml({field: name} | content if content else name)
    bare_kind = dataclasses.is_dataclass(value) and set(content) <= {"kind"}  # whose name may stand alone
    return toml(getattr(value, "kind") if bare_kind else content)  # noqa: B009  (only that dataclass has one)


def changed(value: Any) -> dict[str, Any]:
    """Return the fields of a struct or dataclass that differ from their defaults."""
    own = {field.encode_name: getattr(value, field.name) for field in fields_of(type(value))}
    defaults = {field.encode_name: default_of(field) for field in fields_of(type(value))}
    return {key: item for key, item in own.items() if defaults[key] is msgspec.NODEFAULT or item != defaults[key]}
