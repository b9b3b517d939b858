"""Files of keys: their permissions and their contents."""

import stat
from pathlib import Path

import pytest
import zmq

from specfleet.engine.net.keys import allowed_keys, new_pair, read_keys
from specfleet.fleet.errors import InputError


def test_only_its_owner_can_read_a_secret_key(tmp_path: Path) -> None:
    secret, public = new_pair("target-1", tmp_path / "keys")
    assert (secret.name, public.name) == ("target-1.secret", "target-1.public")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert zmq.curve_public(secret.read_bytes().strip()) == public.read_bytes().strip()
    own = read_keys(secret, allowed=secret.parent)
    assert (own.name, own.public + b"\n") == ("target-1", public.read_bytes())
    assert allowed_keys(secret.parent) == {own.public: "target-1"}


def test_a_pair_of_keys_is_never_overwritten(tmp_path: Path) -> None:
    secret, public = new_pair("one", tmp_path)
    before = secret.read_bytes(), public.read_bytes()
    with pytest.raises(InputError, match=r"one.secret: exists already"):
        new_pair("one", tmp_path)
    assert before == (secret.read_bytes(), public.read_bytes())


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a b", "a" * 65, "ä\n"])
def test_a_bad_name_of_a_key_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"allowed are 1 to 64 letters"):
        new_pair(name, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", [b"", b"x", b"~" * 40, b"#" * 40, b"0" * 39, b"0" * 41, b"\xff" * 40])
def test_a_file_without_a_key_is_named(text: bytes, tmp_path: Path) -> None:
    secret, public = new_pair("one", tmp_path)
    public.write_bytes(text)
    for read in (lambda: read_keys(secret, public), lambda: read_keys(secret, allowed=tmp_path)):
        with pytest.raises(InputError, match=r"one.public: holds no key"):
            read()


def test_a_readable_secret_key_is_refused_with_advice(tmp_path: Path) -> None:
    secret, public = new_pair("one", tmp_path)
    secret.chmod(0o640)
    with pytest.raises(InputError, match=r"others on this host may read it; chmod 600"):
        read_keys(secret, public)


def test_swapped_key_files_are_named(tmp_path: Path) -> None:
    secret, public = new_pair("one", tmp_path)
    with pytest.raises(InputError, match=r"one.public: name a file \*.secret"):
        read_keys(public, public)
    with pytest.raises(InputError, match=r"one.secret: name a file \*.public"):
        read_keys(secret, secret)
    with pytest.raises(InputError, match=r"two.secret: cannot be read \(No such file or directory\)"):
        read_keys(tmp_path / "two.secret", public)
    with pytest.raises(InputError, match=r"nowhere: is no folder"):
        read_keys(secret, allowed=tmp_path / "nowhere")
