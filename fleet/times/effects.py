"""What makes steps slower than their step times say: idle gaps, recent load, a shared device; and electrical power."""

import bisect
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fleet.times.step_time import Constant, Factor, LinkTime, Seconds, Share, Spread

Watts = Annotated[float, Meta(ge=0, le=1e9)]
SlowedStep = Literal["draft", "verify", "decode", "draft_prefill", "verify_prefill"]


class IdleEffect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a drafter slows down after it was idle: flat, rising, flat (StarSD, section 5.3 and figure 6b).

    Keys:
        gaps_s: Idle gaps, rising.
        slowdowns (factor): `slowdowns[i]` multiplies the draft time after a gap of `gaps_s[i]`, linear in between, flat
            outside.
        overheads (factor): `overheads[i]` multiplies what passes around a step then: dispatch, wake-up, and the link
            that was measured between processes of this host. Empty is 1 everywhere.
        recoveries (share): `recoveries[w]` is the share of the excess that is left after w warm-up tokens (figure 6c),
            flat beyond the last.
    """

    gaps_s: Annotated[tuple[Seconds, ...], Meta(min_length=1)] = (0.0,)
    slowdowns: Annotated[tuple[Factor, ...], Meta(min_length=1)] = (1.0,)
    overheads: tuple[Factor, ...] = ()
    recoveries: Annotated[tuple[Share, ...], Meta(min_length=1)] = (1.0,)

    def __post_init__(self) -> None:
        if len(self.gaps_s) != len(self.slowdowns) or list(self.gaps_s) != sorted(self.gaps_s):
            raise ValueError("idle effect needs rising gaps_s and one slowdown for each")
        if self.overheads and len(self.overheads) != len(self.gaps_s):
            raise ValueError("idle effect needs one overhead for each of gaps_s, or none")

    def slowdown(self, idle_gap_s: float, warm_tokens: int = 0) -> float:
        """Multiplier of the draft time after `idle_gap_s` of idleness and `warm_tokens` warm-up tokens."""
        slowdown = interpolated(idle_gap_s, self.gaps_s, self.slowdowns)
        if not warm_tokens:
            return slowdown
        return 1 + (slowdown - 1) * self.recoveries[min(warm_tokens, len(self.recoveries) - 1)]

    @property
    def of_overheads(self) -> "IdleEffect":
        """The same for what passes around steps; drafts are not slowed."""
        return msgspec.structs.replace(self, slowdowns=(1.0,) * len(self.gaps_s))

    def overhead(self, idle_s: float) -> float:
        """Multiplier of what passes around a step while the drafter has been idle for `idle_s`."""
        return interpolated(idle_s, self.gaps_s, self.overheads) if self.overheads else 1.0


NEVER_IDLE = IdleEffect()
"""No idleness slows anything."""


class CoreWaits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What threads wait for a core of their host, beside turnarounds, wake-ups and links, where the kernel told.

    A measured run that is played back brings waits of its own in place of these.

    Keys:
        start_s: Before a step begins.
        start_spread: How single ones of these spread around their mean.
        way_s: Of what sends and receives a message, on its way between processes of the host.
        way_spread: How single ones of these spread around their mean.
    """

    start_s: Seconds = 0.0
    start_spread: Spread = Constant()
    way_s: Seconds = 0.0
    way_spread: Spread = Constant()


class RecentLoad(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a draft slows down while its device was little used of late, beyond what the last idle gap does.

    The recent load is the busy share of the past, weighted by an exponential memory.

    Keys:
        half_life_s: Half-life of that memory.
        loads (share): Recent loads, rising.
        slowdowns (factor): `slowdowns[i]` multiplies the draft time at a recent load of `loads[i]`, linear in between,
            flat outside.
        paces (factor): `paces[i]` is the host's mean slowness at that load, apart from the slowdown: a shared host
            lends out cores that idle. Empty is 1 everywhere. Where a measured pace is played back, that takes its
            place.
    """

    half_life_s: Annotated[float, Meta(gt=0, le=1e9)]
    loads: Annotated[tuple[Share, ...], Meta(min_length=1)]
    slowdowns: Annotated[tuple[Factor, ...], Meta(min_length=1)]
    paces: tuple[Factor, ...] = ()

    def __post_init__(self) -> None:
        if len(self.loads) != len(self.slowdowns) or list(self.loads) != sorted(self.loads):
            raise ValueError("recent load needs rising loads and one slowdown for each")
        if self.paces and len(self.paces) != len(self.loads):
            raise ValueError("recent load needs one pace for each load, or none")

    def after(self, load: float, time_s: float, busy: bool) -> float:
        """Return the recent load `time_s` later, if the device was busy, or idle, all that time."""
        kept = 2 ** (-time_s / self.half_life_s)
        return 1 - (1 - load) * kept if busy else load * kept

    def slowdown(self, load: float) -> float:
        """Multiplier of the draft time at a recent load, at the reference pace."""
        return interpolated(load, self.loads, self.slowdowns)

    def pace(self, load: float) -> float:
        """The host's mean slowness at a recent load."""
        return interpolated(load, self.loads, self.paces) if self.paces else 1.0


class LoadCount:
    """Keeps count of how much a device was used of late; 1 for ever where no effect asks for it."""

    def __init__(self, effect: RecentLoad | None) -> None:
        self.effect = effect
        self.load = 1.0
        self.counted_s = 0.0

    def until(self, now_s: float, busy: bool) -> float:
        """Count the time since the last call as busy or idle; return the recent load."""
        if self.effect is not None:
            self.load = self.effect.after(self.load, now_s - self.counted_s, busy)
            self.counted_s = now_s
        return self.load


def interpolated(x: float, xs: tuple[float, ...], ys: tuple[float, ...]) -> float:
    """Piecewise linear interpolation, flat outside; `numpy.interp` for one number is ten times slower."""
    right = bisect.bisect_right(xs, x)
    if right == 0:
        return ys[0]
    if right == len(xs):
        return ys[-1]
    share = (x - xs[right - 1]) / (xs[right] - xs[right - 1])
    return ys[right - 1] + share * (ys[right] - ys[right - 1])


class Turns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stations pay for taking turns on a device: each finds the caches full of the others' data.

    Contended stations pay all but the handover, too, beside the contention. In one process nobody is woken, and no
    message is on its way; a draft's way down while the next one begins is that of any device.

    Keys:
        slowdowns (factor): By step (draft, verify, decode, draft_prefill, verify_prefill): what multiplies its time. A
            step that is missing is not slowed.
        handover_s: Time between the end of one step and the start of the next that was waiting.
        wake_up_s: From the arrival of a message to the start of its step, where the device is free. Left out, it is
            that of a station with a device of its own; so are the next two.
        dispatch_s: What a station spends around each step beyond the step's own time.
        link: The link between stations on the device, one way.
    """

    slowdowns: dict[SlowedStep, Factor] = {}
    handover_s: Seconds = 0.0
    wake_up_s: Seconds | None = None
    dispatch_s: Seconds | None = None
    link: LinkTime | None = None


class Power(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Electrical power of a device, by what it does.

    Keys:
        idle_w: While it does nothing.
        draft_w: While it drafts, or prefills a drafter's cache.
        verify_w: While it does anything else: verifies, decodes, or prefills a target's cache.
    """

    idle_w: Watts
    draft_w: Watts
    verify_w: Watts
