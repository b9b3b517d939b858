"""Documented structs as tables of keys, found by walking from a root: a scenario, a profile, a prediction."""

from collections.abc import Mapping

import msgspec

from fleet.scenario.writing import fields_of, tag_of
from specfleet.meaning.docstrings import Described, docs_of
from specfleet.meaning.kinds import (
    TABLE_BY_NAME,
    allowed_of,
    default_text,
    in_words,
    is_number,
    tables_in,
)


class Key(msgspec.Struct, frozen=True):
    """A key of a table in words.

    `takes` names its type. `tables`: the structs that its value may be. `is_number`: whether it has a unit.
    """

    name: str
    what: str
    takes: str
    allowed: str
    default: str
    unit: str
    symbol: str
    tables: tuple[type, ...]
    is_number: bool


class Table(msgspec.Struct, frozen=True):
    """A struct with its keys. `paths`: where it stands, as dotted names; `uses`: the keys whose value it may be.

    `title`: its path (the shortest, if all others end with it), the name of a policy or model, or else the struct's own
    name. `tag_field` says which key names the policy or model, empty for a plain table.
    """

    struct: type
    title: str
    tag_field: str
    first: str
    prose: str
    keys: tuple[Key, ...]
    paths: tuple[str, ...]
    uses: tuple[str, ...]


def keys_of(struct: type) -> tuple[Key, ...]:
    """Return the keys of a struct, in its order; a description is empty where the docstring has none."""
    said = docs_of(struct).keys
    keys = []
    for field in fields_of(struct):
        described = said.get(field.name, Described("", "", ""))
        keys.append(
            Key(
                name=field.encode_name,
                what=described.what,
                takes=in_words(field.type),
                allowed=allowed_of(struct, field),
                default=default_text(field),
                unit=described.unit,
                symbol=described.symbol,
                tables=tables_in(field.type),
                is_number=is_number(field.type),
            )
        )
    return tuple(keys)


def tables_from(root: type, at: str = "") -> tuple[Table, ...]:
    """Return the table of `root`, which stands at the dotted name `at`, and all that can stand within it."""
    paths: dict[type, list[str]] = {}
    owners: dict[type, list[tuple[type, str]]] = {}
    _walk(root, at, paths, owners)
    return tuple(_table(struct, paths, owners) for struct in paths)


def joined(path: str, key: str) -> str:
    """Return the dotted name of a key at a path, which is empty at the top."""
    return f"{path}.{key}" if path else key


def _walk(struct: type, path: str, paths: dict[type, list[str]], owners: dict[type, list[tuple[type, str]]]) -> None:
    if path not in paths.setdefault(struct, []):
        paths[struct].append(path)
    for key in keys_of(struct):
        name = f"{key.name}.NAME" if key.takes.startswith(TABLE_BY_NAME) else key.name
        for inner in key.tables:
            if (struct, name) not in owners.setdefault(inner, []):
                owners[inner].append((struct, name))
            _walk(inner, joined(path, name), paths, owners)


def _table(struct: type, paths: Mapping[type, list[str]], owners: Mapping[type, list[tuple[type, str]]]) -> Table:
    docs = docs_of(struct)
    uses = [joined(_title(owner, paths), key) for owner, key in owners.get(struct, [])]
    return Table(
        struct=struct,
        title=_title(struct, paths),
        tag_field=tag_of(struct)[0],
        first=docs.first,
        prose=docs.prose,
        keys=keys_of(struct),
        paths=tuple(paths[struct]),
        uses=tuple(dict.fromkeys(uses)),
    )


def _title(struct: type, paths: Mapping[type, list[str]]) -> str:
    """Its name as a policy or model; else its only path, or the one that all others end with; else its class's name."""
    name, own = tag_of(struct)[1], min(paths[struct], key=len)
    alike = all(f".{path}".endswith(f".{own}") for path in paths[struct])
    return name or (own if alike else struct.__name__)
