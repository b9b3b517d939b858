"""The work per event does not grow with the fleet. It is counted in function calls, which no host changes."""

import sys
from typing import Any

import pytest

from specfleet.sim.run import simulate
from tests.helpers.stars import star

ROUTED = {"count": 4, "route": "shortest-queue"}


def calls_a_round(targets: int, drafters: dict[str, Any]) -> float:
    """Calls of Python functions per verification, resumed generators included. Targets queue for the drafters."""
    scenario = star(
        verifiers={"count": targets}, drafters=drafters, workload={"requests": 3 * targets, "new_tokens": 10}
    )
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        run = simulate(scenario)
    finally:
        sys.setprofile(None)
    rows = run.columns()
    return calls / int((rows.event.among("done") & rows.kind.among("verify")).sum())


@pytest.mark.parametrize("drafters", [{}, ROUTED], ids=["one drafter", "four behind a router"])
def test_calls_a_round_do_not_grow_with_the_fleet(drafters: dict[str, Any]) -> None:
    assert calls_a_round(200, drafters) < 1.2 * calls_a_round(10, drafters)
