"""A commented scenario to begin with: one that ships, with every key that it could have beside those that it has.

A comment begins with `# `; a line that begins with `#` alone is a key at its default, ready to be changed.
"""

import os
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fleet.errors import InputError
from fleet.files import write_file
from fleet.scenario.scenario import Scenario
from fleet.scenario.writing import tag_of, toml
from specfleet.meaning.docstrings import docs_of
from specfleet.meaning.kinds import LEFT_OUT, OF_ITS_KEYS, REQUIRED
from specfleet.meaning.shipped import first_comment, scenario_file
from specfleet.meaning.tables import Key, keys_of

WIDTH = 110
HEADER = re.compile(r"^\[(\w+)\]\s*#\s*(.+)$", re.MULTILINE)


def write_template(kind: str, path: Path) -> None:
    """Write the commented scenario of a kind; InputError if there is no such kind, or the file exists already."""
    text = template(kind)
    if os.path.lexists(path):
        raise InputError(f"init {kind}: {path} exists already; name another file with -o")
    write_file(path, text)


def template(kind: str) -> str:
    """Return the scenario of that kind that ships, each key with its meaning; it reads back to the same scenario."""
    text = scenario_file(kind).read_text()
    content, remarks = tomllib.loads(text), dict(HEADER.findall(text))
    keys = keys_of(Scenario)
    tables = {key.name for key in keys if key.tables and not isinstance(content.get(key.name), str)}
    parts = [[*_comment(first_comment(text)), *_comment("`specfleet explain KEY` says more of any key.")]]
    parts += [list(_key(key, content)) for key in keys if key.name not in tables]
    absent = []
    for key in keys:
        if key.name in tables:
            given = content.get(key.name, {})
            if isinstance(given, list):
                parts += [part for entry in given for part in _table(key, entry, "", f"[[{key.name}]]")]
            elif key.name in content or key.default == OF_ITS_KEYS:
                parts += _table(key, given, remarks.get(key.name, ""), f"[{key.name}]")
            else:
                absent += _comment(f"{key.name}{_facts(key)}: {key.what}")
    parts.append([*_comment("Tables that this scenario leaves out:"), *absent])
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _table(key: Key, content: Mapping[str, Any], remark: str, heading: str) -> Iterator[list[str]]:
    """Yield the heading of a table, then each of its keys; of a profile only the keys that it has."""
    struct, chosen = _chosen(key, content)
    yield [*_comment(key.what), *(_comment(remark) if remark else []), heading]
    if chosen:
        field, name = tag_of(struct)
        said = [*_comment(f"{field}: {key.allowed}."), *_comment(f'"{name}": {docs_of(struct).first}', 4)]
        yield [*said, f"{field} = {toml(name)}"]
    for inner in keys_of(struct):
        if inner.name in content or key.name != "profile":
            yield list(_key(inner, content))


def _chosen(key: Key, content: Mapping[str, Any]) -> tuple[type, bool]:
    """Return the struct that the content of a table is, and whether the table names it as a policy or model."""
    for struct in key.tables:
        field, name = tag_of(struct)
        if field and content.get(field) == name:
            return struct, True
    return key.tables[0], False


def _key(key: Key, content: Mapping[str, Any]) -> Iterator[str]:
    """Yield a key's meaning, that of the policy or model which it names, and its line."""
    yield from _comment(f"{key.name}{_facts(key)}: {key.what}")
    value = content.get(key.name)
    named = {tag_of(struct)[1]: struct for struct in key.tables if tag_of(struct)[0]}
    field = next((tag_of(struct)[0] for struct in named.values()), "")
    name = value.get(field) if isinstance(value, Mapping) else value
    if isinstance(name, str) and name in named:
        yield from _comment(f'"{name}": {docs_of(named[name]).first}', 4)
        for inner in keys_of(named[name]):
            yield from _comment(f"{inner.name}{_facts(inner)}: {inner.what}", 8)
    if key.name in content:
        yield from _line(key.name, value)
    elif key.default not in (REQUIRED, LEFT_OUT, OF_ITS_KEYS):
        yield f"#{key.name} = {key.default}"


def _line(name: str, value: Any) -> list[str]:
    """Return the line of a key with its value; a list that is too long for one has a line an entry."""
    line = f"{name} = {toml(value)}"
    if len(line) <= WIDTH or not isinstance(value, list):
        return [line]
    return [f"{name} = [", *(f"    {toml(entry)}," for entry in value), "]"]


def _facts(key: Key) -> str:
    default = f"default {key.default}" if key.default not in (REQUIRED, LEFT_OUT, OF_ITS_KEYS) else ""
    default = "left out unless set" if key.default == LEFT_OUT else default
    facts = [fact for fact in (key.unit, key.allowed, default) if fact]
    return f" ({'; '.join(facts)})" if facts else ""


def _comment(text: str, indent: int = 0) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent="# " + " " * indent, subsequent_indent="# " + " " * (indent + 2),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
