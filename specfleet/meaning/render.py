"""Entries as text for a terminal, and as a commented scenario in TOML."""

import os
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.errors import InputError
from specfleet.fleet.files import write_file
from specfleet.fleet.inputs.text import shortened
from specfleet.fleet.scenario.writing import toml
from specfleet.meaning.entries import LEFT_OUT, OF_ITS_KEYS, REQUIRED, Entry, known_entries
from specfleet.meaning.shipped import first_comment

WIDTH, COMMENT_WIDTH, INDENT = 100, 110, " " * 4
SHORT = ("type", "allowed", "unit", "default", "symbol")  # facts that share a line
NO_VALUE = (REQUIRED, LEFT_OUT, OF_ITS_KEYS)
OF_SCENARIO = "scenario key"  # the kind of entries
TAGGED = re.compile(r"table with `(\w+)`")
HEADER = re.compile(r"^\[(\w+)\]\s*#\s*(.+)$", re.MULTILINE)


def in_lines(entry: Entry) -> str:
    """Return an entry as text for a terminal."""
    short = "; ".join(
        text if label == "type" else f"{label}: {text}" for label, text in entry.facts.items() if label in SHORT
    )
    parts = [" ".join(part.split()) for part in re.split(r"\n\n|\n {4}(?=\w)", entry.what)] + [short]
    parts += [f"{label}: {text}" for label, text in entry.facts.items() if label not in SHORT]
    filled = [textwrap.fill(part, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT) for part in parts if part]
    return "\n".join([f"{entry.title}: {entry.kind}", *filled])


def write_template(kind: str, path: Path) -> None:
    """Write the commented scenario of a kind, or a shipped device; InputError for none, or where the file exists."""
    devices = shipped_files("devices")
    text = devices[kind].read_text() if kind in devices else template(kind)
    if os.path.lexists(path):
        raise InputError(f"init {kind}: {path} exists already; name another file with -o")
    write_file(path, text)


def template(kind: str) -> str:
    """Return the shipped scenario of that name, each key with its meaning; it reads back to the same scenario.

    A comment begins with `# `; a line that begins with `#` alone is a key at its default, ready to be changed.
    """
    files = shipped_files("scenarios")
    if kind not in files:
        raise InputError(f"{shortened(kind, quoted=False)}: does not ship; allowed: devices, {', '.join(files)}")
    text = files[kind].read_text()
    content, comments = tomllib.loads(text), dict(HEADER.findall(text))
    keys = [entry for entry in known_entries() if entry.kind == OF_SCENARIO and entry.name == entry.title]
    tables = [key for key in keys if "table" in key.facts["type"] and not isinstance(content.get(key.name), str)]
    parts = [[*_comment(first_comment(text)), *_comment("`specfleet explain KEY` says more of any key.")]]
    parts += [list(_key_lines(key, content)) for key in keys if key not in tables]
    absent = _comment("Tables that this scenario leaves out:")
    for key in tables:
        values = content.get(key.name, {})
        if isinstance(values, list):
            parts += [part for entry in values for part in _table_lines(key, entry, "", f"[[{key.name}]]")]
        elif key.name in content or key.facts["default"] == OF_ITS_KEYS:
            parts += _table_lines(key, values, comments.get(key.name, ""), f"[{key.name}]")
        else:
            absent += _comment(_said(key))
    return "\n\n".join("\n".join(part) for part in [*parts, absent]) + "\n"


def _table_lines(table: Entry, content: Mapping[str, Any], comment: str, heading: str) -> Iterator[list[str]]:
    """Yield the heading of a table, then each of its keys; of a profile only the keys that it has."""
    yield [*_comment(table.what), *_comment(comment), heading]
    field, tag = _tagged(table, content)
    if tag:
        yield [*_comment(f"{field}: {table.facts['allowed']}."), *_named(field, tag), f"{field} = {toml(tag)}"]
    plain = (entry for entry in known_entries() if entry.kind in (OF_SCENARIO, "profile key"))
    inner = (entry for entry in plain if any(name.rpartition(".")[0] == table.title for name in entry.names))
    for key in _keys_of(field, tag) if tag else inner:
        if key.name in content or table.title != "profile":
            yield list(_key_lines(key, content))


def _key_lines(key: Entry, content: Mapping[str, Any]) -> Iterator[str]:
    """Yield a key's meaning, that of the policy or model which it names, and its line."""
    yield from _comment(_said(key))
    value, default = content.get(key.name), key.facts["default"]
    field, tag = _tagged(key, value)
    if tag:
        yield from _named(field, tag)
        for inner in _keys_of(field, tag):
            yield from _comment(_said(inner), 8)
    if key.name in content:
        line = f"{key.name} = {toml(value)}"
        if len(line) > COMMENT_WIDTH and isinstance(value, list):
            yield from (f"{key.name} = [", *(f"    {toml(entry)}," for entry in value), "]")
        else:
            yield line
    elif default not in NO_VALUE:
        yield f"#{key.name} = {default}"


def _said(key: Entry) -> str:
    default = key.facts["default"]
    said = "left out unless set" if default == LEFT_OUT else "" if default in NO_VALUE else f"default {default}"
    facts = [fact for fact in (key.facts.get("unit"), key.facts.get("allowed"), said) if fact]
    return f"{key.name} ({'; '.join(facts)}): {key.what}" if facts else f"{key.name}: {key.what}"


def _tagged(key: Entry, value: Any) -> tuple[str, str]:
    """Return the key that names the policy or model in a key's value, and that name; empty for other keys."""
    field = "".join(TAGGED.findall(key.facts["type"])[:1])
    return (field, value.get(field, "") if isinstance(value, Mapping) else value or "") if field else ("", "")


def _named(field: str, tag: str) -> list[str]:
    first = (entry.what.partition("\n\n")[0] for entry in known_entries() if entry.kind == field and tag in entry.names)
    return [line for what in first for line in _comment(f'"{tag}": {what}', 4)]


def _keys_of(field: str, tag: str) -> list[Entry]:
    return [entry for entry in known_entries() if entry.kind == f'key of the {field} "{tag}"']


def _comment(text: str, indent: int = 0) -> list[str]:
    return textwrap.wrap(
        text, COMMENT_WIDTH, initial_indent="# " + " " * indent, subsequent_indent="# " + " " * (indent + 2),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
