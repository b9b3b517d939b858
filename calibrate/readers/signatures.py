"""Which tool wrote a file: a table of first bytes, patterns and keys (`signatures.toml`), for readers that give up."""

import json
import re
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from specfleet.calibration.readers.entries import found_in
from specfleet.fleet.errors import InputError

MOST = 1 << 20  # bytes in which a pattern is looked for: a server's log begins with its settings


class Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How files of a tool begin: `begins` (hexadecimal), `text` (a pattern), or `keys` of its first JSON entry.

    - `what`: such a file, in words. `kind`: the import that reads it, or else what to `do`.
    """

    what: str
    begins: str = ""
    text: str = ""
    keys: tuple[str, ...] = ()
    kind: str = ""
    do: str = ""

    def fits(self, content: bytes, text: str, entry: Any) -> bool:
        """Whether a file has this signature, by its bytes, its text, and its first JSON entry."""
        if self.begins:
            return content.startswith(bytes.fromhex(self.begins))
        if self.text:
            return re.search(self.text, text, re.MULTILINE | re.IGNORECASE) is not None
        places = (key.rpartition(".") for key in self.keys)
        tables = ((found_in(entry, way) if way else entry, last) for way, _, last in places)
        return all(isinstance(table, dict) and last in table for table, last in tables)


@cache
def signatures() -> list[Signature]:
    """Return the table, in its order."""
    return msgspec.convert(
        tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["file"], list[Signature]
    )


def signature_of(path: Path) -> Signature | None:
    """Return the first signature that a file has; None without one, and where it cannot be read."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    text, entry = content[:MOST].decode("utf-8-sig", "replace"), _first_entry(content)
    return next((one for one in signatures() if one.fits(content, text, entry)), None)


def name_foreign(kind: str, files: Iterable[Path]) -> None:
    """Raise InputError, which names the tool and what to do, for a file that is of another kind."""
    for path in files:
        found = signature_of(path)
        if found is not None and found.kind != kind:
            raise InputError(f"{path}: this is {found.what}; {found.do or f'use `specfleet import {found.kind}`'}")


def _first_entry(content: bytes) -> Any:
    for text in (content, content.split(b"\n", 1)[0]):
        try:
            entry = json.loads(text)
        except (ValueError, RecursionError):
            continue
        return entry[0] if isinstance(entry, list) and entry else entry
    return None
