"""Hardware of the two sides: their profiles, the devices that they share, and their overhead.

Mixed hardware names one profile for drafters, one for targets, or one beside `profile`; tiers name further ones.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec

from specfleet.fleet.acceptance.models import PerPosition, Recorded, needs_fit
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.scenario import Acceptance, Scenario, SharedDevice, Tier
from specfleet.fleet.times.labels import Basis, basis_of
from specfleet.fleet.times.overhead import StationOverheads
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import StepTime

Side = Literal["drafters", "verifiers"]
SIDES: tuple[Side, ...] = ("drafters", "verifiers")
DOUBTFUL: tuple[Basis, ...] = (  # of two profiles: the first
    "estimated", "assumed", "stated", "measured on an unsteady host", "measured",
)  # fmt: skip


def firsts(tiers: Sequence[Tier], count: int) -> tuple[int, ...]:
    """Return the numbers, from 0, at which stations begin to differ from the previous ones."""
    return tuple(sorted({0} | {tier.first - 1 for tier in tiers if tier.first <= count}))


def in_tier(tiers: Sequence[Tier], number: int, key: str, otherwise: Any) -> Any:
    """Return the value of a key for station `number`: from the last tier that covers it and has the key."""
    values = [getattr(tier, key) for tier in tiers if tier.first <= number + 1]
    return next((value for value in reversed(values) if value), otherwise)


def step_in_tier(tiers: Sequence[Tier], number: int) -> StepTime | None:
    """Return the step that tiers state for station `number`, on the machine of the last profile among them."""
    covering = [tier for tier in tiers if tier.first <= number + 1]
    since = max((place for place, tier in enumerate(covering) if tier.profile), default=0)
    step: StepTime | None = in_tier(covering[since:], number, "step", None)
    return step


def profile_of(scenario: Scenario, side: Side, number: int = 0) -> HardwareProfile | None:
    """Return the profile of a station's times: its tier's, its side's, or else the scenario's; None if there is none.

    - `number`: of the station, from 0.
    """
    stations = getattr(scenario, side)
    profile = in_tier(stations.tiers, number, "profile", stations.profile) or scenario.profile
    return profile if isinstance(profile, HardwareProfile) else None


def profiles_of(scenario: Scenario, side: Side) -> dict[int, HardwareProfile | None]:
    """Return the profile of each range of equal stations of a side, by the first one's number."""
    stations = getattr(scenario, side)
    return {first: profile_of(scenario, side, first) for first in firsts(stations.tiers, stations.count)}


def known_profiles(scenario: Scenario) -> list[HardwareProfile]:
    """Return the distinct profiles of both sides' stations, the drafters' first."""
    return _distinct(profile for side in SIDES for profile in profiles_of(scenario, side).values())


def drafting_profiles(scenario: Scenario) -> list[HardwareProfile]:
    """Return the distinct profiles of the drafters; none without drafters."""
    return _distinct(profiles_of(scenario, "drafters").values()) if scenario.drafters.count else []


def _distinct(profiles: Iterable[HardwareProfile | None]) -> list[HardwareProfile]:
    known: list[HardwareProfile] = []
    for profile in profiles:
        if profile is not None and profile not in known:
            known.append(profile)
    return known


def shared_profile(scenario: Scenario) -> HardwareProfile | None:
    """Return the profile of links, acceptance and host, which belong to no side; None if there is none.

    It is the scenario's, or that of both sides if they have the same; without drafters the targets'.
    """
    if isinstance(scenario.profile, HardwareProfile):
        return scenario.profile
    drafting, verifying = (profile_of(scenario, side) for side in SIDES)
    return verifying if drafting == verifying or not scenario.drafters.count else None


def acceptance_of(scenario: Scenario) -> Acceptance | None:
    """Return the acceptance of drafts: the scenario's, the profile's, or a fit to that; None if there is none.

    Raises InputError for a fit to an acceptance that is no record.
    """
    profile = shared_profile(scenario)
    measured = profile.acceptance if profile else None
    model = scenario.acceptance or measured
    if not needs_fit(model):
        return model
    if profile is None or measured is None:
        return None
    if not isinstance(measured, PerPosition | Recorded):
        raise InputError(
            f"scenario {scenario.name!r}: acceptance = 'beta-geometric' is fitted to a record, and profile "
            f"{profile.name!r} has none; give a and b"
        )
    from specfleet.fleet.acceptance.fits import fit_beta_geometric  # noqa: PLC0415  (scipy.optimize takes a second)

    return fit_beta_geometric(measured)


