"""Keys of nodes: their files, and the folder of allowed ones.

A pair is two files of one line each: NAME.secret, which stays on its host, and NAME.public, which other hosts get. NAME
is the name of the node with the secret key.
"""

import re
import stat
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import zmq
from zmq.utils import z85

from specfleet.fleet.errors import InputError
from specfleet.fleet.files import write_file

SECRET, PUBLIC = ".secret", ".public"
ANY = ""  # the address of every server without a name
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEY_CHARACTERS = 40  # of 32 bytes as Z85
_MAX_FILE_BYTES = 4096


class Keys(msgspec.Struct, frozen=True):
    """A node's own pair, and the keys that it trusts. Keys are Z85 of 32 bytes.

    - `allowed`: folder of the public keys that may connect to its server.
    - `servers`: public keys of the servers that it connects to, by address (tcp://HOST:PORT); ANY for all others.
    """

    name: str
    public: bytes
    secret: bytes
    allowed: Path | None = None
    servers: Mapping[str, bytes] = {}

    def server(self, address: str) -> bytes:
        """Return the public key of the server at an address; empty if none is named."""
        return self.servers.get(address, self.servers.get(ANY, b""))


def new_pair(name: str, folder: Path) -> tuple[Path, Path]:
    """Write a new pair into a folder; return the files of the secret and of the public key.

    InputError if the name cannot be a file's, or is taken.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"key {name!r}: allowed are 1 to 64 letters, digits, dots, dashes and underscores")
    secret, public = folder / f"{name}{SECRET}", folder / f"{name}{PUBLIC}"
    for path in (secret, public):
        if path.exists():
            raise InputError(f"{path}: exists already; take another name")
    ours, hidden = zmq.curve_keypair()
    write_file(secret, hidden + b"\n", private=True)
    write_file(public, ours + b"\n")
    return secret, public


def read_keys(secret: Path, servers: Path | Mapping[str, Path] | None = None, allowed: Path | None = None) -> Keys:
    """Read the keys of a node; InputError where a file does not hold one.

    - `servers`: files of the public keys of the servers that it connects to, by address, or one for all.
    - `allowed`: folder of the public keys that may connect to its server.
    """
    if allowed is not None:
        allowed_keys(allowed)
    files = {} if servers is None else servers if isinstance(servers, Mapping) else {ANY: servers}
    public_keys = {address: _key_in(file, PUBLIC) for address, file in files.items()}
    hidden = _key_in(secret, SECRET)
    if secret.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(f"{secret}: others on this host may read it; chmod 600 {secret}")
    return Keys(secret.name.removesuffix(SECRET), zmq.curve_public(hidden), hidden, allowed, public_keys)


def allowed_keys(folder: Path) -> dict[bytes, str]:
    """Return the names of the allowed keys, by public key; InputError where a file does not hold one."""
    if not folder.is_dir():
        raise InputError(f"{folder}: is no folder; --allowed names one with the files NAME{PUBLIC} of who may connect")
    return {_key_in(path, PUBLIC): path.name.removesuffix(PUBLIC) for path in sorted(folder.glob(f"*{PUBLIC}"))}


def _key_in(path: Path, kind: str) -> bytes:
    """Return the key of a file; `kind`: how the names of such files end."""
    if path.suffix != kind:
        raise InputError(f"{path}: name a file *{kind}, as specfleet keys writes it")
    try:
        with path.open("rb") as file:
            key = file.read(_MAX_FILE_BYTES).strip()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); specfleet keys NAME writes a pair") from None
    if len(key) == _KEY_CHARACTERS and set(key) <= set(z85.Z85CHARS):
        with suppress(struct.error):  # letters of a key, but of a number beyond 32 bits
            z85.decode(key)
            return key
    raise InputError(f"{path}: holds no key; a key is one line of {_KEY_CHARACTERS} characters")
