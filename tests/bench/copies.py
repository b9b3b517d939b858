"""Batches of copies, row by row: rows that all begin at once, and their simulated time."""

from collections.abc import Iterable, Sequence

from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.records.playback import Playback
from specfleet.fleet.records.replay import replay
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.sim.run import simulate


def copies(profile: HardwareProfile, rows: int, text: Sequence[int], prompt: int, depth: int) -> Scenario:
    """A batch of rows with one text, which all begin at once. Equal rows lose nothing by a rollback."""
    content = {
        "profile": profile,
        "drafters": {"depth": depth, "place": "target"},
        "verifiers": {"max_num_seqs": rows, "aligned": {"policy": "rollback"}},
        "workload": {"requests": rows, "streams": rows, "prompt_tokens": prompt, "new_tokens": len(text) + 1},
    }
    return make_scenario(content)


def played(rows: Iterable[Sequence[tuple[int, int]]]) -> Playback:
    """Rounds of each row in order: drafted and accepted tokens."""
    outcomes = {}
    for row, rounds in enumerate(rows):
        outcomes[row, row, "draft"] = [Outcome(drafted=int(drafted)) for drafted, _ in rounds]
        outcomes[row, row, "verify"] = [Outcome(int(accepted)) for _, accepted in rounds]
    return Playback(parts=("acceptance",), outcomes=outcomes)


def taken_s(scenario: Scenario, playback: Playback) -> float:
    """Return the time of all requests, row by row, whose rounds are played back."""
    run = simulate(scenario, playback)
    assert replay(run) == []
    return float(run.frame().time_s.max())
