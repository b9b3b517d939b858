"""Profiles and scenarios that come with the project, each with a line of what it is."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from fleet.data.shipped import shipped_profiles, shipped_scenarios
from fleet.errors import InputError
from fleet.inputs.text import shortened
from fleet.times.labels import Basis, basis_of, label_of
from fleet.times.profile import HardwareProfile, read_profile


class ShippedProfile(msgspec.Struct, frozen=True):
    """A profile and where its numbers come from.

    `basis`: measured on a host, stated by sources, estimated, or assumed throughout. `stated`, `assumed`: its numbers.
    """

    name: str
    what: str
    basis: Basis
    stated: tuple[str, ...]
    assumed: tuple[str, ...]
    provenance: Mapping[str, str]


class ShippedScenario(msgspec.Struct, frozen=True):
    """A scenario and a line of what it is."""

    name: str
    what: str


def profiles() -> list[ShippedProfile]:
    """List the profiles that ship, by name."""
    return [_profile(name, read_profile(name, Path())) for name in shipped_profiles()]


def scenarios() -> list[ShippedScenario]:
    """List the scenarios that ship, by name: what the first comment of the file says."""
    return [ShippedScenario(name, first_comment(path.read_text())) for name, path in shipped_scenarios().items()]


def scenario_file(name: str) -> Path:
    """Return the file of a scenario that ships; InputError names those that do."""
    files = shipped_scenarios()
    if name not in files:
        raise InputError(f"scenario {shortened(name, quoted=False)}: does not ship; allowed: {', '.join(files)}")
    return files[name]


def first_comment(text: str) -> str:
    """Return the first comment line of a TOML text, else the name that it gives itself."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return first.lstrip("# ").strip() if first.startswith("#") else str(tomllib.loads(text).get("name", ""))


def _profile(name: str, profile: HardwareProfile) -> ShippedProfile:
    assumed = tuple(key for key, source in profile.sources.items() if label_of(source) == "assumed")
    stated = tuple(key for key in profile.sources if key not in assumed)
    basis = basis_of(profile)
    if basis == "measured":
        what = "; ".join(f"{key}: {value}" for key, value in profile.provenance.items()) or "measured"
        return ShippedProfile(name, what, basis, stated, assumed, profile.provenance)
    drafting = profile.sources.get("draft.per_token_s", "no source is told")
    counts = f"{len(stated)} numbers stated, {len(assumed)} assumed"
    what = f"{counts}; time of a draft token: {drafting}"
    return ShippedProfile(name, what, basis, stated, assumed, profile.provenance)
