"""The profiles and scenarios that ship, each with a line of what it is."""

import tomllib
from pathlib import Path
from typing import Any

from fleet.data.shipped import shipped_profiles, shipped_scenarios
from fleet.times.labels import basis_of, label_of
from fleet.times.profile import HardwareProfile, read_profile


def profiles() -> list[dict[str, Any]]:
    """List the profiles that ship: name, what it is, its basis, numbers that are stated or assumed, provenance."""
    return [_profile(name, read_profile(name, Path())) for name in shipped_profiles()]


def scenarios() -> list[dict[str, Any]]:
    """List the scenarios that ship: name, and what the first comment of the file says."""
    return [{"name": name, "what": first_comment(path.read_text())} for name, path in shipped_scenarios().items()]


def first_comment(text: str) -> str:
    """Return the first comment line of a TOML text, else the name that it gives itself."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return first.lstrip("# ").strip() if first.startswith("#") else str(tomllib.loads(text).get("name", ""))


def _profile(name: str, profile: HardwareProfile) -> dict[str, Any]:
    assumed = [key for key, source in profile.sources.items() if label_of(source) == "assumed"]
    stated, basis = [key for key in profile.sources if key not in assumed], basis_of(profile)
    if basis == "measured":
        what = "; ".join(f"{key}: {value}" for key, value in profile.provenance.items()) or "measured"
    else:
        drafting = profile.sources.get("draft.per_token_s", "no source is given")
        what = f"{len(stated)} numbers stated, {len(assumed)} assumed; time of a draft token: {drafting}"
    numbers = {"stated": stated, "assumed": assumed}
    return {"name": name, "what": what, "basis": basis, **numbers, "provenance": profile.provenance}
