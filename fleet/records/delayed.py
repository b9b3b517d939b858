"""Steps that a shared host delayed: they took more than DELAYED times the median of their kind."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specfleet.fleet.records.run import Run

DELAYED = 2.0
MIN_STEPS = 10  # of one kind at one station, whose median says what is usual
Floats = NDArray[np.float64]


def not_delayed(times: ArrayLike) -> Floats:
    """Return the times of like steps, in any unit, without those that the host delayed."""
    values = np.asarray(times, dtype=float)
    kept: Floats = values[values <= DELAYED * np.median(values)] if values.size else values
    return kept


def delayed_count(series: Iterable[ArrayLike]) -> int:
    """Return how many of several series of like steps the host delayed."""
    return sum(np.size(times) - not_delayed(times).size for times in series)


def delayed_share(run: Run) -> float:
    """Return the share of a run's step time that delays of the host added: all beyond the median of delayed steps."""
    frame = run.frame()
    done = frame[(frame.event == "done") & (frame.kind != "prefill")].drop_duplicates(["station", "step"])
    usual_s = done.groupby(["station", "kind"]).duration_s.transform("median")
    often = done.groupby(["station", "kind"]).duration_s.transform("size") >= MIN_STEPS
    delayed = often & (done.duration_s > DELAYED * usual_s)
    whole_s = float(done.duration_s.sum())
    return float((done.duration_s - usual_s)[delayed].sum()) / whole_s if whole_s else 0.0
