"""Entries as text for a terminal, as a commented scenario in TOML, and as the Markdown of docs/reference/."""

import os
import re
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from fleet.acceptance.places import PlaceRow
from fleet.acceptance.signals import SignalRow
from fleet.data.shipped import shipped_scenarios
from fleet.errors import InputError
from fleet.files import write_file
from fleet.inputs.text import shortened
from fleet.records.metrics.glossary import METRICS, SYMBOLS, Meaning
from fleet.records.metrics.window import Metric
from fleet.records.run import RunHeader
from fleet.records.schema import Row
from fleet.scenario.scenario import Scenario
from fleet.scenario.writing import tag_of, toml
from fleet.stations.messages import StationEvent
from fleet.stations.star import StarInputs
from sim.analytic import StarPrediction
from specfleet.meaning import texts
from specfleet.meaning.entries import (
    LEFT_OUT,
    OF_ITS_KEYS,
    REQUIRED,
    Entry,
    Key,
    KeyTable,
    keys_of,
    prose_of,
    tables_from,
)
from specfleet.meaning.shipped import first_comment

WIDTH, COMMENT_WIDTH, INDENT = 100, 110, " " * 4
SHORT = ("type", "allowed", "unit", "default", "symbol")  # facts that share a line
NO_VALUE = (REQUIRED, LEFT_OUT, OF_ITS_KEYS)
HEADER = re.compile(r"^\[(\w+)\]\s*#\s*(.+)$", re.MULTILINE)


def in_lines(entry: Entry) -> str:
    """Return an entry as text for a terminal."""
    short = "; ".join(text if label == "type" else f"{label}: {text}" for label, text in entry.facts if label in SHORT)
    parts = [*entry.what.split("\n\n"), short]
    parts += [f"{label}: {text}" for label, text in entry.facts if label not in SHORT]
    filled = [textwrap.fill(part, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT) for part in parts if part]
    return "\n".join([f"{entry.title}: {entry.kind}", *filled])


def write_template(kind: str, path: Path) -> None:
    """Write the commented scenario of a kind; InputError if there is no such kind, or the file exists already."""
    text = template(kind)
    if os.path.lexists(path):
        raise InputError(f"init {kind}: {path} exists already; name another file with -o")
    write_file(path, text)


def template(kind: str) -> str:
    """Return the shipped scenario of that name, each key with its meaning; it reads back to the same scenario.

    A comment begins with `# `; a line that begins with `#` alone is a key at its default, ready to be changed.
    """
    files = shipped_scenarios()
    if kind not in files:
        raise InputError(f"scenario {shortened(kind, quoted=False)}: does not ship; allowed: {', '.join(files)}")
    text = files[kind].read_text()
    content, comments, keys = tomllib.loads(text), dict(HEADER.findall(text)), keys_of(Scenario)
    tables = [key for key in keys if key.structs and not isinstance(content.get(key.name), str)]
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


def _table_lines(key: Key, content: Mapping[str, Any], comment: str, heading: str) -> Iterator[list[str]]:
    """Yield the heading of a table, then each of its keys; of a profile only the keys that it has."""
    named = (struct for struct in key.structs if content.get(tag_of(struct)[0], "") == tag_of(struct)[1])
    struct = next(named, key.structs[0])
    field, name = tag_of(struct)
    yield [*_comment(key.what), *_comment(comment), heading]
    if field and field in content:
        yield [*_comment(f"{field}: {key.facts['allowed']}."), *_named(struct), f"{field} = {toml(name)}"]
    for inner in keys_of(struct):
        if inner.name in content or key.name != "profile":
            yield list(_key_lines(inner, content))


def _key_lines(key: Key, content: Mapping[str, Any]) -> Iterator[str]:
    """Yield a key's meaning, that of the policy or model which it names, and its line."""
    yield from _comment(_said(key))
    value = content.get(key.name)
    for struct in key.structs:
        field, name = tag_of(struct)
        if field and name == (value.get(field) if isinstance(value, Mapping) else value):
            yield from _named(struct)
            for inner in keys_of(struct):
                yield from _comment(_said(inner), 8)
    default = key.facts["default"]
    if key.name in content:
        line = f"{key.name} = {toml(value)}"
        if len(line) > COMMENT_WIDTH and isinstance(value, list):
            yield from (f"{key.name} = [", *(f"    {toml(one)}," for one in value), "]")
        else:
            yield line
    elif default not in NO_VALUE:
        yield f"#{key.name} = {default}"


def _said(key: Key) -> str:
    default = key.facts["default"]
    said = "left out unless set" if default == LEFT_OUT else "" if default in NO_VALUE else f"default {default}"
    facts = [fact for fact in (key.facts.get("unit"), key.facts.get("allowed"), said) if fact]
    return f"{key.name} ({'; '.join(facts)}): {key.what}" if facts else f"{key.name}: {key.what}"


def _named(struct: type) -> list[str]:
    return _comment(f'"{tag_of(struct)[1]}": {prose_of(struct)[0]}', 4)


