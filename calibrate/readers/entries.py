"""Files of responses or records: one JSON object, a list of them, or JSON Lines; each with a name for errors."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.text import parse_json, read_text, shortened

NO_LIMIT = '"request_rate": Infinity', '"request_rate": "inf"'  # as SGLang's benchmark writes it, and as vLLM's does

Fields = Mapping[str, Sequence[str]]
"""Where a tool keeps the fields of a request: by name, the first of some ways that is there."""


def read_entries(files: Sequence[Path]) -> Iterator[tuple[str, Any]]:
    """Yield each entry of the files, with its name: the file, and the line or the place in its list, from 1.

    Raises InputError where a file cannot be read or is no JSON.
    """
    for path in files:
        text = read_text(path).replace(*NO_LIMIT)
        lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
        if len(lines) > 1 and _is_json(lines[0][1]):
            yield from (
                (f"{path}, line {number}", parse_json(line, f"{path}, line {number}")) for number, line in lines
            )
            continue
        content = parse_json(text, str(path))
        if isinstance(content, list):
            yield from ((f"{path}, entry {number}", entry) for number, entry in enumerate(content, start=1))
        else:
            yield str(path), content


def table_of(entry: Any, origin: str) -> dict[str, Any]:
    """Return an entry that has to be an object; InputError where it is none."""
    if not isinstance(entry, dict):
        raise InputError(f"{origin}: needs an object; holds {shortened(entry, most=60)}")
    return entry


def fields_in(entry: Any, fields: Fields) -> dict[str, Any]:
    """Return the fields that an entry has."""
    read = {name: found_in(entry, *ways) for name, ways in fields.items()}
    return {name: value for name, value in read.items() if value is not None}


def found_in(entry: Any, *ways: str) -> Any:
    """Return what lies at the first way that ends somewhere, None without one; ways are keys and places with dots."""
    for way in ways:
        found = entry
        for key in way.split("."):
            if isinstance(found, dict):
                found = found.get(key)
            elif isinstance(found, list) and key.isdigit() and len(found) > int(key):
                found = found[int(key)]
            else:
                found = None
        if found is not None:
            return found
    return None


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
