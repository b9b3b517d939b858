"""Batches of copies, row by row: rows that all begin at once, and how long the simulator takes for them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleet.chance.places import write_places
from fleet.records.replay import replay
from fleet.scenario.reading import make_scenario
from fleet.scenario.scenario import Scenario
from fleet.times.profile import HardwareProfile
from sim.run import simulate


def copies(
    folder: Path,
    profile: HardwareProfile,
    texts: Sequence[Sequence[int]],
    prompt: int,
    depth: int,
    recorded: int,
    drafted: Any = None,
) -> Scenario:
    """A batch of one row for each text, which all begin at once: when a request of one token before them is done.

    `depth`: of the drafts; `recorded`: of the recording. `drafted`: tokens that there were to accept, as the texts.
    """
    before = [[0], *texts]
    write_places(before, folder / "places.parquet", None if drafted is None else [[0], *drafted])
    lengths = "".join(f"{prompt},{new}\n" for new in (1, *(len(text) + 1 for text in texts)))
    (folder / "lengths.csv").write_text("num_prefill_tokens,num_decode_tokens\n" + lengths)
    content = {
        "profile": profile,
        "acceptance": {"model": "by-place", "file": "places.parquet", "depth": recorded},
        "drafters": {"depth": depth},
        "batch": {"rule": {"policy": "slots", "size": len(texts)}, "padded": False},
        "workload": {"requests": len(before), "lengths": "lengths.csv"},
    }
    return make_scenario(content, base=folder)


def taken_s(scenario: Scenario) -> float:
    """How long all but the first request take, row by row."""
    run = simulate(scenario)
    assert replay(run) == []
    frame = run.frame()
    begun_s = frame[(frame.event == "start") & (frame.kind == "prefill")].time_s.max()
    return float(frame.time_s.max() - begun_s)