def _comment(text: str, indent: int = 0) -> list[str]:
    return textwrap.wrap(
        text, COMMENT_WIDTH, initial_indent="# " + " " * indent, subsequent_indent="# " + " " * (indent + 2),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def all_pages() -> dict[str, str]:
    """Return every page but that of the commands, by its file name."""
    index = "\n".join(f"- [{name}]({name}): {what}" for name, what in texts.PAGES.items())
    of_scenario = tables_from(Scenario)
    own = [table for table in of_scenario if not table.is_of_profile]
    scenario = [part for table in own if not table.tag_field for part in _section(table, 2)]
    scenario.append("## Policies and models")
    scenario += [part for table in own if table.tag_field for part in _section(table, 3)]
    of_profile = [table for table in of_scenario if table.is_of_profile]
    profile = [part for table in of_profile for part in _section(table, 3 if table.tag_field else 2)]
    metrics = [*_described(Metric), "## Metrics", _meanings(METRICS), "## Symbols of the papers", texts.SYMBOLS]
    metrics += [_meanings(SYMBOLS), "## The analytic model", texts.ANALYTIC]
    metrics += [part for table in tables_from(StarPrediction) for part in _section(table, 3, with_default=False)]
    metrics += ["### Inputs", *_described(StarInputs)]
    kinds = [kind for arm in get_args(StationEvent) for kind in (get_args(arm) or (arm,))]
    events = [(code(tag_of(kind)[1]), prose_of(kind)[0]) for kind in kinds]
    records = ["## Record table", *_described(Row, with_default=True)]
    records += ["## Events", texts.EVENTS, table_of(("event", "what happened"), events)]
    records += ["## Run header", *_described(RunHeader), "## Signal file", *_described(SignalRow, texts.SIGNALS)]
    records += ["## File of places", *_described(PlaceRow, texts.PLACES)]
    return {
        "README.md": page("# Reference", texts.INDEX, index),
        "scenario.md": page("# Scenarios", texts.SCENARIOS, *scenario),
        "profile.md": page("# Profiles", texts.PROFILES, *profile),
        "metrics.md": page("# Metrics and symbols", texts.METRICS, *metrics),
        "records.md": page("# Records", texts.RECORDS, *records),
    }


def page(*parts: str) -> str:
    """Return the parts of a page as one text; empty ones are left out."""
    return "\n\n".join(part.strip() for part in (texts.MADE, *parts) if part) + "\n"


def code(text: str) -> str:
    """Set a text as code; what is empty stays empty."""
    return f"`{text}`" if text else ""


def table_of(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table; what would end a cell is escaped."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _described(struct: type, text: str = "", with_default: bool = False) -> list[str]:
    first, prose = prose_of(struct)
    return [first, text or prose, _keys(keys_of(struct), with_default)]


def _section(table: KeyTable, level: int, with_default: bool = True) -> list[str]:
    """Write a table of keys under a heading: what it is, where it stands, its keys."""
    where = ", ".join(map(code, table.holders))
    keys = _keys(table.keys, with_default) if table.keys else "It has no keys."
    return [f"{'#' * level} {_title(table)}", table.first, table.prose, f"Where: {where}." if where else "", keys]


def _title(table: KeyTable) -> str:
    name = code(table.title) or "Top level"
    return f"{name} ({table.tag_field})" if table.tag_field else name


def _keys(keys: Sequence[Key], with_default: bool) -> str:
    columns = {"key": [code(key.name) for key in keys], "type": [_type(key) for key in keys]}
    columns |= {"allowed": [_allowed(key) for key in keys], "unit": [key.facts.get("unit", "") for key in keys]}
    if with_default:
        defaults = [key.facts["default"] for key in keys]
        columns["default"] = [default if default in NO_VALUE else code(default) for default in defaults]
    symbols = [code(key.facts.get("symbol", "")) for key in keys]
    columns |= {"symbol": symbols} if any(symbols) else {}
    columns["what it is"] = [key.what for key in keys]
    return table_of(list(columns), zip(*columns.values(), strict=True))


def _type(key: Key) -> str:
    """Name the type of a key's value, with links to the plain tables that it may be."""
    plain = [struct for struct in key.structs if struct in _known and not tag_of(struct)[0]]
    links = ", ".join(f"[{_known[struct].title or 'scenario'}]({_home(struct)})" for struct in plain)
    return f"{key.facts['type']}: {links}" if links else key.facts["type"]


def _allowed(key: Key) -> str:
    """List what is allowed, with links to the policies and models."""
    homes = {f'"{tag_of(struct)[1]}"': _home(struct) for struct in key.structs if tag_of(struct)[0]}
    names = key.facts["allowed"].split(", ") if "allowed" in key.facts else []
    return ", ".join(f"[{code(name)}]({homes[name]})" if name in homes else code(name) for name in names)


_known = {table.struct: table for table in (*tables_from(StarPrediction), *tables_from(Scenario))}


def _home(struct: type) -> str:
    """Return where a documented struct is described: a page and its anchor there."""
    table = _known[struct]
    is_predicted = table not in tables_from(Scenario)
    name = "metrics.md" if is_predicted else "profile.md" if table.is_of_profile else "scenario.md"
    # A viewer makes an anchor of a heading by leaving out what is neither letter, digit, hyphen, underscore nor space.
    return f"{name}#{re.sub(r'[^a-z0-9_ -]', '', _title(table).lower()).replace(' ', '-')}"


def _meanings(meanings: Iterable[Meaning]) -> str:
    rows = [
        (
            code(one.name), one.unit, f"{one.what} With percentiles." if one.percentiles else one.what,
            code(one.symbol), code(one.equation), one.source,
        )
        for one in meanings
    ]  # fmt: skip
    return table_of(("name", "unit", "what it is", "symbol", "equation", "source"), rows)
