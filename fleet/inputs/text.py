"""Reads a user's files as bytes, text, TOML, JSON or lines; errors are one line with the file's name."""

import json
import os
import tomllib
from pathlib import Path
from typing import Any

from specfleet.fleet.errors import InputError, OtherFormatError, cut

PACKED = {
    b"\x1f\x8b": "compressed by gzip; unpack it first",
    b"PK\x03\x04": "a zip archive or a workbook; unpack it, or save it as CSV",
    b"PAR1": "a Parquet file; save it as CSV or JSON Lines",
}
"""What files that are no text begin with, and what to do."""
MAX_BYTES = 1 << 28  # 256 MiB: hours of prompts, and less than a host's memory


def read_bytes(path: Path, what: str = "") -> bytes:
    """Return a file's bytes; `what` is its purpose in errors.

    Raises InputError if the file is missing, unreadable, or larger than MAX_BYTES.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{named(path, what)}: cannot be read ({error.strerror})") from error
    except ValueError as error:  # a NUL in the name
        raise InputError(f"{named(path, what)}: no name of a file ({error})") from error
    if len(content) > MAX_BYTES:
        raise InputError(f"{named(path, what)}: larger than {MAX_BYTES >> 20} MiB, the most that is read")
    return content


def read_text(path: Path, what: str = "") -> str:
    """Return a file's UTF-8 text, with or without a byte order mark; InputError as `read_bytes`."""
    content = read_bytes(path, what)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        wrong = f"not UTF-8 text (byte 0x{content[error.start]:02x} at {error.start}); save it as UTF-8"
        known = next((advice for begins, advice in PACKED.items() if content.startswith(begins)), wrong)
        raise InputError(f"{named(path, what)}: {known}") from error


def read_lines(path: Path, what: str = "") -> list[tuple[int, str]]:
    """Return the non-empty lines of a text, each with its number from 1; InputError as `read_text`."""
    lines = read_text(path, what).split("\n")  # not splitlines, which cuts within JSON's strings
    return [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file; InputError as `read_text`, and for invalid TOML."""
    text = read_text(path)
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:  # ValueError: digits beyond Python's limit
        raise OtherFormatError(f"{path}: not TOML: {reason(error)}", path) from error


def read_json(path: Path, what: str = "") -> Any:
    """Return the content of a JSON file; InputError as `read_text`, and for invalid JSON."""
    try:
        return parse_json(read_text(path, what), named(path, what))
    except InputError as error:
        raise OtherFormatError(str(error), path) from error


def parse_json(text: str, origin: str) -> Any:
    """Return the content of a JSON text; InputError, which begins with `origin`, for invalid JSON."""
    try:
        content = json.loads(text, parse_constant=_no_number)
        json.dumps(content, ensure_ascii=False).encode()  # half a surrogate pair is not text
        return content
    except (ValueError, RecursionError) as error:
        raise InputError(f"{origin}: not JSON: {reason(error)}") from error


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def is_file(path: Path) -> bool:
    """Return whether a path is a file; an impossible name is not."""
    return os.path.isfile(path)


def named(path: Path, what: str) -> str:
    """Return a file's name for errors."""
    shown = shortened(path, quoted=False)
    return f"{what} {shown}" if what else shown


def reason(error: BaseException) -> str:
    """Return a library's error as one short line."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    lines = str(error).splitlines()
    return shortened(lines[0], quoted=False) if lines else type(error).__name__


def shortened(value: Any, most: int = 200, quoted: bool = True) -> str:
    """Return a value for errors: its repr, cut in the middle beyond `most` characters."""
    try:
        text = repr(value) if quoted else str(value)
    except (RecursionError, ValueError):  # nested too deeply, or more digits than Python writes
        return f"a {type(value).__name__} too large to show"
    return cut(text, most)
