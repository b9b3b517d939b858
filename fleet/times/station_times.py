"""The times of a station: its steps, and the overhead around them."""

import msgspec

from fleet.times.effects import IdleEffect
from fleet.times.overhead import Overhead
from fleet.times.step_time import StepTime


class DrafterTimes(msgspec.Struct, frozen=True):
    """Times of the drafters from number `first` to the next entry's. `idle`: slowdown of drafts after an idle gap."""

    first: int
    draft: StepTime
    prefill: StepTime
    catch_up_s: float
    idle: IdleEffect
    overhead: Overhead


class VerifierTimes(msgspec.Struct, frozen=True):
    """Times of the targets from number `first` to the next entry's."""

    first: int
    verify: StepTime
    prefill: StepTime
    decode: StepTime
    overhead: Overhead


class BatchTimes(msgspec.Struct, frozen=True):
    """Times of a co-located batch's steps."""

    draft: StepTime
    draft_prefill: StepTime
    prefill: StepTime
    verify: StepTime
    realign: StepTime
    overhead: Overhead
