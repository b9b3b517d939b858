"""Overhead around steps: the simulated log has the delays of the profile."""

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from specfleet.fleet.records.delays import delays_in, late_starts
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.metrics.window import Metric
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.names import DRAFTER, verifier_name
from specfleet.fleet.times.step_time import Exponential
from specfleet.sim.run import simulate
from tests.helpers.stars import star

EXPONENTIAL = {"spread": "exponential"}
OVERHEAD: dict[str, Any] = {
    "drafter": {
        "queued": {"mean_s": 0.07, "spread": EXPONENTIAL}, "woken": {"mean_s": 0.03, "spread": EXPONENTIAL},
        "after": {"mean_s": 0.02, "spread": EXPONENTIAL},
    },
    "target": {"woken": {"mean_s": 0.05}},
}  # fmt: skip
PROFILE: dict[str, Any] = {
    "draft": {"base_s": 1.0, "spread": EXPONENTIAL}, "verify": {"base_s": 4.0, "spread": EXPONENTIAL},
    "draft_prefill": {"base_s": 0.5}, "verify_prefill": {"base_s": 0.5},
}  # fmt: skip
SHARED: dict[str, Any] = {
    "devices": {"host": {"sharing": "turns"}}, "drafters": {"device": "host"}, "verifiers": {"device": "host"},
}  # fmt: skip


def run_with(overhead: dict[str, Any], **tables: Any) -> Run:
    profile = PROFILE | {"overhead": overhead}
    return simulate(star(**{"profile": profile, "workload": {"requests": 240, "new_tokens": 60}} | tables))


@pytest.mark.parametrize("tables", [{}, SHARED], ids=["own devices", "time-sliced"])
def test_drawn_delays_are_read_back_from_the_log(tables: dict[str, Any]) -> None:
    """The mean is within five standard errors, the quartiles within a half."""
    delays = delays_in(run_with({"own": OVERHEAD, "time_sliced": OVERHEAD}, **tables))
    drafter, target = delays[DRAFTER], delays[verifier_name(0)]
    for times_s, mean_s in ((drafter.queued_s, 0.07), (drafter.woken_s, 0.03), (drafter.after_s, 0.02)):
        assert len(times_s) > 20
        assert abs(np.mean(times_s) / mean_s - 1) < 5 / np.sqrt(len(times_s))
        quartiles = Exponential().ratios(np.array([0.25, 0.75])) * mean_s
        np.testing.assert_allclose(np.quantile(times_s, [0.25, 0.75]), quartiles, rtol=0.5)
    np.testing.assert_allclose(target.woken_s, 0.05)
    np.testing.assert_allclose(target.after_s, 0.0, atol=1e-9)


def test_a_mean_of_0_changes_nothing() -> None:
    zero = {"mean_s": 0.0, "spread": EXPONENTIAL}
    nothing = {side: {"queued": zero, "woken": zero, "after": zero} for side in ("drafter", "target")}
    assert run_with({"own": nothing}).digest() == run_with({}).digest()


def measured(count: int, **overhead: Any) -> dict[str, Metric]:
    """Metrics of a star with full acceptance and one long request per target."""
    times = {"draft": {"base_s": 1.0}, "verify": {"base_s": 4.0}}
    scenario = star(
        profile=times | {"overhead": {"own": overhead}}, acceptance={"model": "geometric", "beta": 1.0},
        verifiers={"count": count}, workload={"requests": count, "new_tokens": 1200},
    )  # fmt: skip
    return measure(simulate(scenario))


def test_the_delay_after_a_step_keeps_its_station() -> None:
    after = {"after": {"mean_s": 0.25}}
    busy, alone = (measured(count, drafter=after, target=after) for count in (8, 1))
    assert busy["rounds_per_s"].value == pytest.approx(1 / 1.25, rel=0.01)
    assert alone["rounds_per_s"].value == pytest.approx(1 / 5.5, rel=0.01)
    assert busy["service_s"].value == pytest.approx(1.0)


def test_late_starts_are_far_beyond_the_median() -> None:
    """A tenth of the drafter's steps start 0.3 s later. The limit is 5 times the median, 0.1 s."""
    run = run_with({"own": {"drafter": {"woken": {"mean_s": 0.02}, "queued": {"mean_s": 0.02}}}})
    assert late_starts(run) == 0.0
    rows = run.frame()
    begun = rows.index[(rows.station == DRAFTER) & (rows.event == "start")]
    late = begun[::10]
    moved_s = rows.time_s.to_numpy().copy()
    moved_s[late] += 0.3
    column = run.table.schema.get_field_index("time_s")
    slower = msgspec.structs.replace(run, kept=run.table.set_column(column, "time_s", pa.array(moved_s)))
    assert late_starts(slower) == pytest.approx(len(late) / (rows.event == "start").sum(), rel=0.05)


def test_the_first_step_of_a_station_was_not_queued() -> None:
    """No work waited before it, so the delay of an idle station applies: in the profile and in the log."""
    overhead = {"drafter": {"queued": {"mean_s": 7.0}, "woken": {"mean_s": 0.5}}}
    run = run_with({"own": overhead}, verifiers={"count": 1}, workload={"requests": 1, "new_tokens": 10})
    drafter = run.frame().query("station == 'drafter'")
    asked_s, begun_s = (drafter[drafter.event == event].time_s.iloc[0] for event in ("draft-request", "start"))
    assert begun_s - asked_s == pytest.approx(0.5)
    assert delays_in(run)[DRAFTER].woken_s[0] == pytest.approx(0.5)
