"""A word's entries, or the nearest words."""

import textwrap
from collections.abc import Callable, Sequence
from difflib import get_close_matches

from fleet.errors import InputError
from fleet.inputs.text import shortened
from specfleet.meaning.docstrings import UNITS
from specfleet.meaning.entries import Entry, all_entries

WIDTH = 100
NEAREST = 5
SHORT = ("type", "allowed", "unit", "default", "symbol")  # facts that share a line


def explain(word: str) -> list[Entry]:
    """Return the entries of a key (its full name or the last parts of it), metric, symbol, column, policy or model.

    A word may leave out a unit at the end (`wait` for `wait_s`) and mind no capitals, where nothing else fits. Raises
    InputError with the nearest words where there is no entry.
    """
    entries = all_entries()
    asked = word.strip().strip("`").replace("[]", "")
    tests: tuple[Callable[[str], bool], ...] = (
        lambda name: name == asked or name.endswith(f".{asked}"),
        lambda name: _bare(name) == asked or _bare(name).endswith(f".{asked}"),
        lambda name: name.casefold() == asked.casefold() or name.casefold().endswith(f".{asked.casefold()}"),
    )
    for fits in tests:
        found = [entry for entry in entries if any(fits(name) for name in entry.names)]
        if found:
            return found
    near = _nearest(asked, entries)
    told = "nearest: " + ", ".join(near) if near else "nothing is near it"
    raise InputError(f"explain {shortened(word, quoted=False)}: unknown; {told}")


def units_of_keys() -> dict[str, str]:
    """Return the units of a scenario's keys, by their dotted names, as their descriptions have them."""
    keys = [entry for entry in all_entries() if "key" in entry.kind]
    return {name: text for entry in keys for name in entry.names for label, text in entry.facts if label == "unit"}


def in_lines(entry: Entry) -> str:
    """Return an entry as text for a terminal."""
    lines = [f"{entry.title}: {entry.kind}"]
    lines += [_indented(paragraph) for paragraph in entry.what.split("\n\n") if paragraph]
    short = "; ".join(text if label == "type" else f"{label}: {text}" for label, text in entry.facts if label in SHORT)
    lines += [_indented(short)] if short else []
    lines += [_indented(f"{label}: {text}") for label, text in entry.facts if label not in SHORT]
    return "\n".join(lines)


def _bare(name: str) -> str:
    """Return a name without the unit at its end."""
    for ending in ("_tokens", *(f"_{ending.lstrip('_')}" for ending, _ in UNITS)):
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name


def _nearest(word: str, entries: Sequence[Entry]) -> list[str]:
    full = {name for entry in entries for name in entry.names}
    known = full if "." in word else {name.rpartition(".")[2] for name in full}
    return get_close_matches(word, sorted(known), NEAREST)


def _indented(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="    ", subsequent_indent="    ")
