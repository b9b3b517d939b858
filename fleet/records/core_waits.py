"""Waits for a core in a measured run's log, given to the steps and messages that they held up.

A thread's wait is known when something is written next, and may have held up nothing: no step or message is given more
than it was later than the quick ones of its kind, which waited for nothing.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from fleet.records.run import Run

What = Literal["start", "done", "told"]
Message = tuple[str, str, int, int, int]
"""What names a message between stations (`playback.Sent`)."""
Place = tuple[Message, int]
"""A message between stations, and how many of the same name were sent before it."""

QUICK = 0.1  # the share of messages, and of starts, that are taken to have waited for nothing


class Held(msgspec.Struct, frozen=True):
    """Threads that work for a station waited for `wait_s`, and with them what arrived, and all that left before."""

    wait_s: float
    arrived: Place | None = None
    left: tuple[Place, ...] = ()


def core_waits(run: Run) -> Mapping[tuple[str, What], Iterator[float]]:
    """Return the waits that each station's rows tell, in seconds and in order: one a start, an end, a message."""
    rows = run.frame().sort_values("seq")
    ends_life = rows.event.isin(["killed", "restart"])  # steps are numbered anew in the next one
    rows["life"] = ends_life.groupby(rows.station).cumsum()
    waits_s: dict[tuple[str, What], Iterator[float]] = {}
    for name, of_station in rows.groupby("station"):
        for what in ("start", "done"):
            of_step = of_station[of_station.event == what].groupby(["life", "step"], sort=False).core_wait_s.sum()
            waits_s[str(name), what] = iter(of_step.tolist())
        told = of_station[~of_station.event.isin(["start", "done", "killed"])]
        waits_s[str(name), "told"] = iter(told.core_wait_s.tolist())
    return waits_s


def ways_waited(held: Sequence[Held], ways_s: Mapping[Message, Sequence[float]]) -> dict[Message, list[float]]:
    """Return how much of each way, in seconds, was waiting for a core, like `ways_s`.

    What arrived comes first; what is left of a wait held up each message that left.
    """
    waited_s = {sent: [0.0] * len(times_s) for sent, times_s in ways_s.items()}
    of_kind: dict[str, list[float]] = defaultdict(list)
    for (_receiver, kind, *_), times_s in ways_s.items():
        of_kind[kind] += times_s
    quick_s = {kind: quick(times_s) for kind, times_s in of_kind.items()}

    def give(wait_s: float, place: Place) -> float:
        """Give a wait to a message, as far as that was late; return how much it took."""
        sent, number = place
        if number >= len(ways_s.get(sent, ())):
            return 0.0
        given_s = max(0.0, min(wait_s, ways_s[sent][number] - quick_s[sent[1]] - waited_s[sent][number]))
        waited_s[sent][number] += given_s
        return given_s

    for each in held:
        taken_s = 0.0 if each.arrived is None else give(each.wait_s, each.arrived)
        for place in each.left:
            give(each.wait_s - taken_s, place)
    return waited_s


def starts_waited(waits_s: Sequence[float], lates_s: Sequence[float]) -> list[float]:
    """Return how much of what each step of a station began late, in seconds, was waiting for a core; same length."""
    quick_s = quick(lates_s)
    return [max(0.0, min(wait_s, late_s - quick_s)) for wait_s, late_s in zip(waits_s, lates_s, strict=True)]


def quick(times_s: Sequence[float]) -> float:
    """Return what the quick ones of some times take at most, in seconds, none below 0; 0 of nothing."""
    return max(0.0, float(np.quantile(times_s, QUICK))) if times_s else 0.0
