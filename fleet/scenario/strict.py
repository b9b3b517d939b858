"""From untyped content (TOML, JSON) to typed structs, with errors a person can act on in one line."""

import dataclasses
import re
import types
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from fleet.errors import InputError

T = TypeVar("T", bound=msgspec.Struct)


def convert(content: Mapping[str, Any], kind: type[T], origin: str) -> T:
    """Build `kind` from `content`; InputError names origin, key, value and what is allowed.

    Where a policy or model needs no parameters, its bare name may stand for the table that holds it.
    """
    complete: Any = content
    try:
        complete = _expand_names(content, kind)
        return msgspec.convert(complete, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{origin}: {_explain(str(error), complete, kind)}") from error


def tag_fields(kind: Any, keys: Iterable[str]) -> set[str]:
    """Return the keys, such as `policy`, by which a table below `keys` of `kind` names its kind."""
    for key in keys:
        kind = _child(kind, key)
    tags = {str(struct.__struct_config__.tag_field) for struct in _structs(kind) if struct.__struct_config__.tag_field}
    return tags | ({"kind"} if _dataclasses(kind) else set())


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    """List the types that an annotation allows: the arms of a union, without Annotated."""
    while hasattr(annotation, "__metadata__"):
        annotation = annotation.__origin__
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(arm for part in get_args(annotation) for arm in _alternatives(part))
    return (annotation,)


def _structs(annotation: Any) -> tuple[type[msgspec.Struct], ...]:
    return tuple(arm for arm in _alternatives(annotation) if isinstance(arm, type) and issubclass(arm, msgspec.Struct))


def _expand_names(value: Any, annotation: Any, path: str = "$") -> Any:
    """Replace a bare name by {tag_field: name} where a tagged struct is expected, by {kind: name} for a dataclass.

    Unknown fields of dataclasses, which msgspec lets pass, are a ValidationError as those of structs are.
    """
    structs = _structs(annotation)
    tags = {struct.__struct_config__.tag_field for struct in structs} - {None}
    plain = _dataclasses(annotation)
    if plain and isinstance(value, str):
        return {"kind": value}
    if plain and isinstance(value, Mapping):
        known = [field.name for field in dataclasses.fields(plain[0])]
        for key in value:
            if key not in known:
                raise msgspec.ValidationError(f"Object contains unknown field `{key}` - at `{path}`")
    if isinstance(value, str) and tags and str not in _alternatives(annotation):
        return {next(iter(tags)): value}
    if isinstance(value, Mapping):
        hints: dict[str, Any] = {}
        for struct in structs:
            hints |= get_type_hints(struct)
        return {key: _expand_names(item, hints.get(key, Any), f"{path}.{key}") for key, item in value.items()}
    return value


def _dataclasses(annotation: Any) -> list[type[Any]]:
    return [arm for arm in _alternatives(annotation) if isinstance(arm, type) and dataclasses.is_dataclass(arm)]


def _explain(message: str, content: Any, kind: Any) -> str:
    """Rewrite msgspec's message as `key = value: what is allowed`."""
    text, _, path = message.partition(" - at `$")
    steps = re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", path)
    keys: list[str | int] = []
    value, annotation = content, kind
    for name, index in steps:
        key: Any = name or (_culprit(value, annotation) if index == "..." else int(index))
        keys.append(key)
        value = value[key] if isinstance(value, (Mapping, list, tuple)) else value
        annotation = _child(annotation, key)
    where = ".".join(str(key) for key in keys)
    unknown = re.search(r"unknown field `(\w+)`", text)
    if unknown:
        structs = _structs(annotation)
        chosen = [struct for struct in structs if _tag_matches(struct, value)] or list(structs)
        allowed = sorted({field for struct in chosen for field in struct.__struct_fields__})
        allowed += [field.name for arm in _dataclasses(annotation) for field in dataclasses.fields(arm)]
        key_text = f"{where}.{unknown[1]}" if where else unknown[1]
        given = value.get(unknown[1]) if isinstance(value, Mapping) else value
        return f"unknown key {key_text} = {given!r}; allowed: {', '.join(allowed)}"
    missing = re.search(r"missing required field `(\w+)`", text)
    if missing and missing[1] not in {struct.__struct_config__.tag_field for struct in _structs(annotation)}:
        return f"{where or 'content'} = {value!r} needs the key `{missing[1]}`"
    choices = _choices(annotation)
    if choices and (re.match(r"Invalid (enum )?value", text) or missing):
        return f"{where} = {value!r} is not known; allowed: {', '.join(choices)}"
    return f"{where or 'content'} = {value!r}: {text[0].lower()}{text[1:]}"


def _culprit(table: Mapping[str, Any], annotation: Any) -> str:
    """Return the key of `table` whose value cannot be converted: msgspec does not name it."""
    for key, value in table.items():
        try:
            msgspec.convert(value, _child(annotation, key))
        except msgspec.ValidationError:
            return key
    return "..."


def _child(annotation: Any, key: str | int) -> Any:
    for struct in (*_structs(annotation), *_dataclasses(annotation)):
        hints = get_type_hints(struct)
        if key in hints:
            return hints[str(key)]
    for struct in _structs(annotation):
        if key == struct.__struct_config__.tag_field:
            return annotation
    for arm in _alternatives(annotation):
        if get_origin(arm) in (dict, tuple, list):
            return get_args(arm)[1 if get_origin(arm) is dict else 0]
    return Any


def _tag_matches(struct: type[msgspec.Struct], value: Any) -> bool:
    tag_field = struct.__struct_config__.tag_field
    return isinstance(value, Mapping) and bool(tag_field) and value.get(tag_field) == struct.__struct_config__.tag


def _choices(annotation: Any) -> list[str]:
    """List the names that a tagged union or a Literal allows."""
    names = [str(struct.__struct_config__.tag) for struct in _structs(annotation) if struct.__struct_config__.tag]
    for arm in _alternatives(annotation):
        names += [str(name) for name in get_args(arm) if isinstance(name, str)]
    return names
