"""The pages of docs/reference/ as Markdown, made from what the code says of itself."""

import re
from collections.abc import Iterable, Sequence
from typing import get_args

from fleet.chance.places import PlaceRow
from fleet.chance.signals import SignalRow
from fleet.records.glossary import METRICS, SYMBOLS, Meaning
from fleet.records.run import RunHeader
from fleet.records.schema import Row
from fleet.records.window import Metric
from fleet.scenario.writing import tag_of
from fleet.stations.messages import StationEvent
from sim.predict import StarInputs
from specfleet.meaning.docstrings import docs_of
from specfleet.meaning.entries import is_of_profile, prediction_tables, scenario_tables
from specfleet.meaning.kinds import LEFT_OUT, OF_ITS_KEYS, REQUIRED
from specfleet.meaning.tables import Key, Table, keys_of
from specfleet.reference import texts
from specfleet.reference.command_line import command_page
from specfleet.reference.markdown import code, paragraph, table_of

PAGES = {  # name: one line of what it has, for the index
    "scenario.md": "every key of a scenario, with the policies and models that it can name",
    "profile.md": "the format of a profile: step times, links, and what makes steps slower",
    "metrics.md": "every metric with its unit and equation, the symbols of the papers, the analytic model's quantities",
    "records.md": "the record table, the run header and the signal file, column by column",
    "cli.md": "every command with its arguments, options and exit statuses",
}


def all_pages() -> dict[str, str]:
    """Return every page by its file name."""
    parts = {
        "README.md": _index(),
        "scenario.md": _scenario(),
        "profile.md": _profile(),
        "metrics.md": _metrics(),
        "records.md": _records(),
        "cli.md": command_page(),
    }
    return {name: "\n\n".join(part for part in [texts.MADE, *page] if part) + "\n" for name, page in parts.items()}


def _index() -> list[str]:
    lines = [f"- [{name}]({name}): {what}" for name, what in PAGES.items()]
    return ["# Reference", paragraph(texts.INDEX), "\n".join(lines)]


def _scenario() -> list[str]:
    own = [table for table in scenario_tables() if not is_of_profile(table)]
    parts = ["# Scenarios", paragraph(texts.SCENARIOS)]
    parts += [part for table in own if not table.tag_field for part in _section(table, 2)]
    parts.append("## Policies and models")
    return parts + [part for table in own if table.tag_field for part in _section(table, 3)]


def _profile() -> list[str]:
    parts = ["# Profiles", paragraph(texts.PROFILES)]
    for table in scenario_tables():
        if is_of_profile(table):
            parts += _section(table, 3 if table.tag_field else 2)
    return parts


def _metrics() -> list[str]:
    value, inputs = docs_of(Metric), docs_of(StarInputs)
    parts = ["# Metrics and symbols", paragraph(texts.METRICS), value.first, _keys(keys_of(Metric), False)]
    parts += ["## Metrics", _meanings(METRICS)]
    parts += ["## Symbols of the papers", texts.SYMBOLS, _meanings(SYMBOLS)]
    parts += ["## The analytic model", texts.ANALYTIC]
    parts += [part for table in prediction_tables() for part in _section(table, 3, with_default=False)]
    return [*parts, "### Inputs", inputs.first, inputs.prose, _keys(keys_of(StarInputs), False)]


def _records() -> list[str]:
    row, header, signals, places = docs_of(Row), docs_of(RunHeader), docs_of(SignalRow), docs_of(PlaceRow)
    kinds = [kind for arm in get_args(StationEvent) for kind in (get_args(arm) or (arm,))]
    events = [(code(tag_of(kind)[1]), docs_of(kind).first) for kind in kinds]
    parts = ["# Records", paragraph(texts.RECORDS)]
    parts += ["## Record table", row.first, row.prose, _keys(keys_of(Row))]
    parts += ["## Events", texts.EVENTS, table_of(("event", "what happened"), events)]
    parts += ["## Run header", header.first, header.prose, _keys(keys_of(RunHeader), False)]
    parts += ["## Signal file", signals.first, paragraph(texts.SIGNALS), _keys(keys_of(SignalRow), False)]
    return [*parts, "## File of places", places.first, paragraph(texts.PLACES), _keys(keys_of(PlaceRow), False)]


def _section(table: Table, level: int, with_default: bool = True) -> list[str]:
    """Write a table of keys under a heading: what it is, where it stands, its keys."""
    where = ", ".join(map(code, table.uses)) if table.tag_field or len(table.paths) > 1 else ""
    keys = _keys(table.keys, with_default) if table.keys else "It has no keys."
    return [f"{'#' * level} {_title(table)}", table.first, table.prose, f"Where: {where}." if where else "", keys]


def _title(table: Table) -> str:
    name = code(table.title) or "Top level"
    return f"{name} ({table.tag_field})" if table.tag_field else name


def _keys(keys: Sequence[Key], with_default: bool = True) -> str:
    has_symbol = any(key.symbol for key in keys)
    headings = ["key", "type", "allowed", "unit", "default", "symbol", "what it is"]
    rows = [
        [code(key.name), _type(key), _allowed(key), key.unit, _default(key), code(key.symbol), key.what] for key in keys
    ]
    kept = [
        place
        for place, heading in enumerate(headings)
        if (heading != "default" or with_default) and (heading != "symbol" or has_symbol)
    ]
    return table_of([headings[place] for place in kept], [[row[place] for place in kept] for row in rows])


def _type(key: Key) -> str:
    """Name the type of a key's value, with links to the plain tables that it may be."""
    links = [f"[{_known[struct].title or 'scenario'}]({_home(struct)})" for struct in key.tables if _is_plain(struct)]
    return f"{key.takes}: {', '.join(links)}" if links else key.takes


def _allowed(key: Key) -> str:
    """List what is allowed, with links to the policies and models."""
    homes = {f'"{tag_of(struct)[1]}"': struct for struct in key.tables if tag_of(struct)[0]}
    names = key.allowed.split(", ") if key.allowed else []
    return ", ".join(f"[{code(name)}]({_home(homes[name])})" if name in homes else code(name) for name in names)


def _default(key: Key) -> str:
    return key.default if key.default in (REQUIRED, LEFT_OUT, OF_ITS_KEYS) else code(key.default)


_known = {table.struct: table for table in (*prediction_tables(), *scenario_tables())}


def _is_plain(struct: type) -> bool:
    return struct in _known and not tag_of(struct)[0]


def _home(struct: type) -> str:
    """Return where a documented struct is described: a page and its anchor there."""
    table = _known[struct]
    predicted = struct not in {of_scenario.struct for of_scenario in scenario_tables()}
    page = "metrics.md" if predicted else "profile.md" if is_of_profile(table) else "scenario.md"
    # A viewer makes an anchor of a heading by leaving out what is neither letter, digit, hyphen, underscore nor space.
    return f"{page}#{re.sub(r'[^a-z0-9_ -]', '', _title(table).lower()).replace(' ', '-')}"


def _meanings(meanings: Iterable[Meaning]) -> str:
    rows = [(code(one.name), one.unit, one.what, code(one.symbol), code(one.equation), one.source) for one in meanings]
    return table_of(("name", "unit", "what it is", "symbol", "equation", "source"), rows)
