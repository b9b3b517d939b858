"""Batches of copies, row by row: rows that all begin at once, and their simulated time."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from specfleet.fleet.acceptance.places import write_places
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.records.playback import Playback
from specfleet.fleet.records.replay import replay
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.sim.run import simulate


def copies(
    folder: Path, profile: HardwareProfile, texts: Sequence[Sequence[int]], prompt: int, depth: int, recorded: int
) -> Scenario:
    """A batch of one row for each text, which all begin at once. Equal rows lose nothing by a rollback.

    `depth`: of the drafts; `recorded`: of the recording.
    """
    write_places(texts, folder / "places.parquet")
    lengths = "".join(f"{prompt},{len(text) + 1}\n" for text in texts)
    (folder / "lengths.csv").write_text("num_prefill_tokens,num_decode_tokens\n" + lengths)
    content = {
        "profile": profile,
        "acceptance": {"model": "by-place", "file": "places.parquet", "depth": recorded},
        "drafters": {"depth": depth, "place": "target"},
        "verifiers": {"max_num_seqs": len(texts), "aligned": {"policy": "rollback"}},
        "workload": {"requests": len(texts), "streams": len(texts), "lengths": "lengths.csv"},
    }
    return make_scenario(content, base=folder)


def played(rows: Iterable[Sequence[tuple[int, int]]]) -> Playback:
    """Rounds of each row in order: drafted and accepted tokens."""
    outcomes = {}
    for row, rounds in enumerate(rows):
        outcomes[row, row, "draft"] = [Outcome(drafted=int(drafted)) for drafted, _ in rounds]
        outcomes[row, row, "verify"] = [Outcome(int(accepted)) for _, accepted in rounds]
    return Playback(parts=("acceptance",), outcomes=outcomes)


def taken_s(scenario: Scenario, playback: Playback | None = None) -> float:
    """Return the time of all requests, row by row."""
    run = simulate(scenario, playback)
    assert replay(run) == []
    return float(run.frame().time_s.max())
