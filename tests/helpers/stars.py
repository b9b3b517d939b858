"""Small stars that tests share: one drafter, three targets, S = 1 s, Z = 4 s, unless a test says otherwise."""

from typing import Any

import msgspec

from specfleet.fleet.acceptance.models import AcceptanceModel, Recorded
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.metrics.window import with_percentiles
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.profile import HardwareProfile
from specfleet.fleet.times.step_time import LinkTime, StepTime
from specfleet.sim.run import simulate

TABLES: dict[str, Any] = {
    "seed": 1,
    "acceptance": {"model": "geometric", "beta": 0.8},
    "profile": {"name": "test", "draft": {"base_s": 1.0}, "verify": {"base_s": 4.0}},
    "drafters": {"depth": 5},
    "verifiers": {"count": 3},
    "workload": {"requests": 30, "prompt_tokens": 10, "new_tokens": 50},
}
LINK_S, VERIFY_S = 1.0, 2.0
RETURN_S = 2 * LINK_S + VERIFY_S  # Z, equation (6)
TWO = Recorded(5, ((2,),))  # two tokens of every draft pass


def star(**changes: Any) -> Scenario:
    """The scenario of TABLES with `changes`; a changed table keeps its other keys."""
    content = dict(TABLES)
    for name, change in changes.items():
        table = content.get(name)
        content[name] = table | change if isinstance(table, dict) and isinstance(change, dict) else change
    return make_scenario(content)


def run_star(scenario: Scenario, acceptance: AcceptanceModel = TWO, **times_s: float) -> Run:
    """Simulate a star with constant times by the keys of a profile: 1 s for drafts and for links, 2 s to verify."""
    assert isinstance(scenario.profile, HardwareProfile)
    times = {key: StepTime(time_s) for key, time_s in ({"draft": 1.0, "verify": VERIFY_S} | times_s).items()}
    profile = msgspec.structs.replace(scenario.profile, link=LinkTime(LINK_S), **times)
    return simulate(msgspec.structs.replace(scenario, profile=profile, acceptance=acceptance))


def values(run: Run) -> dict[str, float]:
    return {name: metric.value for name, metric in with_percentiles(measure(run)).items()}
