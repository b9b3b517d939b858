"""What passes around steps: dispatch, turnarounds that spread, plain decoding, idleness, the busy link."""

from typing import Any

import pytest

from fleet.records.metrics import measure
from fleet.records.window import Metric
from sim.run import simulate
from tests.helpers.stars import star


def measured(count: int, drafters: int = 1, **profile: Any) -> dict[str, Metric]:
    """A star that accepts all of every draft, of one long request a target."""
    return measure(
        simulate(
            star(
                profile={"draft": {"base_s": 1.0}, "verify": {"base_s": 4.0}, "decode": {"base_s": 4.0}} | profile,
                acceptance={"model": "geometric", "beta": 1.0}, drafters={"count": drafters},
                verifiers={"count": count}, workload={"requests": count, "new_tokens": 1200},
            )
        )
    )  # fmt: skip


def test_a_dispatch_keeps_the_station_and_is_no_part_of_its_steps() -> None:
    busy, alone = (measured(count, dispatch_s=0.25) for count in (8, 1))
    assert busy["rounds_per_s"].value == pytest.approx(1 / 1.25, rel=0.01)
    assert alone["rounds_per_s"].value == pytest.approx(1 / 5.5, rel=0.01)  # the target's steps have one, too
    assert busy["service_s"].value == pytest.approx(1.0)


def test_a_target_that_decodes_by_itself_turns_around_between_steps() -> None:
    plain = measured(1, drafters=0, decode_turnaround_s=1.0)
    assert plain["throughput"].value == pytest.approx(1 / 5, rel=0.01)
    assert measured(1, decode_turnaround_s=1.0)["rounds_per_s"].value == pytest.approx(1 / 5, rel=0.01)


def test_turnarounds_that_spread_keep_their_mean() -> None:
    spread = {"spread": "quantiles", "levels": [0.0, 1.0], "ratios_at": [0.2, 1.8]}
    busy = measured(8, turnaround_s=0.25, delay_spread=spread)
    assert busy["rounds_per_s"].value == pytest.approx(1 / 1.25, rel=0.01)


def test_what_idleness_does_to_dispatch_wake_up_and_link_is_not_done_to_a_busy_drafter() -> None:
    """A lone target's drafter idles for some 4 s each time: all but the steps takes twice as long then."""
    around = {"dispatch_s": 0.1, "wake_up_s": 0.2, "link": {"latency_s": 0.3}}
    idle = {"gaps_s": [0.5, 2.0], "slowdowns": [1.0, 1.0], "overheads": [1.0, 2.0]}
    # Drafter: dispatch and wake-up of its own; target: the same, which idleness of the drafter leaves alone.
    alone = measured(1, **around, idle=idle)
    assert alone["rounds_per_s"].value == pytest.approx(1 / (5 + 2 * (0.1 + 0.2 + 2 * 0.3) + 0.1 + 0.2), rel=0.01)
    busy = [measured(9, **around, **more)["rounds_per_s"].value for more in ({}, {"idle": idle})]
    assert busy[0] == pytest.approx(busy[1], rel=1e-3)


def test_a_draft_takes_the_busy_link_only_where_the_next_step_begins_at_once() -> None:
    late = {"link": {"latency_s": 0.1}, "busy_link": {"latency_s": 1.0}}
    assert measured(1, **late)["return_s"].value == pytest.approx(4.2)
    assert measured(12, **late)["return_s"].value == pytest.approx(5.1)
