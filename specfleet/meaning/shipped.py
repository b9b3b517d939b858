"""The profiles and scenarios that ship, each with a line of what it is."""

import tomllib
from pathlib import Path

from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.times.labels import basis_of, label_of
from specfleet.fleet.times.profile import HardwareProfile, read_profile


def profiles() -> list[tuple[str, str, str]]:
    """List the profiles that ship: name, basis, what it is."""
    read = {name: read_profile(name, Path()) for name in shipped_files("profiles")}
    return [(name, basis_of(profile), _what_is(profile)) for name, profile in read.items()]


def scenarios() -> list[tuple[str, str]]:
    """List the scenarios that ship: name, and what the first comment of the file says."""
    return [(name, first_comment(path.read_text())) for name, path in shipped_files("scenarios").items()]


def first_comment(text: str) -> str:
    """Return the first comment line of a TOML text, else the name that it gives itself."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return first.lstrip("# ").strip() if first.startswith("#") else str(tomllib.loads(text).get("name", ""))


def _what_is(profile: HardwareProfile) -> str:
    if basis_of(profile) == "measured":
        return "; ".join(f"{key}: {value}" for key, value in profile.provenance.items()) or "measured"
    assumed = sum(label_of(source) == "assumed" for source in profile.sources.values())
    drafting = profile.sources.get("draft.per_token_s", "no source is given")
    return f"{len(profile.sources) - assumed} numbers stated, {assumed} assumed; time of a draft token: {drafting}"
