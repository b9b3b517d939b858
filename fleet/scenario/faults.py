"""Faults on purpose, as a script: stations that die or stall, and messages that go wrong.

The simulator plays a script, and so do the engine's links and its launcher: `moments` says when
something happens to a station, and `LinkFaults` what becomes of each message of one direction of a link.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

When = Annotated[float, Meta(ge=0, le=1e9)]
HowLong = Annotated[float, Meta(gt=0, le=1e9)]
Share = Annotated[float, Meta(gt=0, le=1)]
Way = Literal["up", "down"]
Effect = Literal["drop", "delay", "duplicate", "reorder"]
Change = Literal["kill", "start", "stall", "resume"]


class Kill(msgspec.Struct, frozen=True, tag="kill", tag_field="what", forbid_unknown_fields=True):
    """A station's process dies, and is started again empty: whatever it knew is lost, the running step too.

    Keys:
        node: Name of the station, as records have it: "drafter" ("drafter.2" of several), "verifier.1".
        at_s: When it dies, since the run began.
        for_s: How long until it is started again, 0 for at once. Left out, it stays dead.
    """

    node: str
    at_s: When = 0.0
    for_s: When | None = None


class Stall(msgspec.Struct, frozen=True, tag="stall", tag_field="what", forbid_unknown_fields=True):
    """A station's process stands still, and then goes on with all that it knew; what was sent to it waits.

    Keys:
        node: Name of the station, as records have it: "drafter" ("drafter.2" of several), "verifier.1".
        at_s: When it stops, since the run began.
        for_s: How long it stands still.
    """

    node: str
    for_s: HowLong
    at_s: When = 0.0


class LinkFault(msgspec.Struct, frozen=True, tag="link", tag_field="what", forbid_unknown_fields=True):
    """Messages between drafters and targets are lost, late, repeated or overtaken.

    Keys:
        effect: "drop": they are lost. "delay": they are late, and later ones wait behind them. "reorder": they are
            late, and later ones overtake them. "duplicate": they arrive on time, and once more, late.
        share (share): How many of the messages.
        by_s: How late at most; each by its own time, spread evenly from 0. Needed for all effects but "drop".
        node: On the links of which station; empty for all links.
        at_s: From when on, since the run began.
        for_s: For how long. Left out, to the end.
    """

    effect: Effect
    share: Share
    by_s: When = 0.0
    node: str = ""
    at_s: When = 0.0
    for_s: HowLong | None = None

    def __post_init__(self) -> None:
        if (self.effect == "drop") != (self.by_s == 0.0):
            wanted = "is lost, and not late: leave by_s out" if self.by_s else "needs by_s above 0, how late it is"
            raise ValueError(f"effect = {self.effect!r}: a message {wanted}")


NodeFault = Kill | Stall
Fault = NodeFault | LinkFault


class Moment(NamedTuple):
    """What happens to a station's process, and when, since the run began."""

    time_s: float
    node: str
    change: Change


def moments(faults: Sequence[Fault]) -> list[Moment]:
    """Return what happens to processes, in the order of time; a change that finds nothing to change is none."""
    found: list[Moment] = []
    for fault in faults:
        if isinstance(fault, Kill):
            found.append(Moment(fault.at_s, fault.node, "kill"))
            if fault.for_s is not None:
                found.append(Moment(fault.at_s + fault.for_s, fault.node, "start"))
        elif isinstance(fault, Stall):
            found.append(Moment(fault.at_s, fault.node, "stall"))
            found.append(Moment(fault.at_s + fault.for_s, fault.node, "resume"))
    return sorted(found, key=lambda moment: moment.time_s)


class Copy(NamedTuple):
    """One arrival of a message: so much later than without faults, in its place among the others or beside them."""

    late_s: float
    in_order: bool


ON_TIME = [Copy(0.0, in_order=True)]


class LinkFaults:
    """What becomes of the messages of one direction of the link between a drafter and a target, drawn with `rng`."""

    def __init__(self, faults: Sequence[Fault], drafter: str, target: str, rng: np.random.Generator) -> None:
        self.faults = [
            fault for fault in faults if isinstance(fault, LinkFault) and fault.node in ("", drafter, target)
        ]
        self.rng = rng

    def copies(self, now_s: float) -> list[Copy]:
        """Return how a message that is sent at `now_s` arrives: not at all, once, or more often."""
        hit = [fault for fault in self._of(now_s) if self.rng.random() < fault.share]
        if not hit:
            return ON_TIME
        late_s, in_order, seconds = 0.0, True, []
        for fault in hit:
            if fault.effect == "drop":
                return []
            by_s = fault.by_s * self.rng.random()
            if fault.effect == "duplicate":
                seconds.append(Copy(by_s, in_order=False))
            else:
                late_s += by_s
                in_order = in_order and fault.effect == "delay"
        return [Copy(late_s, in_order), *seconds]

    def _of(self, now_s: float) -> Iterator[LinkFault]:
        for fault in self.faults:
            ends_s = math.inf if fault.for_s is None else fault.at_s + fault.for_s
            if fault.at_s <= now_s < ends_s:
                yield fault
