"""The times of a station: its steps, and the overhead around them."""

import msgspec
from msgspec import UNSET, UnsetType

from specfleet.fleet.times.effects import IdleEffect
from specfleet.fleet.times.overhead import Overhead
from specfleet.fleet.times.step_time import StepTime


class DrafterTimes(msgspec.Struct, frozen=True):
    """Times of the drafters from number `first` to the next entry's. `idle`: slowdown of drafts after an idle gap.

    - `profile`: name and basis of the profile that their tier gives them.
    - `dropped`: draft tokens that they make for a row in which others are found; unset if they leave it out.
    """

    first: int
    draft: StepTime
    prefill: StepTime
    catch_up_s: float
    idle: IdleEffect
    overhead: Overhead
    profile: str = ""
    dropped: int | UnsetType = UNSET


class VerifierTimes(msgspec.Struct, frozen=True):
    """Times of the targets from number `first` to the next entry's. `realign`: of rows that share a rectangle."""

    first: int
    verify: StepTime
    prefill: StepTime
    decode: StepTime
    overhead: Overhead
    realign: StepTime = StepTime()
    profile: str = ""
