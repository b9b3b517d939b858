"""All that can be looked up: keys, policies and models, profile fields, metrics, symbols, columns, predictions."""

from collections.abc import Iterator
from functools import cache

import msgspec

from fleet.chance.places import PlaceRow
from fleet.chance.signals import SignalRow
from fleet.records.glossary import METRICS, SYMBOLS, Meaning
from fleet.records.run import RunHeader
from fleet.records.schema import Row
from fleet.scenario.scenario import Scenario
from fleet.scenario.writing import tag_of
from sim.predict import Prediction, StarInputs
from specfleet.meaning.tables import Key, Table, joined, keys_of, tables_from


class Entry(msgspec.Struct, frozen=True):
    """One thing with its meaning.

    `names`: all that it can be looked up by, dotted names among them. `facts`: what else is known of it, each with its
    label, such as ("unit", "s").
    """

    title: str
    kind: str
    names: tuple[str, ...]
    what: str
    facts: tuple[tuple[str, str], ...] = ()


@cache
def scenario_tables() -> tuple[Table, ...]:
    """Return the tables of a scenario, its own keys first; those of a profile are among them."""
    return tables_from(Scenario)


@cache
def prediction_tables() -> tuple[Table, ...]:
    """Return the tables of what the analytic model says."""
    return tables_from(Prediction)


def is_of_profile(table: Table) -> bool:
    """Whether a table belongs to the profile's format rather than to the scenario's own keys."""
    return table.struct.__module__.startswith("fleet.times.")


def all_entries() -> list[Entry]:
    """Return everything that has a meaning, what people ask for most first."""
    tables = scenario_tables()
    plain = sorted((table for table in tables if not is_of_profile(table)), key=lambda table: bool(table.tag_field))
    of_profile = [table for table in tables if is_of_profile(table)]
    entries = [entry for table in plain for entry in _of_keys(table, "scenario key")]
    entries += [_of_meaning(meaning, "metric") for meaning in METRICS]
    entries += [_of_meaning(meaning, "symbol") for meaning in SYMBOLS]
    entries += [entry for table in of_profile for entry in _of_keys(table, "profile key")]
    entries += [entry for table in prediction_tables() for entry in _of_keys(table, "quantity of the analytic model")]
    entries += [_of_key(key, (key.name,), "input of the analytic model") for key in keys_of(StarInputs)]
    entries += [_of_key(key, (key.name,), "column of the record table") for key in keys_of(Row)]
    entries += [_of_key(key, (f"header.{key.name}",), "field of the run header") for key in keys_of(RunHeader)]
    entries += [_of_key(key, (key.name,), "column of a signal file") for key in keys_of(SignalRow)]
    entries += [_of_key(key, (key.name,), "column of a file of places") for key in keys_of(PlaceRow)]
    entries += [_of_table(table) for table in tables if table.tag_field or table.title[:1].isupper()]
    return entries


def _of_keys(table: Table, kind: str) -> Iterator[Entry]:
    """Yield an entry for each key of a table, by all the dotted names that it has."""
    if table.tag_field:
        kind = f'key of the {table.tag_field} "{table.title}"'
    where = (("where", ", ".join(table.uses)),) if table.tag_field or len(table.paths) > 1 else ()
    for key in table.keys:
        names = [joined(table.title, key.name), *(joined(path, key.name) for path in table.paths)]
        yield _of_key(key, tuple(names), kind, where)


def _of_key(key: Key, names: tuple[str, ...], kind: str, where: tuple[tuple[str, str], ...] = ()) -> Entry:
    facts = [("type", key.takes), ("allowed", key.allowed), ("unit", key.unit)]
    if "key" in kind:
        facts.append(("default", key.default))
    facts.append(("symbol", key.symbol))
    inner = [table for table in key.tables if not tag_of(table)[0]]
    facts += [("keys", ", ".join(part.name for table in inner for part in keys_of(table))), *where]
    names = (*dict.fromkeys(names), *([key.symbol] if key.symbol else []))
    return Entry(names[0], kind, names, key.what, tuple((label, text) for label, text in facts if text))


def _of_meaning(meaning: Meaning, kind: str) -> Entry:
    facts = (
        ("unit", meaning.unit),
        ("symbol", meaning.symbol),
        ("equation", meaning.equation),
        ("source", meaning.source),
    )
    names = tuple(dict.fromkeys(name for name in (meaning.name, meaning.symbol) if name))
    return Entry(meaning.name, kind, names, meaning.what, tuple((label, text) for label, text in facts if text))


def _of_table(table: Table) -> Entry:
    """Return the entry of a policy or model, or of a table that has a name of its own."""
    kind = table.tag_field or "table"
    keys = ", ".join(key.name for key in table.keys)
    facts = (("where", ", ".join(table.uses)), ("keys", keys or "none"))
    return Entry(
        table.title, kind, (table.title, table.struct.__name__), f"{table.first}\n\n{table.prose}".strip(), facts
    )
