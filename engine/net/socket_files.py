"""Socket files, by which nodes of one host talk without keys: only their user may enter the folder of one."""

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import zmq

from specfleet.engine.net.addresses import FILE, FREE, TCP
from specfleet.engine.net.keys import Keys
from specfleet.fleet.errors import InputError

LONGEST = 60  # bytes of a folder's name, so that the path of a socket in it is short enough


def socket_file(name: str) -> str:
    """Return the address of a node of this user on this host, by the name of its station."""
    return f"{FILE}{Path(tempfile.gettempdir()) / f'specfleet-{os.getuid()}' / name}"


def check_address(address: str, keys: Keys | None) -> None:
    """Raise InputError for TCP without keys, and for a path that is too long for a socket file."""
    if keys is None and address.startswith(TCP):
        raise InputError(
            f"{address.removeprefix(TCP)}: strangers can reach a port, so it needs keys (see specfleet keys --help); "
            "without keys name the path of a socket file on this host"
        )
    size = len(os.fsencode(address.removeprefix(FILE)))
    if address.startswith(FILE) and size > zmq.IPC_PATH_MAX_LEN:
        raise InputError(
            f"{_path(address)}: {size} bytes; the path of a socket file has at most {zmq.IPC_PATH_MAX_LEN}"
        )


def prepared(address: str) -> str:
    """Make ready to listen at an address, and return it: make the folder of a socket file, remove that of a dead node.

    `FREE` becomes a file in a new folder. InputError if others may enter the folder, if a node listens there, or if the
    file is no socket.
    """
    if address == FREE:
        with short_names():
            return f"{FILE}{tempfile.mkdtemp(prefix='specfleet-')}/node"
    if not address.startswith(FILE):
        return address
    path = _path(address)
    _prepare_folder(path.parent)
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise InputError(f"{path}: is no socket file; name another path")
    except FileNotFoundError:
        return address
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return address
        except BlockingIOError:  # many are connecting
            pass
    raise InputError(f"{path}: a node listens there already; end it, or name another path")


def remove(address: str, folder: bool = False) -> None:
    """Remove the socket file of a node that has ended, and its folder if that is its own."""
    if address.startswith(FILE):
        _path(address).unlink(missing_ok=True)
        if folder:
            _path(address).parent.rmdir()


@contextmanager
def short_names() -> Iterator[None]:
    """Let Python put its socket into /tmp if its path in the user's temporary folder would be too long."""
    before = tempfile.tempdir
    if len(os.fsencode(tempfile.gettempdir())) > LONGEST:
        tempfile.tempdir = "/tmp"  # noqa: S108  (its folder is one that only this user may enter)
    try:
        yield
    finally:
        tempfile.tempdir = before


def _prepare_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise InputError(f"{folder}: a socket file cannot be put there ({error.strerror})") from None
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise InputError(
            f"{folder}: others on this host may enter it; put the socket file into a folder of yours with mode 0700"
        )


def _path(address: str) -> Path:
    return Path(address.removeprefix(FILE))
