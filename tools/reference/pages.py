"""The reference pages but that of the commands, as Markdown."""

import re
from collections.abc import Iterable, Sequence
from typing import get_args

from specfleet.fleet.acceptance.signals import SignalRow
from specfleet.fleet.records.metrics.glossary import METRICS, Meaning
from specfleet.fleet.records.metrics.window import Metric
from specfleet.fleet.records.run import RunHeader
from specfleet.fleet.records.schema import Row
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.writing import tag_of
from specfleet.fleet.stations.messages import StationEvent
from specfleet.fleet.stations.star import StarInputs
from specfleet.meaning.render import NO_VALUE
from specfleet.sim.analytic import StarPrediction
from tools.reference import texts
from tools.reference.entries import SYMBOLS, Key, KeyTable, keys_of, prose_of, tables_from


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
