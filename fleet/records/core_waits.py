"""Waits for a core in a measured run's log, given to the steps and messages that they held up.

A thread's wait is known when something is written next, and may have held up nothing: no step or message is given more
than it was late.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from fleet.records.run import Run

What = Literal["start", "done", "told"]
Place = tuple[tuple[str, str, int, int, int], int]
"""A message between stations (`playback.Sent`), and how many of the same name were sent before it."""


class Held(msgspec.Struct, frozen=True):
    """Threads that send and receive for a station waited for `wait_s`: with it what arrived, and what left before."""

    wait_s: float
    arrived: Place | None
    left: Place | None


def core_waits(run: Run) -> Mapping[tuple[str, What], Iterator[float]]:
    """Return the waits that each station's rows tell, in seconds and in order: one a start, an end, a message."""
    rows = run.frame().sort_values("seq")
    waits_s: dict[tuple[str, What], Iterator[float]] = {}
    for name, of_station in rows.groupby("station"):
        for what in ("start", "done"):
            of_step = of_station[of_station.event == what].groupby("step", sort=False).core_wait_s.sum()
            waits_s[str(name), what] = iter(of_step.tolist())
        told = of_station[~of_station.event.isin(["start", "done"])]
        waits_s[str(name), "told"] = iter(told.core_wait_s.tolist())
    return waits_s


def ways_waited(
    held: Sequence[Held], ways_s: Mapping[tuple[str, str, int, int, int], Sequence[float]]
) -> dict[tuple[str, str, int, int, int], list[float]]:
    """Return how much of each way, in seconds, was waiting for a core, like `ways_s`: what arrived comes first."""
    waited_s = {sent: [0.0] * len(times_s) for sent, times_s in ways_s.items()}
    for each in held:
        left_s = each.wait_s
        for place in (each.arrived, each.left):
            if place is None or place[1] >= len(ways_s.get(place[0], ())):
                continue
            sent, number = place
            given_s = max(0.0, min(left_s, ways_s[sent][number] - waited_s[sent][number]))
            waited_s[sent][number] += given_s
            left_s -= given_s
    return waited_s
