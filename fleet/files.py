"""Atomic files: each is written beside its place and renamed.

All rooms write through `write_file`, and remove what they kept by `remove_files`. `check_writable` and `check_folder`
test a path before a long run, so that the run does not end at an unwritable folder.
"""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from specfleet.fleet.errors import InputError, OutputError
from specfleet.fleet.interrupts import deferred

PROBE_BYTES = 4096  # bytes of a block: a full disk shows, too


def write_file(path: Path, content: bytes | str, private: bool = False) -> None:
    """Write a file atomically; missing parent folders are created.

    - `private`: only the owner may read the file.

    For a symbolic link, the link's destination is written. Devices and pipes, such as /dev/stdout, are written
    directly. Raises OutputError with the path and the reason; an earlier file is then unchanged.
    """
    content = content.encode() if isinstance(content, str) else content
    unchanged = "; what was there is unchanged"
    try:
        place = Path(os.path.realpath(path))
        if is_stream(place):
            unchanged = ""
            with place.open("wb", buffering=0) as stream:
                _write_all(stream.fileno(), content)
            return
        if place.is_dir():
            raise IsADirectoryError(None, "a folder is in its place")
        place.parent.mkdir(parents=True, exist_ok=True)
        with _beside(place) as (draft, file):
            if private:
                os.fchmod(file, stat.S_IRUSR | stat.S_IWUSR)
            elif place.exists():
                os.fchmod(file, stat.S_IMODE(place.stat().st_mode))
            _write_all(file, content)
            os.fsync(file)
            draft.replace(place)
    except (OSError, ValueError) as error:
        raise OutputError(f"{path}: cannot be written ({_reason(error)}){unchanged}") from error


def write_json(value: Any, path: Path) -> None:
    """Write a value as JSON, indented for people; raises as `write_file`."""
    write_file(path, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def remove_files(folder: Path, *patterns: str) -> None:
    """Remove the files of a folder that match a pattern, and the folder if nothing else is in it."""
    for pattern in patterns:
        for file in folder.glob(pattern):
            file.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def check_writable(path: Path) -> None:
    """Raise InputError if no file can be written to `path`; changes nothing."""
    try:
        place = Path(os.path.realpath(path))
        if is_stream(place):
            return
        if place.is_dir():
            raise InputError(f"{path}: is a folder; name a file in it, for example {path}/FILE")
        _probe(place)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be written ({_reason(error)}); name another file") from error


def check_folder(path: Path) -> None:
    """Raise InputError if no file can be written into the folder `path`, which need not exist yet."""
    try:
        place = Path(os.path.realpath(path))
        if place.exists() and not place.is_dir():
            raise InputError(f"{path}: is a file; name a folder for the results")
        _probe(place / "probe")
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: nothing can be written there ({_reason(error)}); name another folder") from error


def is_stream(place: Path) -> bool:
    """Return whether the path is a device, a pipe or a socket."""
    return place.exists() and not place.is_file() and not place.is_dir()


def _probe(place: Path) -> None:
    """Write a block where the file would be and remove it; missing folders are not created."""
    above = next(folder for folder in place.parents if folder.exists())
    if not above.is_dir():
        raise NotADirectoryError(None, f"{above} is a file")
    names = place.relative_to(above).parts
    for name in names:
        with suppress(FileNotFoundError):
            os.lstat(above / name)  # an error where a name is too long
    if len(names) > 1 and os.path.lexists(above / names[0]):
        raise NotADirectoryError(None, f"{above / names[0]} is a link to itself")
    with _beside(above / place.name) as (_, file):
        _write_all(file, bytes(PROBE_BYTES))


@contextmanager
def _beside(place: Path) -> Iterator[tuple[Path, int]]:
    """Create an empty file in the folder of `place`; yield its path and descriptor. It is removed unless renamed.

    Signals that end the process are deferred meanwhile, so that no file is left behind.
    """
    draft = place.with_name(f".specfleet-{secrets.token_hex(6)}.part")
    with deferred():
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)  # minus the umask
        try:
            yield draft, file
        finally:
            os.close(file)
            draft.unlink(missing_ok=True)


def _write_all(file: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
