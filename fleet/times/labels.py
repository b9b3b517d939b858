"""Kinds of numbers in a profile: measured, stated by sources, estimated or assumed; and what a calibration left out."""

from typing import Literal

from specfleet.fleet.times.profile import HardwareProfile

Basis = Literal["measured", "measured on an unsteady host", "stated", "estimated", "assumed"]
UNSTEADY_HOST = "unsteady host"  # key of a profile's provenance: what no steady host gives
LABELS = ("measured", "fitted", "stated", "estimated", "assumed")  # possible prefixes of a number's source

EFFICIENCIES = ("bandwidth_share", "compute_share", "product_s", "kernel_s", "kernel_share")  # of a device, in sources
ASSUMED_RANGE = (0.68, 2.0)
"""What measured steps took over estimated ones where efficiencies were assumed: 95 % of TPOTs on H200, B200 and B300,
RTX 4090 and RTX PRO 6000 before their fits, and four of MI300X, which are the upper end (`bench/serving_rows.py`,
`bench/published.py`). GB200 is left out: 7 rows of a cache too small to tell."""


def label_of(source: str) -> str:
    """Return the kind of number of a source; without a known prefix, the source states the number.

    >>> label_of("assumed: two GPUs of one host"), label_of("StarSD table 1, t_s at N = 3")
    ('assumed', 'stated')
    """
    return next((label for label in LABELS if source.startswith(label)), "stated")


def basis_of(profile: HardwareProfile) -> Basis:
    """Return the kind of a profile's step times; one estimated step makes all of it an estimate."""
    labels = {label_of(source) for source in profile.sources.values()}
    if "estimated" in labels:
        return "estimated"
    if profile.measured or profile.provenance:
        return "measured on an unsteady host" if unsteady_of(profile) else "measured"
    return "stated" if labels - {"assumed"} else "assumed"


def estimated_numbers(profile: HardwareProfile) -> list[str]:
    """List a profile's estimated numbers by their dotted names."""
    return [name for name, source in profile.sources.items() if label_of(source) == "estimated"]


def rests_on_assumed(profile: HardwareProfile, role: Literal["target", "drafter"]) -> bool:
    """Return whether the steps of a role are estimated for a device whose efficiencies are assumed."""
    sources = (profile.sources.get(f"{role}.device.{name}", "") for name in EFFICIENCIES)
    return any(label_of(source) == "assumed" for source in sources)


def warning_of(basis: str) -> str:
    """Return the warning of every result of such step times; empty unless they are estimated, or of an unsteady host.

    >>> warning_of("estimated")
    'step times estimated, not measured'
    """
    if basis.endswith("unsteady host"):
        return f"step times {basis}"
    return "step times estimated, not measured" if basis == "estimated" else ""


def unsteady_of(profile: HardwareProfile) -> str:
    """Return what no steady host gives, where a calibration was told to accept it; else nothing."""
    return profile.provenance.get(UNSTEADY_HOST, "")


Missing = Literal["contention", "time_sliced", "rows", "warm_up"]

MEANINGS: dict[Missing, str] = {
    "contention": "how much further steps at once slow each other",
    "time_sliced": "the overhead of stations that take turns",
    "rows": "steps of more rows",
    "warm_up": "what warm-up tokens save after an idle gap",
}
"""What a profile lacks, by the keys of `measured.left_out`."""


def left_out_of(profile: HardwareProfile) -> dict[Missing, str]:
    """Return what a profile lacks because its calibration left stages out, each with the reason."""
    listed = profile.measured.get("left_out", {})
    return {missing: str(listed[missing]) for missing in MEANINGS if missing in listed}
