"""Addresses and numbers of nodes as users write them: HOST:PORT or the path of a socket file, and 1-4.

By socket files nodes of one host talk without keys: only their user may enter the folder of one.
"""

import os
import re
import socket
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import zmq

from specfleet.engine.net.keys import Keys
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.names import ROUTER
from specfleet.fleet.scenario.resolved import Fleet

TCP, FILE = "tcp://", "ipc://"  # of ZeroMQ
FREE = "ipc://*"  # a socket file of its own in a new folder
LONGEST = 60  # bytes of a folder's name, so that the path of a socket in it is short enough


def addresses_of(option: str, text: str) -> list[str]:
    """Return ZeroMQ's addresses of a list ADDRESS,ADDRESS; InputError where one is none, or repeated."""
    addresses: list[str] = []
    for part in text.split(","):
        address = address_of(f"{option} {text}", part.strip())
        if address in addresses:
            raise InputError(f"{option} {text}: names {part.strip()} twice; each drafter has an address of its own")
        addresses.append(address)
    return addresses


def address_of(origin: str, text: str, least: int = 1) -> str:
    """Return ZeroMQ's address of HOST:PORT, or of the path of a socket file, which has a slash.

    `least`: the smallest port; 0 to listen at any free one. InputError, which names its origin, for anything else.
    """
    if "/" in text and "://" not in text:
        return f"{FILE}{text}"
    match = re.fullmatch(r"([^\s/:\[\]]+|\[[^\s/\[\]]+\]):([0-9]{1,5})", text)
    if match is None or not least <= int(match[2]) <= 65535:
        raise InputError(
            f"{origin}: write HOST:PORT, for example 192.0.2.7:5555, or the path of a socket file, for example "
            "./drafter; ports end at 65535"
        )
    return f"{TCP}{match[1]}:{int(match[2])}"


def shown(addresses: Sequence[str]) -> str:
    """Return addresses as users write them."""
    return ", ".join(address.removeprefix(TCP).removeprefix(FILE) for address in addresses)


def called(fleet: Fleet, option: str, stated: Sequence[str] | None, of_target: bool) -> dict[int, str]:
    """Return the addresses that a target or the router calls: of the drafters by number, or of the router as 0.

    - `stated`: as users write them; None for the socket files of this user.

    InputError for another number of addresses.
    """
    by_router, M = of_target and fleet.routed, fleet.drafters.stations
    addresses = stated or [socket_file(name) for name in ([ROUTER] if by_router else fleet.drafter_names)]
    counted = f"{option}: {len(addresses)} address" + ("es" if len(addresses) > 1 else "")
    if by_router and len(addresses) > 1:
        raise InputError(
            f"{counted}, and with drafters.route targets call the router alone; start `specfleet node router` and "
            "name it"
        )
    if M and not by_router and len(addresses) != M:
        raise InputError(
            f"{counted}, and scenario {fleet.name!r} has drafters.count = {M}; name them in their order, the first "
            "one's first"
        )
    return dict(enumerate(addresses)) if M else {}


def numbers_of(option: str, text: str, key: str, count: int) -> list[int]:
    """Return the numbers, from 0, of nodes written as 3 or as 1-4; InputError for none of 1 to the key's `count`."""
    match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", text.strip())
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last:
        raise InputError(f"{option} {text}: write a number, from 1, or several as 1-{max(count, 2)}")
    if last > count:
        raise InputError(f"{option} {text}: the scenario has {key} = {count}")
    return list(range(first - 1, last))


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
