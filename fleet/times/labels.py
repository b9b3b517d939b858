"""What kind of numbers a profile holds: measured, stated by sources, estimated or assumed."""

from typing import Literal

from fleet.times.profile import HardwareProfile

Basis = Literal["measured", "stated", "estimated", "assumed"]
LABELS = ("measured", "fitted", "stated", "estimated", "assumed")  # how the source of a number may begin


def label_of(source: str) -> str:
    """Return what kind of number a source tells of; one that begins with no label is a statement of that source.

    >>> label_of("assumed: two GPUs of one host"), label_of("StarSD table 1, t_s at N = 3")
    ('assumed', 'stated')
    """
    return next((label for label in LABELS if source.startswith(label)), "stated")


def basis_of(profile: HardwareProfile) -> Basis:
    """Return what the step times of a profile rest on; one estimated step makes all of it an estimate."""
    labels = {label_of(source) for source in profile.sources.values()}
    if "estimated" in labels:
        return "estimated"
    if profile.measured or profile.provenance:
        return "measured"
    return "stated" if labels - {"assumed"} else "assumed"


def estimated_numbers(profile: HardwareProfile) -> list[str]:
    """List the numbers of a profile that are estimated, by their dotted names."""
    return [name for name, source in profile.sources.items() if label_of(source) == "estimated"]


def warning_of(basis: str) -> str:
    """Return the words that go with every result of such step times: none but for estimated ones.

    >>> warning_of("estimated")
    'step times estimated, not measured'
    """
    return "step times estimated, not measured" if basis == "estimated" else ""
