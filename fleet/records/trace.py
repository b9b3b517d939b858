"""A run as a Chrome/Perfetto trace: open the file at ui.perfetto.dev, or in chrome://tracing."""

import json
from pathlib import Path
from typing import Any

from fleet.files import write_file
from fleet.records.run import Run
from fleet.scenario.names import DRAFTER

MICROSECONDS = 1e6


def to_trace(run: Run) -> dict[str, Any]:
    """Return the trace: a thread for each station, a slice for each step, an arrow from each draft to its verification.

    A counter track shows the requests that wait at the drafter. Times are in microseconds since the run began.
    """
    frame = run.frame()
    threads = {
        name: number
        for number, name in enumerate(sorted(frame.station.unique(), key=lambda name: (DRAFTER not in name, name)))
    }
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": number, "args": {"name": name}}
        for name, number in threads.items()
    ]
    begun: dict[tuple[str, int, int], Any] = {}
    waiting: set[int] = set()
    for row in frame.itertuples():
        place = {"pid": 0, "tid": threads[row.station]}
        time_us = row.time_s * MICROSECONDS
        round_id = f"{row.tag}-{row.request}-{row.epoch}"
        if row.event == "start":
            begun[row.station, row.step, row.tag] = row
            if row.station.startswith(DRAFTER) and row.tag in waiting:
                waiting.discard(row.tag)
                events.append(_counter(time_us, len(waiting)))
            if row.kind == "verify":
                events.append(
                    {"ph": "f", "bp": "e", "name": "draft", "cat": "round", "id": round_id, "ts": time_us, **place}
                )
        elif row.event == "done":
            start = begun.pop((row.station, row.step, row.tag))
            begun_us = start.time_s * MICROSECONDS
            facts = {"tag": row.tag, "request": row.request, "epoch": row.epoch, "base": row.base, "tokens": row.tokens}
            if row.kind == "verify":
                facts["accepted"] = row.accepted
            events.append(
                {
                    "ph": "X",
                    "name": row.kind,
                    "cat": row.origin,
                    "ts": begun_us,
                    "dur": time_us - begun_us,
                    "args": facts,
                }
                | place
            )
            if row.kind == "draft":
                # The arrow starts inside the slice, so that viewers attach it to the draft.
                events.append({"ph": "s", "name": "draft", "cat": "round", "id": round_id, "ts": begun_us, **place})
        elif row.event == "draft-request" and row.station.startswith(DRAFTER):
            waiting.add(row.tag)
            events.append(_counter(time_us, len(waiting)))
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def write_trace(run: Run, path: Path) -> None:
    """Write the trace of a run as JSON."""
    write_file(path, json.dumps(to_trace(run)))


def _counter(time_us: float, waiting: int) -> dict[str, Any]:
    return {
        "ph": "C",
        "name": "requests waiting at the drafter",
        "pid": 0,
        "tid": 0,
        "ts": time_us,
        "args": {"requests": waiting},
    }
