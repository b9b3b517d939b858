"""What passes around the steps of stations that take turns on a device: handovers, wake-ups, links, dispatch.

It finds the caches full of models' data, as their steps do, so fleets whose targets only wait do not show it. Times are
read without waits for a core, as if the host had kept its reference pace and the drafter had never been idle.
"""

from typing import Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibrate.core_waits import before_starts
from calibrate.fits import spread_of
from calibrate.idle import FEWEST, overheads
from calibrate.inservice import SETTLING_ROUNDS, idle_s
from fleet.records.paces import paces_of
from fleet.records.playback import Playback, playback_of
from fleet.records.run import Run
from fleet.scenario.names import DRAFTER
from fleet.times.effects import IdleEffect
from fleet.times.pace import Pace, slowness_at
from fleet.times.step_time import LinkTime

Floats = NDArray[np.float64]

ROUND = ["tag", "request", "epoch"]


class Between(msgspec.Struct, frozen=True):
    """What passed around the steps of one fleet, in seconds, each an array (steps or messages,).

    `handovers_s`: end of a step on the device to the start of the next, where that had been asked for before.
    `wake_ups_s`: arrival of a message to the start of its step, where the device was free. `ways_s`: end of a step to
    the arrival of what it sent, where the sender began nothing at once and the receiver ran nothing. `dispatches_s`:
    start of a step to its end, without the step's own time.
    """

    handovers_s: Floats
    wake_ups_s: Floats
    ways_s: Floats
    dispatches_s: Floats


def between_steps(run: Run, control_s: float, idle: IdleEffect, everyone_waits: bool) -> Between:
    """Read what passed around the steps of one drafter and its targets on one device.

    `everyone_waits`: in one process there is nothing but function calls between any two steps, so all are handovers.
    """
    playback, rows = playback_of(run), run.frame().sort_values(["station", "seq"])
    pace = paces_of(run, control_s).get(DRAFTER, Pace((1.0,)))
    steps = _steps(rows, before_starts(run, playback))
    ways, asked = _ways(steps, rows, playback), steps.kind.isin(["draft", "verify"])  # by messages, and by nothing else

    def plain_s(times_s: pd.Series, at_s: pd.Series, gaps_s: Any = 0.0) -> Floats:
        passed_s: Floats = np.maximum(times_s.to_numpy(), 0.0) / slowness_at(pace, at_s.to_numpy())
        return passed_s / overheads(idle, np.asarray(gaps_s))

    late_s = steps.begun_s - steps.core_wait_s
    handed = asked & (steps.freed_s >= 0) & (everyone_waits | (steps.asked_s <= steps.freed_s))
    handovers_s = plain_s((late_s - steps.freed_s)[handed], steps.begun_s[handed])
    handing_s = float(np.median(handovers_s)) if len(handovers_s) else 0.0
    woken = asked & (steps.asked_s > steps.freed_s + handing_s)
    settled = steps.groupby("station").cumcount() >= SETTLING_ROUNDS
    dispatches_s = (steps.ended_s - steps.begun_s - steps.duration_s)[settled]
    return Between(
        handovers_s,
        plain_s((late_s - steps.asked_s)[woken], steps.begun_s[woken], steps.idle_s[woken]),
        plain_s(ways.way_s[ways.alone], ways.at_s[ways.alone], ways.idle_s[ways.alone]),
        plain_s(dispatches_s, steps.begun_s[settled], steps.gap_s[settled]),
    )


def mean_s(times_s: Floats, fewest: int = FEWEST) -> float | None:
    """Return the mean of times; None where there are too few of them."""
    return float(times_s.mean()) if len(times_s) >= fewest else None


def link_of(ways_s: Floats) -> LinkTime | None:
    """Return the link, one way, of which these are single ways; None where there are too few of them."""
    latency_s = mean_s(ways_s)
    return None if not latency_s else LinkTime(latency_s, spread=spread_of(ways_s / latency_s))


def _steps(rows: pd.DataFrame, core_waits_s: pd.Series) -> pd.DataFrame:
    """Return all steps in the order in which they began: when they began and ended, their own time, the wait for a core
    before them, and when the device had been freed before.

    `asked_s`: when the message came that a step follows from; NaN without one. `idle_s`: how long the drafter had been
    idle then, `gap_s`: until it began; both 0 for targets, whose idleness no profile knows.
    """
    done = rows[rows.event == "done"].drop_duplicates(["station", "step"])
    starts = rows[rows.event == "start"].drop_duplicates(["station", "step"]).set_index(["station", "step"])
    place = pd.MultiIndex.from_frame(done[["station", "step"]])
    asks = rows[rows.event.isin(["draft-request", "draft"])].set_index(["station", *ROUND]).time_s
    steps = (
        done[["station", "kind", *ROUND, "duration_s"]]
        .assign(
            begun_s=starts.time_s.reindex(place).to_numpy(),
            ended_s=done.time_s,
            core_wait_s=core_waits_s.reindex(place).to_numpy(),
            asked_s=asks.reindex(pd.MultiIndex.from_frame(done[["station", *ROUND]])).to_numpy(),
        )
        .sort_values("begun_s")
    )
    of_drafter = steps.station == DRAFTER
    before_s = steps.groupby("station").ended_s.shift().fillna(steps.begun_s)
    known = of_drafter & steps.asked_s.notna()
    return steps.assign(
        gap_s=np.where(of_drafter, steps.begun_s - before_s, 0.0),
        idle_s=np.where(known, idle_s(steps.asked_s.to_numpy(), _busy_s(steps)), 0.0),
        freed_s=steps.ended_s.shift(fill_value=-np.inf),
    )


def _ways(steps: pd.DataFrame, rows: pd.DataFrame, playback: Playback) -> pd.DataFrame:
    """Return the messages between drafter and targets: how long they took, but for cores, and when they left or came.

    `idle_s`: idleness of the drafter before what it sent, or until a request was sent. `alone`: whether it began
    nothing at once after it had sent, or ran nothing when the request came.
    """
    own = steps[steps.station == DRAFTER]
    own = own.assign(alone=~(own.asked_s.shift(-1) <= own.ended_s))[own.kind == "draft"]
    sent = own.set_index(ROUND)[["ended_s", "gap_s", "alone"]]
    asked = rows[(rows.station == DRAFTER) & (rows.event == "draft-request")].set_index(ROUND).time_s
    idle = pd.Series(idle_s(asked.to_numpy(), _busy_s(steps)), asked.index)
    ways = []
    for message, (way_s, *_) in playback.ways_s.items():
        (_, kind, *place), plain_s = message, way_s - playback.ways_waited_s[message][0]
        if kind == "Draft" and tuple(place) in sent.index:
            ways.append((plain_s, *sent.loc[tuple(place)]))
        elif kind == "DraftRequest":
            idle_for_s = idle[tuple(place)]
            ways.append((plain_s, asked[tuple(place)], max(idle_for_s - way_s, 0.0), idle_for_s > 0))
    return pd.DataFrame(ways, columns=["way_s", "at_s", "idle_s", "alone"]).astype({"alone": bool})


def _busy_s(steps: pd.DataFrame) -> Floats:
    """Return when the drafter ran a step: begin and end, (steps, 2)."""
    busy_s: Floats = steps.loc[steps.station == DRAFTER, ["begun_s", "ended_s"]].to_numpy()
    return busy_s
