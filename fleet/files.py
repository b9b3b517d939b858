"""Atomic files: each is written beside its place and renamed.

All rooms write through `write_file` or `replacing`, and remove what they kept by `remove_files`. `check_writable` and
`check_folder` test a path before a long run, so that the run does not end at an unwritable folder.
"""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from specfleet.fleet.errors import InputError, OutputError
from specfleet.fleet.interrupts import deferred

PROBE_BYTES = 4096  # bytes of a block: a full disk shows, too


def write_file(path: Path, content: bytes | str, private: bool = False, synced: bool = True) -> None:
    """Write a file atomically; missing parent folders are created. Ending signals are deferred meanwhile.

    - `private`: only the owner may read the file.
    - `synced`: waits for the disk, so that the file survives a power cut. A reader that notices damage needs no wait.

    For a symbolic link, the link's destination is written. Devices and pipes, such as /dev/stdout, are written
    directly. Raises OutputError with the path and the reason; an earlier file is then unchanged.
    """
    with deferred(), replacing(path, private, synced) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path, private: bool = False, synced: bool = True) -> Iterator[BinaryIO]:
    """Open a file for longer work: as the body ends, it takes the place of `path`; else nothing is left of it.

    Arguments and errors are those of `write_file`. OSErrors of the body count as the file's.
    """
    unchanged = "; what was there is unchanged"
    try:
        place = _place_of(path)
        if is_stream(place):
            unchanged = ""
            with place.open("wb") as stream:
                yield stream
            return
        if place.is_dir():
            raise IsADirectoryError(None, "a folder is in its place")
        place.parent.mkdir(parents=True, exist_ok=True)
        with _beside(place) as (draft, file):
            if private:
                os.fchmod(file.fileno(), stat.S_IRUSR | stat.S_IWUSR)
            elif place.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(place.stat().st_mode))
            yield file
            file.flush()
            if synced:
                os.fsync(file.fileno())
            draft.replace(place)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({_reason(error)}){unchanged}") from error


def write_json(value: Any, path: Path, synced: bool = True) -> None:
    """Write a value as JSON, indented for people; raises as `write_file`."""
    write_file(path, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n", synced=synced)


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
        place = _place_of(path)
        if is_stream(place):
            return
        if place.is_dir():
            raise InputError(f"{path}: is a folder; name a file in it, for example {path}/FILE")
        _probe(place)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({_reason(error)}); name another file") from error


def check_folder(path: Path) -> None:
    """Raise InputError if no file can be written into the folder `path`, which need not exist yet."""
    try:
        place = _place_of(path)
        if place.exists() and not place.is_dir():
            raise InputError(f"{path}: is a file; name a folder for the results")
        if place.suffix in (".html", ".json", ".png") and not place.exists():
            raise InputError(
                f"{path}: is a file's name; name a folder for the results, of which "
                "`specfleet report FOLDER -o page.html` makes a page"
            )
        _probe(place / "probe")
    except OSError as error:
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
        file.write(bytes(PROBE_BYTES))
        file.flush()


def _place_of(path: Path) -> Path:
    """Return the path without links; OSError for a name that no file can have."""
    try:
        return Path(os.path.realpath(path))
    except ValueError as error:
        raise OSError(None, str(error)) from error


@contextmanager
def _beside(place: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Create an empty file in the folder of `place`; yield its path and the file. It is removed unless renamed."""
    draft = place.with_name(f".specfleet-{secrets.token_hex(6)}.part")
    with ExitStack() as stack:
        with deferred():  # a signal between these lines would leave the file behind
            number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)  # minus the umask
            stack.callback(draft.unlink, missing_ok=True)
            stack.callback(os.close, number)
            file = stack.enter_context(os.fdopen(number, "wb", closefd=False))
        yield draft, file


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
