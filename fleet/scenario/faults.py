"""Fault scripts: stations that die or stall, and messages that go wrong.

The simulator and the engine play the same script. `moments` are the changes of stations; `LinkFaults` decides the
fate of each message of one direction of a link.
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
    """A station's process dies and restarts empty; its state and its running step are lost.

    Keys:
        node: Name of the station, as records have it: "drafter" ("drafter.2" of several), "verifier.1".
        at_s: Time of death since the run began.
        for_s: Time until the restart, 0 for at once. Left out, the station stays dead.
    """

    node: str
    at_s: When = 0.0
    for_s: When | None = None


class Stall(msgspec.Struct, frozen=True, tag="stall", tag_field="what", forbid_unknown_fields=True):
    """A station's process stops and then continues with its state; messages to it wait.

    Keys:
        node: Name of the station, as records have it: "drafter" ("drafter.2" of several), "verifier.1".
        at_s: Time of the stop since the run began.
        for_s: Length of the stop.
    """

    node: str
    for_s: HowLong
    at_s: When = 0.0


class LinkFault(msgspec.Struct, frozen=True, tag="link", tag_field="what", forbid_unknown_fields=True):
    """Messages between drafters and targets are lost, late, repeated or overtaken.

    Keys:
        effect: "drop": they are lost. "delay": they are late, and later ones wait behind them. "reorder": they are
            late, and later ones overtake them. "duplicate": they arrive on time, and once more, late.
        share (share): Share of affected messages.
        by_s: Maximum delay; each message has its own, uniform from 0. Needed for all effects but "drop".
        node: The station at the affected links; empty for all links.
        at_s: Start since the run began.
        for_s: Length. Left out, to the end.
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
CHANGES: dict[type[NodeFault], tuple[Change, Change]] = {Kill: ("kill", "start"), Stall: ("stall", "resume")}


class Moment(NamedTuple):
    """A change of a station's process, and its time since the run began."""

    time_s: float
    node: str
    change: Change


def moments(faults: Sequence[Fault]) -> list[Moment]:
    """Return the changes of processes in order of time; a change without effect is left out."""
    changes: list[Moment] = []
    for fault in faults:
        if isinstance(fault, LinkFault):
            continue
        begins, ends = CHANGES[type(fault)]
        changes.append(Moment(fault.at_s, fault.node, begins))
        if fault.for_s is not None:
            changes.append(Moment(fault.at_s + fault.for_s, fault.node, ends))
    return sorted(changes, key=lambda moment: moment.time_s)


class Copy(NamedTuple):
    """One arrival of a message: its delay beyond the fault-free one, in order with the others or beside them."""

    late_s: float
    in_order: bool


ON_TIME = [Copy(0.0, in_order=True)]


class LinkFaults:
    """Fate of the messages of one direction of the link between a drafter and a target, drawn with `rng`."""

    def __init__(self, faults: Sequence[Fault], drafter: str, target: str, rng: np.random.Generator) -> None:
        self.faults = [
            fault for fault in faults if isinstance(fault, LinkFault) and fault.node in ("", drafter, target)
        ]
        self.rng = rng
        self.last_s = 0.0  # arrival of the last message in order

    def arrivals_s(self, now_s: float, way_s: float = 0.0) -> Iterator[float]:
        """Yield when a message sent at `now_s` arrives: once, never, or repeatedly; after `way_s` without faults."""
        for late_s, in_order in self.copies(now_s):
            arrives_s = now_s + way_s + late_s
            if in_order:
                arrives_s = self.last_s = max(self.last_s, arrives_s)
            yield arrives_s

    def copies(self, now_s: float) -> list[Copy]:
        """Return the arrivals of a message sent at `now_s`: none, one, or several."""
        hit = [
            fault
            for fault in self.faults
            if fault.at_s <= now_s < fault.at_s + (fault.for_s or math.inf) and self.rng.random() < fault.share
        ]
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
