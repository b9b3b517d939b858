"""Files of responses or records: one JSON object, a list of them, or JSON Lines; each with a name for errors."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.text import parse_json, read_text, shortened

NO_LIMIT = '"request_rate": Infinity', '"request_rate": "inf"'  # as SGLang's benchmark writes it, and as vLLM's does


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


def found_in(entry: Any, *keys: str | int) -> Any:
    """Return what lies below keys and places, one after the other; None where the way ends."""
    for key in keys:
        if isinstance(entry, dict) and isinstance(key, str):
            entry = entry.get(key)
        elif isinstance(entry, list) and isinstance(key, int) and len(entry) > key:
            entry = entry[key]
        else:
            return None
    return entry


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
