"""Addresses and numbers of nodes, as users write them."""

import pytest

from specfleet.engine.net.addresses import address_of, addresses_of, called_by_targets, drafters_at, numbers_of, shown
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from tests.helpers.stars import star


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


@pytest.mark.parametrize(("message", "text"), [(message, text) for message, texts in BAD.items() for text in texts])
def test_a_bad_address_or_target_is_refused_with_advice(message: str, text: str) -> None:
    with pytest.raises(InputError, match=rf"--option .*: {message}"):
        addresses_of("--option", text) if message == NO_ADDRESS else numbers_of("--option", text, COUNT, 4)


def test_each_drafter_has_one_address() -> None:
    fleet = fleet_of(2, 3)
    assert drafters_at(fleet, "--connect", ["a", "b"]) == {0: "a", 1: "b"}
    for addresses, message in ((["a"], "1 address, and"), (["a", "b", "c"], "3 addresses, and")):
        with pytest.raises(InputError, match=f"--connect: {message} scenario 'unnamed' has drafters.count = 2"):
            drafters_at(fleet, "--connect", addresses)


def test_addresses_of_targets_follow_from_the_scenario() -> None:
    routed, dealt = fleet_of(2, 3, "round-robin"), fleet_of(2, 3)
    assert called_by_targets(dealt, "--connect", ["a", "b"]) == {0: "a", 1: "b"}
    assert called_by_targets(routed, "--connect", ["router"]) == {0: "router"}
    assert called_by_targets(fleet_of(0, 1), "--connect", ["a"]) == {}
