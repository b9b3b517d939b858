"""Addresses and numbers of nodes as users write them: HOST:PORT or the path of a socket file, and 1-4."""

import re
from collections.abc import Sequence

from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.resolved import Fleet

TCP, FILE = "tcp://", "ipc://"  # of ZeroMQ
FREE = "ipc://*"  # a socket file of its own in a new folder


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


def drafters_at(fleet: Fleet, option: str, addresses: Sequence[str]) -> dict[int, str]:
    """Return the addresses by the number of the drafter; InputError unless there is one for each of the fleet."""
    M = fleet.drafters.count
    if len(addresses) != M:
        raise InputError(
            f"{option}: {_counted(len(addresses))}, and scenario {fleet.name!r} has drafters.count = {M}; name them "
            "in their order, the first one's first"
        )
    return dict(enumerate(addresses))


def called_by_targets(fleet: Fleet, option: str, addresses: Sequence[str]) -> dict[int, str]:
    """Return the addresses that targets call: of the drafters by number, or of the router as 0.

    InputError for another number of addresses.
    """
    if not fleet.drafters.stations:
        return {}
    if not fleet.routed:
        return drafters_at(fleet, option, addresses)
    if len(addresses) > 1:
        raise InputError(
            f"{option}: {_counted(len(addresses))}, and with drafters.route targets call the router alone; start "
            "`specfleet node router` and name it"
        )
    return {0: addresses[0]}


def numbers_of(option: str, text: str, key: str, count: int) -> list[int]:
    """Return the numbers, from 0, of nodes written as 3 or as 1-4; InputError for none of 1 to the key's `count`."""
    match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", text.strip())
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last:
        raise InputError(f"{option} {text}: write a number, from 1, or several as 1-{max(count, 2)}")
    if last > count:
        raise InputError(f"{option} {text}: the scenario has {key} = {count}")
    return list(range(first - 1, last))


def _counted(count: int) -> str:
    return f"{count} address" + ("es" if count > 1 else "")
