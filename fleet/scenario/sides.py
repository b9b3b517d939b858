"""Hardware of the two sides: their profiles, the devices that they share, and their overhead.

Mixed hardware names one profile for drafters, one for targets, or one beside `profile`.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from specfleet.fleet.acceptance.models import PerPosition, Recorded, needs_fit
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.scenario import Acceptance, Scenario, SharedDevice
from specfleet.fleet.times.labels import Basis, basis_of
from specfleet.fleet.times.overhead import Overhead, StationOverheads
from specfleet.fleet.times.profile import HardwareProfile

Side = Literal["drafters", "verifiers"]
SIDES: tuple[Side, ...] = ("drafters", "verifiers")
DOUBTFUL: tuple[Basis, ...] = (  # of two profiles: the first
    "estimated", "assumed", "stated", "measured on an unsteady host", "measured",
)  # fmt: skip


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
    replace = msgspec.structs.replace
    sides = {
        side: replace(getattr(scenario, side), profile=made(getattr(scenario, side).profile, f"{side}.profile"))
        for side in SIDES
    }
    return replace(scenario, profile=made(scenario.profile, "profile"), **sides)


def without_profiles(scenario: Scenario) -> Scenario:
    """Return the scenario without its profiles."""
    return with_profiles(scenario, lambda _profile, _key: "")


class Hardware(msgspec.Struct, frozen=True):
    """Hardware of a scenario; a profile is None if there is none.

    - `drafting`, `verifying`: profiles of the times of each side.
    - `shared`: profile of links and acceptance, which belong to no side.
    - `devices`: devices with several stations, by name; a single station has its own device.
    - `drafter_overhead`, `target_overhead`: by how stations share their device.
    """

    drafting: HardwareProfile | None
    verifying: HardwareProfile | None
    shared: HardwareProfile | None
    devices: dict[str, SharedDevice]
    drafter_overhead: Overhead
    target_overhead: Overhead

    @property
    def profiles(self) -> list[HardwareProfile]:
        """The profiles of both sides, as far as there are any."""
        return [profile for profile in (self.drafting, self.verifying) if profile is not None]

    def together(self) -> dict[str, Any]:
        """Return the keys of a fleet that all its profiles give together: name, digest, basis, sizes, powers."""
        if not self.profiles:
            return {"profile": ""}
        first, last = self.profiles[0], self.profiles[-1]
        mixed = len(self.profiles) == 2 and first != last
        digest = first.digest()
        if mixed:
            digest = hashlib.sha256((digest + last.digest()).encode()).hexdigest()[:16]
        has_power = first.power is not None and last.power is not None
        return {
            "profile": f"{first.name} drafts for {last.name}" if mixed else first.name,
            "profile_digest": digest,
            "basis": min(map(basis_of, self.profiles), key=DOUBTFUL.index),
            "vocabulary": last.vocabulary,
            "hidden": last.hidden,
            "power": first.power if has_power else None,
            "target_power": last.power if has_power and last.power != first.power else None,
        }


def hardware_of(scenario: Scenario) -> Hardware:
    """Return the hardware of a scenario."""
    drafters, verifiers = scenario.drafters, scenario.verifiers
    drafting, verifying = (profile_of(scenario, side) for side in SIDES)
    stations = Counter({drafters.device: drafters.count}) + Counter({verifiers.device: verifiers.count})
    devices = {name: device for name, device in scenario.devices.items() if stations[name] > 1}
    of_drafters, of_targets = devices.get(drafters.device), devices.get(verifiers.device)
    return Hardware(
        drafting=drafting,
        verifying=verifying,
        shared=shared_profile(scenario),
        devices=devices,
        drafter_overhead=_overheads(drafting, of_drafters).drafter,
        target_overhead=_overheads(verifying, of_targets).target,
    )


def _overheads(profile: HardwareProfile | None, device: SharedDevice | None) -> StationOverheads:
    """Overheads of a side's stations, by how they share their device; none without a profile."""
    if profile is None:
        return StationOverheads()
    if device is not None and device.sharing == "turns":
        return profile.overhead.time_sliced or profile.overhead.own
    return profile.overhead.own


def title_of(profile: HardwareProfile | str) -> str:
    """Return name and basis of a side's own profile; empty if it has none."""
    return (
        f"{profile.name} ({basis_of(profile)}; digest {profile.digest()})"
        if isinstance(profile, HardwareProfile)
        else ""
    )


def check_drafts(scenario: Scenario, origin: str) -> None:
    """Raise InputError for drafts on which a profile says nothing, because it was inferred from one load."""
    drafters, varies = scenario.drafters, scenario.verifiers.allocate is not None
    profiles = [profile for side in SIDES if (profile := profile_of(scenario, side)) is not None]
    for profile in profiles:
        if profile.inferred_at is None:
            continue
        depth = drafters.depth if drafters.count else 0
        try:
            drafts = depth, drafters.shape.nodes(depth)
        except ValueError:  # too large a tree, which `resolve` refuses
            return
        is_apart = bool(depth) and drafters.place != "target"
        if varies or is_apart or drafts != profile.inferred_at:
            at = ", apart from the target's steps" if is_apart else ""
            asked = "varies" if varies else f"= {depth}, of {drafts[1]} tokens a row{at}"
            known = "depth {}, of {} tokens a row".format(*profile.inferred_at)
            raise InputError(
                f"{origin}: the depth of drafts {asked}: profile {profile.name!r} is inferred from one load of {known} "
                "and says nothing of others; give a profile measured at several depths, or import again with --target "
                "MODEL@DEVICE"
            )
