"""Options of drafters, for drafters with a model and for replayed ones: each has its effect, and logs replay.

Every shipped scenario runs on the engine, with fewer requests.
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest

from specfleet.engine.launch.runnable import check_can_run
from specfleet.engine.launch.serve import serve
from specfleet.engine.outside.job import job_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.order import Fifo
from specfleet.fleet.records.replay import replay, replay_stations
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.changes import Changes
from specfleet.fleet.scenario.reading import read_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.stations.build import stations
from tests.helpers.marks import slow
from tests.helpers.pairs import pair_scenario
from tests.helpers.plain import plain_outputs
from tests.helpers.stars import star

SCENARIOS = sorted((Path(__file__).parents[2] / "fleet" / "data" / "scenarios").glob("*.toml"))
FEWER: dict[str, dict[str, Any]] = {  # a shipped scenario with real models needs a process of torch for each station
    "m-for-n": {"drafters.kind": "replayed", "verifiers.kind": "replayed", "workload.requests": 24},
    "goodspeed": {"drafters.kind": "replayed", "verifiers.kind": "replayed", "workload.requests": 8},
    "amusd": {"workload.requests": 2, "workload.new_tokens": 40},
}
TIMES = {"draft": {"per_token_s": 0.0005}, "verify": {"base_s": 0.006}, "verify_prefill": {"base_s": 0.004}}


def steps(run: Run, kind: str) -> pd.DataFrame:
    """Finished steps of the drafter, a row a session."""
    return run.frame().query(f"station == 'drafter' and event == 'done' and kind == '{kind}'")


def refuses(run: Run) -> bool:
    return bool((run.frame().event == "refusal").any())


def spaces_rounds(run: Run) -> bool:
    """Rounds of target 1 start at least a twentieth of a second apart on average; late ones catch up."""
    starts = run.frame().query("station == 'drafter' and event == 'start' and kind == 'draft' and tag % 2 == 0").time_s
    return len(starts) > 4 and starts.max() - starts.min() > 0.05 * (len(starts) - 2)


def overtakes(run: Run) -> bool:
    """Drafts do not start first in, first out: a drafter that did so would contradict the log."""
    fleet = run.header.fleet
    queue = msgspec.structs.replace(fleet, drafters=msgspec.structs.replace(fleet.drafters, order=Fifo()))
    return replay_stations(run, stations(queue)) != []


FEATURES: dict[str, tuple[dict[str, Any], Callable[[Run], bool]]] = {
    "warm-up": (
        {"drafters": {"warm_up": {"policy": "after-idle", "idle_gap_s": 0.001, "tokens": 2}}},
        lambda run: len(steps(run, "warm_up")) > 3,
    ),
    "admission": ({"drafters": {"admit": {"policy": "at-most", "sessions": 1}}}, refuses),
    "memory": ({"drafters": {"admit": {"policy": "within-memory", "kv_tokens": 79}}}, refuses),
    "priorities": (
        {"drafters": {"order": "priority"}, "verifiers": {"priorities": [0, 5]}},
        lambda run: set(run.frame().query("event == 'draft-request'").priority) == {0, 5},
    ),
    "weights": (  # drafts so long that several of four targets wait for theirs
        {"drafters": {"order": {"policy": "weighted", "weights": [1.0, 9.0]}, "depth": 16}, "verifiers": {"count": 4}},
        overtakes,
    ),
    "deadlines": (
        {"drafters": {"order": {"policy": "deadline", "goals_s": [9, 0.001]}, "depth": 16}, "verifiers": {"count": 4}},
        overtakes,
    ),
    "rate limits": ({"drafters": {"order": {"policy": "fifo", "limits_per_s": [20.0, 0.0]}}}, spaces_rounds),
    "batches": (  # of five simultaneous requests, some wait together
        {"drafters": {"group": "batch"}, "verifiers": {"count": 5}},
        lambda run: steps(run, "draft").step.duplicated().any(),
    ),
}


QUICK = [(True, "priorities"), (False, "warm-up")]


@pytest.mark.parametrize(
    ("real", "feature"), [case if case in QUICK else slow(*case) for case in itertools.product((True, False), FEATURES)]
)
def test_options_of_drafters_have_their_effect(real: bool, feature: str, tiny: Path) -> None:
    tables, acts = FEATURES[feature]
    kind = {} if real else {"kind": "replayed"}
    drafters = {"model": str(tiny / "kin")} if real else kind | {"depth": 4}
    parts = {"drafters": drafters, "verifiers": kind | {"count": 2}}
    merged = {name: part | tables.get(name, {}) for name, part in parts.items()}
    workload = {"requests": 6, "prompt_tokens": 16, "new_tokens": 20}
    scenario = pair_scenario(tiny, **merged) if real else star(profile=TIMES, workload=workload, **merged)
    served = serve(scenario)
    assert replay(served.run) == []
    assert acts(served.run)
    if real:
        assert served.outputs == plain_outputs(scenario)


@pytest.mark.parametrize("name", [path.stem for path in SCENARIOS])
def test_the_engine_runs_every_shipped_scenario(name: str) -> None:
    check_can_run(resolve(shipped(name)))


@pytest.mark.slow
@pytest.mark.parametrize("name", [path.stem for path in SCENARIOS])
def test_every_shipped_scenario_runs_here_and_its_log_replays(name: str) -> None:
    fewer = {"workload.requests": 6, "workload.new_tokens": 24} | FEWER.get(name, {})
    run = serve(shipped(name, fewer)).run
    assert replay(run) == []
    assert run.frame().query("event == 'done' and kind == 'verify'").accepted.sum() > 0


def shipped(name: str, changes: Changes | None = None) -> Scenario:
    return read_scenario(next(path for path in SCENARIOS if path.stem == name), changes or {})


@pytest.mark.parametrize("changes", [{"verifiers": {"prefill": {}}}, {"drafters": {"prefix_cache": True}}])
def test_what_is_simulated_alone_runs_on_no_engine(changes: dict[str, Any]) -> None:
    key = f"{next(iter(changes))}.{next(iter(*changes.values()))}"
    for run in (check_can_run, job_of):
        with pytest.raises(InputError, match=f"{key} is simulated only"):
            run(resolve(star(**changes)))
