"""What a calibration left out for lack of memory: a profile says so, and notes on its simulations do."""

from typing import Literal

from specfleet.fleet.times.profile import HardwareProfile

Missing = Literal["contention", "time_sliced", "verify", "rows"]

MEANINGS: dict[Missing, str] = {
    "contention": "how much further steps at once slow each other",
    "time_sliced": "the overhead of stations that take turns",
    "verify": "the time of verifications in service",
    "rows": "steps of more rows",
}
"""What a profile lacks, by the keys of `measured.left_out`."""


def left_out_of(profile: HardwareProfile) -> dict[Missing, str]:
    """Return what a profile lacks because its calibration left stages out, each with the reason."""
    listed = profile.measured.get("left_out", {})
    return {missing: str(listed[missing]) for missing in MEANINGS if missing in listed}
