"""Hardware of the two sides: their profiles, the devices that they share, and their overhead.

Mixed hardware names one profile for drafters, one for targets, or one beside `profile`.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Literal

import msgspec

from fleet.scenario.scenario import Scenario, SharedDevice
from fleet.times.effects import Power
from fleet.times.labels import Basis, basis_of
from fleet.times.overhead import Overhead, StationOverheads
from fleet.times.profile import HardwareProfile

Side = Literal["drafters", "verifiers"]
SIDES: tuple[Side, ...] = ("drafters", "verifiers")
DOUBTFUL: tuple[Basis, ...] = ("estimated", "assumed", "stated", "measured")  # of two profiles: the first


def profile_of(scenario: Scenario, side: Side) -> HardwareProfile | None:
    """Return the profile of a side's times: its own, or else the scenario's; None if there is none."""
    profile = getattr(scenario, side).profile or scenario.profile
    return profile if isinstance(profile, HardwareProfile) else None


def shared_profile(scenario: Scenario) -> HardwareProfile | None:
    """Return the profile of links, acceptance and host, which belong to no side; None if there is none.

    It is the scenario's, or that of both sides if they have the same; without drafters the targets'.
    """
    if isinstance(scenario.profile, HardwareProfile):
        return scenario.profile
    drafting, verifying = (profile_of(scenario, side) for side in SIDES)
    return verifying if drafting == verifying or not scenario.drafters.count else None


def with_profiles(scenario: Scenario, made: Callable[[HardwareProfile | str, str], HardwareProfile | str]) -> Scenario:
    """Return the scenario with each profile replaced by `made(profile, key)`."""
    replace = msgspec.structs.replace
    sides = {
        side: replace(getattr(scenario, side), profile=made(getattr(scenario, side).profile, f"{side}.profile"))
        for side in SIDES
    }
    return replace(scenario, profile=made(scenario.profile, "profile"), **sides)


def without_profiles(scenario: Scenario) -> Scenario:
    """Return the scenario without its profiles.

    >>> without_profiles(Scenario()) == Scenario()
    True
    """
    return with_profiles(scenario, lambda _profile, _key: "")


class Hardware(msgspec.Struct, frozen=True):
    """Hardware of a scenario; a profile is None if there is none.

    - `drafting`, `verifying`: profiles of the times of each side.
    - `shared`: profile of links and acceptance, which belong to no side.
    - `drafting_title`, `verifying_title`: name and basis of a side's own profile; empty if it has none.
    - `devices`: devices with several stations, by name; a single station has its own device.
    - `drafter_overhead`, `target_overhead`: by how stations share their device.
    - `in_process`: whether all stations are in one process, so that messages are function calls.
    - `profile`, `profile_digest`, `basis`: name, digest and basis of all profiles together.
    - `power`: of the drafters' devices, if known for both sides. `target_power`: of the targets' devices, if different.
    """

    drafting: HardwareProfile | None
    verifying: HardwareProfile | None
    shared: HardwareProfile | None
    drafting_title: str
    verifying_title: str
    devices: dict[str, SharedDevice]
    drafter_overhead: Overhead
    target_overhead: Overhead
    in_process: bool
    profile: str = ""
    profile_digest: str = ""
    basis: Basis | Literal[""] = ""
    vocabulary: int = 0
    hidden: int = 0
    positions: int = 0
    power: Power | None = None
    target_power: Power | None = None


def hardware_of(scenario: Scenario) -> Hardware:
    """Return the hardware of a scenario."""
    drafters, verifiers = scenario.drafters, scenario.verifiers
    drafting, verifying = (profile_of(scenario, side) for side in SIDES)
    stations = Counter({drafters.device: drafters.count}) + Counter({verifiers.device: verifiers.count})
    devices = {name: device for name, device in scenario.devices.items() if stations[name] > 1}
    of_drafters, of_targets = devices.get(drafters.device), devices.get(verifiers.device)
    together = drafters.device == verifiers.device or not drafters.count
    hardware = Hardware(
        drafting=drafting,
        verifying=verifying,
        shared=shared_profile(scenario),
        drafting_title=_title(drafters.profile),
        verifying_title=_title(verifiers.profile),
        devices=devices,
        drafter_overhead=_overheads(drafting, of_drafters).drafter,
        target_overhead=_overheads(verifying, of_targets).target,
        in_process=of_targets is not None and of_targets.sharing == "one-process" and together,
    )
    profiles = [profile for profile in (drafting, verifying) if profile is not None]
    if not profiles:
        return hardware
    first, last = profiles[0], profiles[-1]
    mixed = len(profiles) == 2 and first != last
    both = hashlib.sha256("".join(profile.digest() for profile in profiles).encode()).hexdigest()[:16] if mixed else ""
    has_power = first.power is not None and last.power is not None
    return msgspec.structs.replace(
        hardware,
        profile=f"{first.name} drafts for {last.name}" if mixed else first.name,
        profile_digest=both or first.digest(),
        basis=min(map(basis_of, profiles), key=DOUBTFUL.index),
        vocabulary=last.vocabulary,
        hidden=last.hidden,
        positions=min((profile.positions for profile in profiles if profile.positions), default=0),
        power=first.power if has_power else None,
        target_power=last.power if has_power and last.power != first.power else None,
    )


def _overheads(profile: HardwareProfile | None, device: SharedDevice | None) -> StationOverheads:
    """Overheads of a side's stations, by how they share their device; none without a profile."""
    if profile is None:
        return StationOverheads()
    match device and device.sharing:
        case "turns":
            return profile.overhead.time_sliced or profile.overhead.own
        case "one-process":
            return profile.overhead.in_process or StationOverheads()
        case _:
            return profile.overhead.own


def _title(own: HardwareProfile | str) -> str:
    return f"{own.name} ({basis_of(own)}; digest {own.digest()})" if isinstance(own, HardwareProfile) else ""
