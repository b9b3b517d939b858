"""Without records the compiled loop tells what its rows would: the same tables, so that metrics are the same, too."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

numba = pytest.importorskip("numba", reason="the compiled loop needs numba: pip install 'specfleet[fast]'")

from fleet.errors import InputError
from fleet.records import findings
from fleet.records.columns import Table, Words
from fleet.records.findings import Findings
from fleet.records.metrics import measure
from fleet.records.run import Run
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle
from sim.fast.run import told_by
from sim.run import simulate
from tests.helpers.stars import repeatable
from tests.sim.test_fast import plain_stars

POWER = {"power": {"idle_w": 10.0, "draft_w": 100.0, "verify_w": 250.0}}


def measured(run: Run | Findings) -> str:
    """All metrics, or why there are none, as text: NaN is NaN."""
    try:
        return str(measure(run))
    except InputError as error:
        return str(error)


def in_words(column: Any) -> list[Any]:
    return column.to_numpy().tolist() if isinstance(column, Words) else np.asarray(column, dtype=float).tolist()


def check_tables(told: Table | None, expected: Table | None) -> None:
    """All columns that are told hold the same, bit for bit."""
    assert (told is None) == (expected is None)
    if told is not None and expected is not None:
        assert len(told) == len(expected)
        for name in told.names:
            assert str(in_words(getattr(told, name))) == str(in_words(getattr(expected, name))), name


def check(scenario: Scenario) -> None:
    fleet = settle(scenario)
    run = simulate(scenario, path="fast")
    expected, told = findings.findings_of(run), told_by(fleet)
    for table in ("commits", "requests", "rounds", "verified", "drafts", "other_draft_steps"):
        check_tables(getattr(told, table), getattr(expected, table))
    assert told.drafters == expected.drafters
    if findings.needs_rows(fleet):
        return
    assert measured(told) == measured(run)


@settings(repeatable, max_examples=150, suppress_health_check=list(HealthCheck))
@given(scenario=plain_stars())
def test_without_records_the_loop_tells_the_same_tables_and_metrics(scenario: Scenario) -> None:
    check(scenario)
