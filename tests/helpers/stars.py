"""Small stars that tests share: one drafter, three targets, S = 1 s, Z = 4 s, unless a test says otherwise."""

from typing import Any

from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.scenario import Scenario

TABLES: dict[str, Any] = {
    "seed": 1,
    "acceptance": {"model": "geometric", "beta": 0.8},
    "profile": {"name": "test", "draft": {"base_s": 1.0}, "verify": {"base_s": 4.0}},
    "drafters": {"depth": 5},
    "verifiers": {"count": 3},
    "workload": {"requests": 30, "prompt_tokens": 10, "new_tokens": 50},
}


def star(**changes: Any) -> Scenario:
    """The scenario of TABLES with `changes`; a changed table keeps its other keys."""
    content = dict(TABLES)
    for name, change in changes.items():
        table = content.get(name)
        content[name] = table | change if isinstance(table, dict) and isinstance(change, dict) else change
    return make_scenario(content)
