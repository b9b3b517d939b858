"""Addresses and targets as users write them: HOST:PORT,HOST:PORT and 1-4."""

import re
from collections.abc import Sequence

from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.resolved import Fleet


def addresses_of(option: str, text: str) -> list[str]:
    """Return the addresses tcp://HOST:PORT of a list HOST:PORT,HOST:PORT; InputError where one is none, or repeated."""
    found: list[str] = []
    for part in text.split(","):
        address = address_of(f"{option} {text}", part.strip())
        if address in found:
            raise InputError(f"{option} {text}: names {part.strip()} twice; each drafter has an address of its own")
        found.append(address)
    return found


def address_of(origin: str, text: str) -> str:
    """Return the address tcp://HOST:PORT of HOST:PORT; InputError, which names its origin, for anything else."""
    match = re.fullmatch(r"([^\s/:\[\]]+|\[[^\s/\[\]]+\]):([0-9]{1,5})", text)
    if match is None or not 0 < int(match[2]) <= 65535:
        raise InputError(f"{origin}: write HOST:PORT, for example 192.0.2.7:5555; ports end at 65535")
    return f"tcp://{match[1]}:{int(match[2])}"


def shown(addresses: Sequence[str]) -> str:
    """Return addresses as users write them."""
    return ", ".join(address.removeprefix("tcp://") for address in addresses)


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
            "`specfleet router` and name it"
        )
    return {0: addresses[0]}


def targets_of(option: str, text: str, count: int) -> list[int]:
    """Return the numbers, from 0, of targets written as 3 or as 1-4; InputError for none of 1 to `count`."""
    match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", text.strip())
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last:
        raise InputError(f"{option} {text}: write a target's number, from 1, or several as 1-{max(count, 2)}")
    if last > count:
        raise InputError(f"{option} {text}: the scenario has verifiers.count = {count}")
    return list(range(first - 1, last))


def _counted(count: int) -> str:
    return f"{count} address" + ("es" if count > 1 else "")
