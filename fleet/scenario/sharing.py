"""Which stations share a device, and their overhead."""

from fleet.scenario.scenario import Scenario, SharedDevice
from fleet.scenario.sides import Side, profile_of
from fleet.times.overhead import StationOverheads


def shared_device(scenario: Scenario, device: str) -> SharedDevice | None:
    """Return the device of that name if it has several stations; a single station has its own device."""
    sides = (scenario.drafters, scenario.verifiers)
    stations = sum(side.count for side in sides if side.device == device)
    return scenario.devices.get(device) if stations > 1 else None


def overheads_of(scenario: Scenario, side: Side) -> StationOverheads:
    """Return the overheads of a side's stations, by how they share their device; none without a profile."""
    profile, shared = profile_of(scenario, side), shared_device(scenario, getattr(scenario, side).device)
    if profile is None:
        return StationOverheads()
    match shared and shared.sharing:
        case "turns":
            return profile.overhead.time_sliced or profile.overhead.own
        case "one-process":
            return profile.overhead.in_process or StationOverheads()
        case _:
            return profile.overhead.own


def in_one_process(scenario: Scenario) -> bool:
    """Whether all stations are in one process, so that messages are function calls."""
    drafters, verifiers = scenario.drafters, scenario.verifiers
    shared = shared_device(scenario, verifiers.device)
    together = drafters.device == verifiers.device or not drafters.count
    return shared is not None and shared.sharing == "one-process" and together
