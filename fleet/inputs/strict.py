"""From untyped content (TOML, JSON) to typed structs, with one-line errors that say what to do."""

import re
import types
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.nearest import ENGINES_WORDS, INSTEAD, SHOWN, nearest
from specfleet.fleet.inputs.quantities import quantity
from specfleet.fleet.inputs.text import shortened

T = TypeVar("T", bound=msgspec.Struct)

LARGEST = 1e19  # limit of any number: no quantity is larger
MEANS = ("base_s", "mean_s", "latency_s")  # first keys of tables for times: a duration alone is a constant one
FEW = 8  # keys of a table that an error lists, all of them
DEEPEST = 32  # nesting of tables and lists: no scenario nests half as deep


def convert(content: Any, kind: type[T], origin: str) -> T:
    """Build `kind` from `content`; InputError names origin, key, value and what is allowed.

    A policy or model without parameters may be its bare name. A number may be a text such as "10ms" or "70%"; see
    `quantities.py`. A time with a table of its own may be a duration alone: "60ms".
    """
    complete: Any = content
    try:
        complete = _complete(content, kind)
        made = msgspec.convert(complete, kind)
        _check_numbers(complete)
        return made
    except msgspec.ValidationError as error:
        raise InputError(f"{origin}: {_explain(str(error), complete, kind)}") from error
    except RecursionError as error:
        raise InputError(f"{origin}: its tables are nested too deeply") from error


def tag_fields(kind: Any, keys: Iterable[str]) -> set[str]:
    """Return the tag keys, such as `policy`, of a table below `keys` of `kind`."""
    return {key for struct in _structs(annotation_of(kind, keys)) if (key := name_key(struct))}


def name_key(struct: type[msgspec.Struct]) -> str:
    """Return the key whose value alone may stand for a struct: its tag, or a first key `kind`; empty if it has none."""
    first = struct.__struct_fields__[:1]
    return struct.__struct_config__.tag_field or ("kind" if first == ("kind",) else "")


def annotation_of(kind: Any, keys: Iterable[str]) -> Any:
    """Return the type of the value below `keys` of `kind`; Any if unknown."""
    for key in keys:
        kind = _child(kind, key)
    return kind


def takes_a_list(annotation: Any) -> bool:
    """Return whether a value of that type may be a list and not a text."""
    arms = _alternatives(annotation)
    return str not in arms and any(get_origin(arm) in (list, tuple) for arm in arms)


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    """List the alternatives of an annotation: the arms of a union, without Annotated."""
    while hasattr(annotation, "__metadata__"):
        annotation = annotation.__origin__
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(arm for part in get_args(annotation) for arm in _alternatives(part))
    return (annotation,)


