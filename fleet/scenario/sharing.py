"""Which stations share a device, what they pay for that, and what is assumed where nobody measured just that.

Calibration (`calibrate/turns.py`) measures one drafter with one, two, ... targets on a device, and in one process one
drafter with one target. Whose data a station finds in the caches matters less than that it is another's, so that other
company of as many stations pays the same; a station alone pays nothing.
"""

from fleet.scenario.scenario import Device, Scenario
from fleet.times.effects import Turns
from fleet.times.profile import HardwareProfile


def stations_on(scenario: Scenario, device: str) -> tuple[int, int]:
    """How many drafters and how many targets are on the device of that name."""
    drafters, verifiers = scenario.drafters, scenario.verifiers
    here = (drafters.count if drafters.device == device else 0, verifiers.count if verifiers.device == device else 0)
    return here if device else (0, 0)


def shared_device(scenario: Scenario, device: str) -> Device | None:
    """The device of that name if several stations are on it; a station alone has a device of its own."""
    return scenario.devices.get(device) if sum(stations_on(scenario, device)) > 1 else None


def turns_of(scenario: Scenario, profile: HardwareProfile | None, device: str) -> Turns | None:
    """What stations pay for finding the device of that name used by others; None where it is their own."""
    shared = shared_device(scenario, device)
    if shared is None or profile is None:
        return None
    if shared.sharing == "one-process":
        return profile.one_process
    return profile.turns[min(sum(stations_on(scenario, device)) - 1, len(profile.turns)) - 1]


def assumed(scenario: Scenario, profile: HardwareProfile | None, device: str) -> str:
    """What is assumed of the costs of sharing the device of that name, in words; empty where all of it was measured."""
    shared, turns = shared_device(scenario, device), turns_of(scenario, profile, device)
    if shared is None or profile is None or turns is None or turns == Turns():
        return ""
    drafters, targets = stations_on(scenario, device)
    measured = 1 if shared.sharing == "one-process" else min(drafters + targets - 1, len(profile.turns))
    parts = []
    if (drafters, targets) != (1, measured):
        parts.append(
            f"{_stations(drafters, targets)} here pay what {_stations(1, measured)} were measured to pay each other"
        )
    if not scenario.drafters.count and "decode" not in turns.slowdowns:
        parts.append("plain decoding steps are not slowed: no such fleet was measured")
    return "; ".join(parts)


def _stations(drafters: int, targets: int) -> str:
    counts = ((drafters, "drafter"), (targets, "target"))
    return " and ".join(f"{count} {noun}{'s' * (count > 1)}" for count, noun in counts if count)


def in_one_process(scenario: Scenario, device: str) -> bool:
    """Whether messages of the stations on that device are function calls: the whole fleet is there, in one process."""
    shared = shared_device(scenario, device)
    drafters, verifiers = scenario.drafters, scenario.verifiers
    together = drafters.device == verifiers.device or not drafters.count
    return shared is not None and shared.sharing == "one-process" and together
