"""Addresses and numbers of nodes, as users write them; without keys nodes listen on socket files, and never on TCP."""

import socket
import stat
from pathlib import Path

import pytest

from specfleet.engine.net.addresses import address_of, addresses_of, called, numbers_of, shown, socket_file
from specfleet.engine.net.keys import new_pair, read_keys
from specfleet.engine.net.sockets import Sockets
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from tests.helpers.stars import star

COUNT = "verifiers.count"
NO_ADDRESS, NO_TARGET = "write HOST:PORT, for example", "write a number, from 1, or several as 1-4"
BAD = {
    NO_ADDRESS: [
        "",
        "alpha",
        "ipc://a",
        "alpha:",
        ":5555",
        "alpha:0",
        "alpha:65536",
        "a:1,",
        "a:-1",
        "tcp://a:1",
        "::1:7",
    ],
    NO_TARGET: ["0", "", "two", "3-2", "-1", "1-", "1,2", "0-2"],
    "the scenario has verifiers.count = 4": ["5", "1-5"],
}
LONGEST = 107  # bytes of a path in Linux's sockaddr_un


def fleet_of(drafters: int, targets: int, route: str = "affinity") -> Fleet:
    return resolve(star(drafters={"count": drafters, "route": route}, verifiers={"count": targets}))


def test_addresses_are_read_in_their_order() -> None:
    found = ["tcp://b:5555", "tcp://a:5556", "tcp://[::1]:7", "ipc://./drafter", "ipc:///run/a:1"]
    assert addresses_of("--connect", "b:5555, a:05556,[::1]:7,./drafter, /run/a:1") == found
    assert shown(found) == "b:5555, a:5556, [::1]:7, ./drafter, /run/a:1"
    assert address_of("--at", "a:0", least=0) == "tcp://a:0"


def test_a_repeated_address_is_refused() -> None:
    with pytest.raises(InputError, match="--drafters a:1,b:1,a:01: names a:01 twice"):
        addresses_of("--drafters", "a:1,b:1,a:01")


def test_targets_are_one_number_or_a_range() -> None:
    assert numbers_of("--number", "3", COUNT, 4) == [2]
    assert numbers_of("--number", "2-4", COUNT, 4) == [1, 2, 3]


@pytest.mark.parametrize(("message", "text"), [(message, text) for message, texts in BAD.items() for text in texts])
def test_a_bad_address_or_target_is_refused_with_advice(message: str, text: str) -> None:
    with pytest.raises(InputError, match=rf"--option .*: {message}"):
        addresses_of("--option", text) if message == NO_ADDRESS else numbers_of("--option", text, COUNT, 4)


def test_each_drafter_has_one_address() -> None:
    fleet = fleet_of(2, 3)
    assert called(fleet, "--connect", ["a", "b"], of_target=False) == {0: "a", 1: "b"}
    for addresses, message in ((["a"], "1 address, and"), (["a", "b", "c"], "3 addresses, and")):
        with pytest.raises(InputError, match=f"--connect: {message} scenario 'unnamed' has drafters.count = 2"):
            called(fleet, "--connect", addresses, of_target=True)


def test_addresses_of_targets_follow_from_the_scenario() -> None:
    routed, dealt = fleet_of(2, 3, "round-robin"), fleet_of(2, 3)
    assert called(dealt, "--connect", ["a", "b"], of_target=True) == {0: "a", 1: "b"}
    assert called(routed, "--connect", ["router"], of_target=True) == {0: "router"}
    assert called(fleet_of(0, 1), "--connect", ["a"], of_target=True) == {}


def test_only_its_user_reaches_a_node_without_keys(tmp_path: Path) -> None:
    path = tmp_path / "a" / "drafter"
    sockets = Sockets(f"ipc://{path}")
    assert stat.S_ISSOCK(path.stat().st_mode)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    sockets.close()
    assert not path.exists()


def test_files_of_a_user_are_in_one_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    Sockets(socket_file("drafter.1")).close()
    (folder,) = tmp_path.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_file_of_a_dead_node_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder / "drafter"))
    Sockets(f"ipc://{folder}/drafter").close()


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:0", "tcp://0.0.0.0:5555", "tcp://localhost:5555", "tcp://[::1]:1"]
)
def test_a_port_needs_keys(address: str) -> None:
    for refused in (lambda: Sockets(address), lambda: Sockets(connect={0: address})):
        with pytest.raises(InputError, match=r"^\S+:\d+: strangers can reach a port, so it needs keys"):
            refused()


def test_with_keys_every_address_can_be_bound(tmp_path: Path) -> None:
    secret, _ = new_pair("drafter", tmp_path)
    Sockets("tcp://0.0.0.0:0", keys=read_keys(secret, allowed=tmp_path)).close()


def test_a_path_has_a_longest_length(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    name = "a" * (LONGEST - len(str(folder)) - 1)
    longer = f"ipc://{folder}/{name}a"
    Sockets(f"ipc://{folder}/{name}").close()
    for refused in (lambda: Sockets(longer), lambda: Sockets(connect={0: longer})):
        with pytest.raises(
            InputError, match=rf": {LONGEST + 1} bytes; the path of a socket file has at most {LONGEST}"
        ):
            refused()


def test_an_address_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    secret, _ = new_pair("drafter", tmp_path / "keys")
    keys = read_keys(secret, allowed=tmp_path / "keys")
    file, port = Sockets(f"ipc://{tmp_path}/own/drafter"), Sockets("tcp://127.0.0.1:0", keys=keys)
    for address, message in (
        (file.bound, "own/drafter: a node listens there already; end it, or name another path"),
        (port.bound, r"127\.0\.0\.1:\d+: Address already in use; give another address"),
    ):
        with pytest.raises(InputError, match=message):
            Sockets(address, keys=keys)
    assert (tmp_path / "own" / "drafter").exists()
    file.close()
    port.close()


def test_a_bad_place_of_a_socket_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "own" / "notes").write_text("mine")
    (tmp_path / "shared").mkdir(mode=0o755)
    for path, message in (
        ("own/notes", "notes: is no socket file; name another path"),
        ("own/notes/drafter", r"a socket file cannot be put there \(File exists\)"),
        ("shared/drafter", "shared: others on this host may enter it; put the socket file into a folder of yours"),
    ):
        with pytest.raises(InputError, match=message):
            Sockets(f"ipc://{tmp_path}/{path}")
    assert (tmp_path / "own" / "notes").read_text() == "mine"
