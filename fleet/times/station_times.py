"""The times of a station: its steps, with the slowdowns of a shared device in them, and what passes between them."""

import msgspec

from fleet.times.effects import IdleEffect, RecentLoad
from fleet.times.step_time import Constant, Spread, StepTime


class Delays(msgspec.Struct, frozen=True):
    """What passes at a station between steps, and around them.

    `turnaround_s`: after each step, and `turnaround_row_s` more for each further row of it, before the next can start.
    `wake_up_s`: from the arrival of a message at the idle station to the start of the step that it asks for.
    `dispatch_s`: what a step keeps its station and its device beyond its own time. `spread`: of single turnarounds and
    wake-ups around their means. `core_wait_s`: for a core, before a step, at no pace but the host's other processes'.
    """

    turnaround_s: float = 0.0
    turnaround_row_s: float = 0.0
    wake_up_s: float = 0.0
    dispatch_s: float = 0.0
    spread: Spread = Constant()
    core_wait_s: float = 0.0
    core_wait_spread: Spread = Constant()


class DrafterTimes(msgspec.Struct, frozen=True):
    """Times of the drafters from number `first` to the next entry's; slowdowns of a shared device are in them.

    `idle`: how drafts and what passes around them slow down after idleness; `recent_load`: how drafts do on a drafter
    that was little used; neither where stations take turns, whose slowdowns hold both.
    """

    first: int
    draft: StepTime
    prefill: StepTime
    transfer: StepTime
    catch_up_s: float
    idle: IdleEffect
    recent_load: RecentLoad | None
    delays: Delays


class VerifierTimes(msgspec.Struct, frozen=True):
    """Times of the targets from number `first` to the next entry's; slowdowns of a shared device are in them."""

    first: int
    verify: StepTime
    prefill: StepTime
    decode: StepTime
    delays: Delays


class BatchTimes(msgspec.Struct, frozen=True):
    """Times of a co-located batch's steps."""

    draft: StepTime
    draft_prefill: StepTime
    prefill: StepTime
    verify: StepTime
    realign: StepTime
    delays: Delays
