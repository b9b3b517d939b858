"""Overhead: time around a station's steps in which its device could have worked but did not.

A station is ready as soon as it has work and no running step. Three delays separate that moment from the next one of
the same kind: a step that waited begins after `queued`, the first step of an idle station after `woken`, and the result
of a step is out `after` its end on the device.
"""

import msgspec

from specfleet.fleet.times.step_time import Constant, Seconds, Spread


class Delay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One delay as a distribution.

    Keys:
        mean_s: Mean delay.
        spread: How single delays spread around the mean.
    """

    mean_s: Seconds = 0.0
    spread: Spread = Constant()


class Overhead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The overhead of one station.

    Keys:
        queued: From the moment at which a step could begin to its start, where work waited for the device.
        woken: The same, where the station was idle and a message asked for the step.
        after: From the end of a step on the device until its result is known to the station.
    """

    queued: Delay = Delay()
    woken: Delay = Delay()
    after: Delay = Delay()


class StationOverheads(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The overheads of both kinds of station.

    Keys:
        drafter: Overhead of a drafter.
        target: Overhead of a target, and of a batch.
    """

    drafter: Overhead = Overhead()
    target: Overhead = Overhead()


class Overheads(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Overheads by how stations share a device.

    Keys:
        own: Stations with devices of their own, and stations that run concurrently on one device.
        time_sliced: Stations in processes of their own that take turns on one device. Left out, `own` holds.
    """

    own: StationOverheads = StationOverheads()
    time_sliced: StationOverheads | None = None
