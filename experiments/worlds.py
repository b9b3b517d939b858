"""Run a scenario in either world: the one place where a world is chosen by its name."""

import msgspec

from fleet.records.metrics.findings import Findings, findings_of
from fleet.scenario.names import SimPath, World
from fleet.scenario.scenario import Scenario


def observe_in(world: World, scenario: Scenario, path: SimPath = "auto") -> Findings:
    """Run the scenario in simulated time or on this host's engine, for its metrics; without records if possible.

    Each world's libraries are imported on its use. `path`: how to simulate it, see `sim/fast/choice.py`.
    """
    if world == "sim":
        from sim.run import observe

        return observe(scenario, path=path)
    from engine.launch.serve import serve

    return findings_of(serve(scenario).run)


def with_seed(scenario: Scenario, seed: int) -> Scenario:
    """Return the scenario with another seed."""
    return msgspec.structs.replace(scenario, seed=seed)


def redrawn(scenario: Scenario, seed: int) -> Scenario:
    """Return the scenario with another seed for all that is drawn but its requests, which stay as they are."""
    own = scenario.seed if scenario.workload.seed is None else scenario.workload.seed
    workload = msgspec.structs.replace(scenario.workload, seed=own)
    return msgspec.structs.replace(scenario, seed=seed, workload=workload)
