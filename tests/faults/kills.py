"""Small fleets of real processes under scripts of kills and stops, with the laws that hold then."""

import multiprocessing
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from specfleet.engine.launch.serve import serve
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.faults import Fault, Kill, LinkFault, Stall
from specfleet.fleet.scenario.names import drafter_name, verifier_name
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.scenario import Scenario
from tests.helpers.pairs import pair_scenario
from tests.helpers.plain import plain_outputs
from tests.sim.test_faults import committed

AHEAD = {"policy": "ahead", "least": 2, "busy": True}
GOODSPEED = {"late": "wait", "allocate": {"policy": "goodspeed", "budget": 6}}
EAGLE: dict[str, Any] = {"kind": "eagle", "depth": 3}
REAL: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # drafters and verifiers
    "star": ({}, {"count": 2}),
    "goodspeed": ({"count": 2}, {"count": 1} | GOODSPEED),
    "ahead": ({"overlap": AHEAD}, {"count": 1}),
    "routed": ({"count": 2, "route": "shortest-queue"}, {"count": 2}),
    "EAGLE": (EAGLE, {"count": 2}),
}
REPLAYED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "replayed": ({}, {"count": 3}),
    "replayed ahead": ({"overlap": AHEAD}, {"count": 2}),
    "replayed routed": ({"count": 2, "route": "shortest-queue"}, {"count": 3}),
}
NAMES = [*REAL, *REPLAYED]
PATIENCE_S, REJOIN_S, LEASE_S = 0.3, 0.2, 1.0
BEGIN_S, EVERY_S, BACK_S = 0.3, 0.9, 0.4  # first kill; time between kills; maximum time until a restart
PER_S = 12.0  # requests; they last longer than the script
PROFILE = {
    "name": "p", "draft": {"base_s": 0.004}, "verify": {"base_s": 0.01}, "decode": {"base_s": 0.008},
    "draft_prefill": {"base_s": 0.004}, "verify_prefill": {"base_s": 0.01},
}  # fmt: skip


class Killed(NamedTuple):
    """The result of a run under a script; `left`: its processes that are still there."""

    scenario: Scenario
    run: Run
    outputs: dict[int, list[int]]
    left: set[multiprocessing.Process]

    @property
    def events(self) -> Counter[str]:
        """The number of each event."""
        return Counter(self.run.table["event"].to_pylist())


def script(seed: int, drafters: Sequence[str], targets: Sequence[str], kills: int) -> tuple[Fault, ...]:
    """Draw the kills of some stations, each started again; a stall; and faults of some messages."""
    rng = np.random.default_rng([seed, 5])
    names = [*drafters, *targets]
    faults: list[Fault] = [
        Kill(str(rng.choice(names)), BEGIN_S + EVERY_S * (number + 0.5 * rng.random()), BACK_S * rng.random())
        for number in range(kills)
    ]
    faults.append(Stall(str(rng.choice(names)), 0.2 + rng.random(), BEGIN_S + EVERY_S * kills * rng.random()))
    share, by_s = 0.02 + 0.08 * rng.random(), 0.05 * rng.random() + 1e-3
    effects = [LinkFault("drop", share), *(LinkFault(how, share, by_s) for how in ("delay", "duplicate", "reorder"))]
    faults.append(effects[seed % 4])
    return tuple(faults)


def scenario_of(name: str, folder: Path, seed: int, kills: int) -> Scenario:
    """A fleet by name with the script of that seed; `folder`: of the tiny pair."""
    drafters, verifiers = (REAL | REPLAYED)[name]
    drafters = {"lease_s": LEASE_S} | {"depth": 5 if "overlap" in drafters else 4} | drafters
    verifiers = {"patience_s": PATIENCE_S, "rejoin_s": REJOIN_S} | verifiers
    requests = int(PER_S * EVERY_S * (kills + 1))
    workload = {"requests": requests, "arrivals": {"process": "poisson", "per_s": PER_S}}
    if name in REAL:
        model = folder / ("head" if drafters.get("kind") == "eagle" else "kin")
        scenario = pair_scenario(
            folder, drafters={"model": str(model)} | drafters, verifiers=verifiers, workload=workload
        )
    else:
        content = {
            "acceptance": {"model": "geometric", "beta": 0.7}, "profile": PROFILE,
            "drafters": {"kind": "replayed"} | drafters, "verifiers": {"kind": "replayed"} | verifiers,
            "workload": workload | {"prompt_tokens": 16, "new_tokens": 20},
        }  # fmt: skip
        scenario = make_scenario(content)
    count = scenario.drafters.count
    stations = [drafter_name(number, count) for number in range(count)]
    targets = [verifier_name(number) for number in range(scenario.verifiers.count)]
    return msgspec.structs.replace(scenario, seed=seed, faults=script(seed, stations, targets, kills))


def run_killed(name: str, folder: Path, seed: int, kills: int) -> Killed:
    """Run a fleet under its script over real processes."""
    scenario, before = scenario_of(name, folder, seed, kills), set(multiprocessing.active_children())
    served = serve(scenario)
    return Killed(scenario, served.run, served.outputs, set(multiprocessing.active_children()) - before)


def check(found: Killed) -> None:
    """Check that every text is that of plain decoding, every log replays, and no process is left."""
    assert replay(found.run) == []
    tokens = committed(found.run)
    assert len(tokens) == found.scenario.workload.requests
    assert set(tokens.values()) == {found.scenario.workload.new_tokens}
    if found.scenario.verifiers.kind == "real":
        assert found.outputs == plain_outputs(found.scenario)
    assert found.left == set()
