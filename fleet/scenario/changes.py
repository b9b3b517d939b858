"""A scenario's content by dotted keys: changes, as `--set` and Python write them, and leaves."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import msgspec

from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.strict import annotation_of, tag_fields, takes_a_list
from specfleet.fleet.inputs.text import shortened
from specfleet.fleet.scenario.scenario import Scenario

Changes = Mapping[str, Any] | Sequence[str | tuple[str, Any]]
"""Values by dotted key: a mapping, pairs, or texts such as `verifiers.count=4` and `link.latency_s=10ms`."""


def parse_value(text: str, key: str = "") -> Any:
    """Read a value as TOML; anything else is a string, so that names and quantities (`10ms`) need no quotes.

    If the scenario has a list at `key`, brackets may be left out: `1,2,3`.
    """
    bare = text.strip()
    if takes_a_list(annotation_of(Scenario, key.split("."))):
        inner = bare[1:-1] if bare.startswith("[") and bare.endswith("]") and len(parts_of(bare)) == 1 else bare
        return [parse_value(part) for part in parts_of(inner)]
    try:
        content = tomllib.loads(f"value = {bare}")
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):  # ValueError: digits beyond Python's limit
        return text
    return content["value"] if len(content) == 1 else text  # a value has one line


def parts_of(text: str) -> list[str]:
    """Split a text at its commas outside brackets, braces and quotes; a blank text has no parts.

    >>> parts_of("1, [2, 3], {low = 4, high = 5}")
    ['1', '[2, 3]', '{low = 4, high = 5}']
    """
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        else:
            depth += (character in "[{") - (character in "]}")
        if character == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts] if text.strip() else []


def pairs_of(changes: Changes) -> Iterator[tuple[str, Any]]:
    """Yield key and value of each change; InputError for anything but a pair or a text with `=`."""
    for change in changes.items() if isinstance(changes, Mapping) else changes:
        if isinstance(change, tuple):
            yield change
            continue
        text = str(change)
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise InputError(f"--set {shortened(text, quoted=False)}: write KEY=VALUE, for example verifiers.count=4")
        yield key.strip(), parse_value(value, key.strip())


def apply_changes(content: dict[str, Any], changes: Changes, origin: str) -> None:
    """Apply changes in place, in order; InputError if a key leads below a value.

    A table merges into the existing one, key by key, unless it has a tag (`policy`, `model`, ...): then it replaces
    the existing one. Structs, such as a profile, replace existing values. A number leads to an item of a list, from 0.
    numpy's numbers, ranges and paths become plain values. None is a missing key. A rule with lengths of its own also
    replaces `drafters.depth`.
    """
    drafters, had_lengths = content.get("drafters"), _has_lengths(content)
    depth = drafters.pop("depth", None) if isinstance(drafters, dict) else None
    for key, value in pairs_of(changes):
        *folders, leaf = str(key).split(".")
        if not all([*folders, leaf]):
            raise InputError(f"{origin}: key {key!r}: write names with dots between, such as verifiers.count")
        table: Any = content
        for place, folder in enumerate(folders, start=1):
            at, inner = _entry(table, folder, f"{origin}: {key}")
            table[at] = inner = _opened(inner, folders[:place])
            if not isinstance(inner, dict | list):
                raise InputError(
                    f"{origin}: {key} = {shortened(value)}: {folder} = {shortened(inner)} is a value, not a table"
                )
            table = inner
        at, old = _entry(table, leaf, f"{origin}: {key}")
        try:
            table[at] = _merged(old, value, (*folders, leaf))
        except (TypeError, RecursionError) as error:
            allowed = "a number, text, true or false, a list or a table"
            raise InputError(
                f"{origin}: {key} = {shortened(value)}: no value of a scenario; allowed: {allowed}"
            ) from error
    drafters = content.get("drafters")
    if depth is not None and isinstance(drafters, dict) and (had_lengths or not _has_lengths(content)):
        drafters.setdefault("depth", depth)


def _entry(table: Any, key: str, whole: str) -> tuple[Any, Any]:
    """Return the place of a key in a table, or of a number in a list, and the value there; None for a missing key."""
    if isinstance(table, dict):
        return key, table.get(key)
    places = list(map(str, range(len(table))))
    if key not in places:
        raise InputError(f"{whole}: {shortened(key)} is no place in a list of {len(places)}; the first is 0")
    return int(key), table[int(key)]


def _has_lengths(content: Mapping[str, Any]) -> bool:
    """Whether drafts get their lengths from `verifiers.allocate` or from drafting ahead."""
    drafters, verifiers = (
        side if isinstance(side, dict) else {} for side in map(content.get, ("drafters", "verifiers"))
    )
    return verifiers.get("allocate") is not None or "ahead" in str(drafters.get("overlap"))


def _opened(value: Any, keys: Sequence[str]) -> Any:
    """Return the value below `keys` as a table or list: a missing one is empty, a bare name becomes its table."""
    if value is None or isinstance(value, tuple):
        return {} if value is None else list(value)
    tags = tag_fields(Scenario, keys) if isinstance(value, str) else set()
    return {min(tags): value} if tags else value


def _merged(old: Any, new: Any, keys: tuple[str, ...]) -> Any:
    if not isinstance(new, Mapping):
        return plain(new)
    if not isinstance(old, dict) or tag_fields(Scenario, keys) & new.keys():
        old = {}
    return old | {key: _merged(old.get(key), value, (*keys, str(key))) for key, value in new.items()}


def plain(value: Any) -> Any:
    """Return a value in plain types: structs become tables, as do numpy's numbers, ranges and paths; else TypeError."""
    return msgspec.to_builtins(value, enc_hook=_plain)


def _plain(value: Any) -> Any:
    """Convert values that msgspec cannot: numpy's, pandas' and paths."""
    if hasattr(value, "tolist"):  # numpy's numbers and arrays, pandas' series
        return value.tolist()
    if isinstance(value, range):
        return list(value)
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{type(value).__name__} is no value of a scenario")


def flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested content as (dotted key, value).

    >>> list(flat({"seed": 1, "link": {"latency_s": 0.01}}))
    [('seed', 1), ('link.latency_s', 0.01)]
    """
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
