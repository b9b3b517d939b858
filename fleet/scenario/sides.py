"""Profiles of the two sides: mixed hardware names one for drafters, one for targets, or one beside `profile`."""

import hashlib
from collections.abc import Callable
from typing import Literal

import msgspec

from fleet.scenario.scenario import Scenario
from fleet.times.effects import Power
from fleet.times.labels import Basis, basis_of
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


class ProfileFacts(msgspec.Struct, frozen=True):
    """The facts of profiles that a resolved fleet keeps: names, fingerprint, basis, sizes and powers.

    - `power`: of the drafters' devices, if known for both sides.
    - `target_power`: of the targets' devices, if different.
    """

    name: str = ""
    digest: str = ""
    basis: Basis | Literal[""] = ""
    vocabulary: int = 0
    hidden: int = 0
    positions: int = 0
    power: Power | None = None
    target_power: Power | None = None


def facts_of(scenario: Scenario) -> ProfileFacts:
    """Return the facts of a scenario's profiles; of two, the combined facts; empty without any."""
    drafting, verifying = (profile_of(scenario, side) for side in SIDES)
    profiles = [profile for profile in (drafting, verifying) if profile is not None]
    if not profiles:
        return ProfileFacts()
    first, last = profiles[0], profiles[-1]
    mixed = len(profiles) == 2 and first != last
    both = hashlib.sha256("".join(profile.digest() for profile in profiles).encode()).hexdigest()[:16] if mixed else ""
    positions = [profile.positions for profile in profiles if profile.positions]
    bases = [basis_of(profile) for profile in profiles]
    has_power = first.power is not None and last.power is not None
    return ProfileFacts(
        name=f"{first.name} drafts for {last.name}" if mixed else first.name,
        digest=both or first.digest(),
        basis=min(bases, key=DOUBTFUL.index),
        vocabulary=last.vocabulary,
        hidden=last.hidden,
        positions=min(positions, default=0),
        power=first.power if has_power else None,
        target_power=last.power if has_power and last.power != first.power else None,
    )


def described(scenario: Scenario, side: Side) -> str:
    """Return the name and basis of a side's own profile; empty if it has none."""
    own = getattr(scenario, side).profile
    return f"{own.name} ({basis_of(own)}; digest {own.digest()})" if isinstance(own, HardwareProfile) else ""