def with_profiles(scenario: Scenario, made: Callable[[HardwareProfile | str, str], HardwareProfile | str]) -> Scenario:
    """Return the scenario with each profile replaced by `made(profile, key)`."""
    replace, sides = msgspec.structs.replace, {}
    for side in SIDES:
        stations = getattr(scenario, side)
        tiers = tuple(
            replace(tier, profile=made(tier.profile, f"{side}.tiers.{place}.profile")) if tier.profile else tier
            for place, tier in enumerate(stations.tiers)
        )
        sides[side] = replace(stations, profile=made(stations.profile, f"{side}.profile"), tiers=tiers)
    return replace(scenario, profile=made(scenario.profile, "profile"), **sides)


def without_profiles(scenario: Scenario) -> Scenario:
    """Return the scenario without its profiles."""
    return with_profiles(scenario, lambda _profile, _key: "")


def together(scenario: Scenario) -> dict[str, Any]:
    """Return the keys of a fleet that all its profiles give together: name, digest, basis, sizes, powers.

    Unlike powers of one side's devices are left out, and the fleet's energy with them. A block by the times of a chain
    rests on an assumption: that one pass takes no longer for more tokens.
    """
    sides = [known for side in SIDES if (known := _distinct(profiles_of(scenario, side).values()))]
    every = [profile for side in sides for profile in side]
    if not every:
        return {"profile": ""}
    first, last, digests = every[0], every[-1], "".join(profile.digest() for profile in every)
    mixed = any(profile != first for profile in every)
    bases = [basis_of(profile) for profile in every]
    if scenario.drafters.kind == "block":
        bases += ["assumed" for made in drafting_profiles(scenario) if not (made.one_pass or made.draft.roofline)]
    names = [" and ".join(profile.name for profile in side) for side in sides]
    has_power = all(profile.power == side[0].power is not None for side in sides for profile in side)
    return {
        "profile": " drafts for ".join(names) if mixed else first.name,
        "profile_digest": hashlib.sha256(digests.encode()).hexdigest()[:16] if mixed else first.digest(),
        "basis": min(bases, key=DOUBTFUL.index),
        "vocabulary": last.vocabulary,
        "hidden": last.hidden,
        "request_s": last.request_s,
        "power": first.power if has_power else None,
        "target_power": last.power if has_power and last.power != first.power else None,
    }


def shared_devices(scenario: Scenario) -> dict[str, SharedDevice]:
    """Return the devices with several stations, by name; a single station has its own device."""
    drafters, verifiers = scenario.drafters, scenario.verifiers
    stations = Counter({drafters.device: drafters.count}) + Counter({verifiers.device: verifiers.count})
    return {name: device for name, device in scenario.devices.items() if stations[name] > 1}


def overheads_of(profile: HardwareProfile, device: SharedDevice | None) -> StationOverheads:
    """Return the overheads of stations of a profile, by how they share their device."""
    if device is not None and device.sharing == "turns":
        return profile.overhead.time_sliced or profile.overhead.own
    return profile.overhead.own


def title_of(profile: HardwareProfile | str) -> str:
    """Return name and basis of a side's own profile; empty if it has none."""
    if not isinstance(profile, HardwareProfile):
        return ""
    return f"{profile.name} ({basis_of(profile)}; digest {profile.digest()})"


def check_drafts(scenario: Scenario, origin: str) -> None:
    """Raise InputError for drafts on which a profile says nothing: of one load, or of blocks and not of chains."""
    drafters, varies = scenario.drafters, scenario.verifiers.allocate is not None
    for profile in drafting_profiles(scenario):
        if profile.one_pass and drafters.kind not in ("block", "replayed"):
            raise InputError(
                f"{origin}: drafters.kind = {drafters.kind!r}: profile {profile.name!r} has a drafter of blocks, all "
                "tokens of a draft in one pass; allowed with it: 'block', 'replayed'"
            )
    for profile in known_profiles(scenario):
        if profile.inferred_at is None:
            continue
        depth = drafters.depth if drafters.count else 0
        try:
            drafts = depth, drafters.shape.nodes(depth)
        except ValueError:  # too large a tree, which `resolve` refuses
            return
        is_apart = bool(depth) and drafters.place != "target"
        if varies or is_apart or drafts != profile.inferred_at:
            at = "varies" if varies else f"is {depth} ({drafts[1]} tokens){', apart from the target' * is_apart}"
            asked = f"the depth of drafts {at}" if depth or varies else "nothing is drafted"
            known = "{} ({} tokens)".format(*profile.inferred_at)
            raise InputError(
                f"{origin}: {asked}, and profile {profile.name!r} is inferred from one load of depth {known}, with "
                "times for nothing else; give a profile of several depths, or import again with --target MODEL@DEVICE "
                "and --draft MODEL"
            )