@cache
def _structs(annotation: Any) -> tuple[type[msgspec.Struct], ...]:
    return tuple(arm for arm in _alternatives(annotation) if isinstance(arm, type) and issubclass(arm, msgspec.Struct))


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _complete(value: Any, annotation: Any, keys: tuple[str | int, ...] = (), name: str = "") -> Any:
    """Return a value of the key `name` with bare names as {policy: name}, by `name_key`, and texts with a unit as
    numbers; ValidationError for a wrong unit."""
    if len(keys) > DEEPEST:
        raise _wrong(f"more than {DEEPEST} tables and lists within each other", keys)
    if isinstance(value, Mapping):
        structs = _structs(annotation)
        tags = tag_fields(annotation, ())
        return {
            key: _complete(
                item, Any if key in tags else _child(annotation, key), (*keys, key), str(key) if structs else name
            )
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        child = _child(annotation, 0)
        return [_complete(item, child, (*keys, place), name) for place, item in enumerate(value)]
    if isinstance(value, str):
        return _written_out(value, annotation, keys, name)
    return value


def _check_numbers(value: Any, keys: tuple[str | int, ...] = ()) -> None:
    """Raise ValidationError at a number that is NaN, infinite or beyond LARGEST."""
    if isinstance(value, Mapping | list | tuple):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            _check_numbers(item, (*keys, key))
    elif isinstance(value, int | float) and not abs(value) <= LARGEST:
        raise _wrong(f"expected a number from {-LARGEST:g} to {LARGEST:g}", keys)


def _written_out(text: str, annotation: Any, keys: tuple[str | int, ...], name: str) -> Any:
    """Return the table of a bare name, or the number of a text with a unit; else the text."""
    arms = _alternatives(annotation)
    if str in arms or Any in arms:
        return text
    if tags := tag_fields(annotation, ()):
        return {min(tags): text}
    mean = next((struct.__struct_fields__[0] for struct in _structs(annotation)), "")
    mean = mean if mean in MEANS else ""
    if not (mean or int in arms or float in arms):
        return text
    try:
        number = quantity(text, mean or name, _is_share(annotation))
    except ValueError as error:
        raise _wrong(str(error), keys) from error
    if number is not None and int in arms and number.is_integer():
        number = int(number)
    return text if number is None else {mean: number} if mean else number


def _is_share(annotation: Any) -> bool:
    """Return whether a type is a share: a number from 0 to 1."""
    bounds = [part for part in getattr(annotation, "__metadata__", ()) if isinstance(part, msgspec.Meta)]
    arms = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else ()
    return any(1 in (part.le, part.lt) for part in bounds) or any(_is_share(arm) for arm in arms)


def _wrong(what: str, keys: Iterable[str | int]) -> msgspec.ValidationError:
    """Return msgspec's kind of error, which `_explain` reads: the problem and its path."""
    path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return msgspec.ValidationError(f"{what} - at `${path}`")


STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")


def _explain(message: str, content: Any, kind: Any) -> str:
    """Rewrite msgspec's message as `key = value: what is allowed`."""
    text, _, path = message.partition(" - at `")
    keys: list[str | int] = []
    value, annotation = content, kind
    for name, index in STEP.findall(path.removesuffix("`").removeprefix("$").removeprefix("key in ")):
        key: Any = name or (_culprit(value, annotation) if index == "..." else int(index))
        keys.append(key)
        value = _below(value, key)
        annotation = _child(annotation, key)
    where, shown = ".".join(str(key) for key in keys), shortened(value)
    unknown = re.search(r"unknown field `(.*)`", text, re.DOTALL)
    if unknown:
        structs, table = _structs(annotation), value if isinstance(value, Mapping) else {}
        tagged = [
            struct
            for struct in structs
            if (tag := struct.__struct_config__).tag and table.get(tag.tag_field) == tag.tag
        ]
        allowed = sorted({field for struct in tagged or structs for field in struct.__struct_fields__})
        key_text = f"{where}.{unknown[1]}" if where else unknown[1]
        given, few = table.get(unknown[1], value), FEW >= len(allowed) > SHOWN
        elsewhere = [
            f"{name}.{unknown[1]}"
            for name, hint in _hints(kind).items()
            if not tagged and len(tables := _structs(hint)) == 1 and unknown[1] in tables[0].__struct_fields__
        ]
        elsewhere += [f"{where}.{allowed[0]}"] * (bool(tagged) and len(allowed) == 1)
        elsewhere = [ENGINES_WORDS[key_text]] if key_text in ENGINES_WORDS else elsewhere
        near = f"nearest: {', '.join(elsewhere)}" if elsewhere else nearest(unknown[1], allowed)
        known = f"; allowed: {', '.join(allowed)}" if few else ""
        return f"unknown key {shortened(key_text, quoted=False)} = {shortened(given)}; {near}{known}"
    missing = re.search(r"missing required field `(\w+)`", text)
    choices = _choices(annotation)
    if missing:
        is_tag = missing[1] in {struct.__struct_config__.tag_field for struct in _structs(annotation)}
        values = f"; allowed: {', '.join(choices)}" if is_tag else ""
        fields = msgspec.structs.fields(structs[0]) if len(structs := _structs(annotation)) == 1 and not is_tag else ()
        others = [field.encode_name for field in fields if field.required and field.encode_name not in value]
        needed = "`, `".join(dict.fromkeys([missing[1], *others]))
        return f"{where or 'content'} = {shown} needs the key{'s' * (', ' in needed)} `{needed}`{values}"
    if choices and re.match(r"Invalid (enum )?value", text):
        return f"{where} = {shown} is not known; allowed: {', '.join(choices)}"
    instead = f"; {INSTEAD[said]}" if (said := f"{where} = {shown}") in INSTEAD else ""
    inner = [key for table in _structs(annotation) for key in table.__struct_fields__]
    if "`object" in text and where and inner:
        instead = f"; it is a table: set a key in it, such as {where}.{inner[0]}"
    return f"{where or 'content'} = {shown}: {text[:1].lower()}{text[1:]}{instead}"


def _below(value: Any, key: Any) -> Any:
    """Return the value below a key, or the value itself if the path of a message does not continue."""
    try:
        return value[key] if isinstance(value, Mapping | list | tuple) else value
    except (KeyError, IndexError, TypeError):
        return value


def _culprit(value: Any, annotation: Any) -> str | int:
    """Return the key of a table, or the index in a list, of the value that cannot be converted; msgspec omits it."""
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        try:
            msgspec.convert(item, _child(annotation, key))
        except msgspec.ValidationError:
            return key
    return "..."


@cache
def _child(annotation: Any, key: str | int) -> Any:
    for struct in _structs(annotation):
        hints = _hints(struct)
        if key in hints:
            return hints[str(key)]
    for struct in _structs(annotation):
        if key == struct.__struct_config__.tag_field:
            return annotation
    for arm in _alternatives(annotation):
        if get_origin(arm) in (dict, tuple, list):
            return get_args(arm)[1 if get_origin(arm) is dict else 0]
    return Any


def _choices(annotation: Any) -> list[str]:
    """List the names that a tagged union or a Literal allows."""
    names = [str(struct.__struct_config__.tag) for struct in _structs(annotation) if struct.__struct_config__.tag]
    for arm in _alternatives(annotation):
        names += [str(name) for name in get_args(arm) if isinstance(name, str)]
    return names
