"""Reproductions say what kind of number each row is, are scored by what they predict, and are JSON.

What a predicted row may not depend on: test_predicted.py.
"""

from collections.abc import Iterator

import msgspec
import pytest

from specfleet.experiments.reproduce import REPRODUCTIONS, starsd
from specfleet.experiments.reproduce.every import NEEDS_TRACE
from specfleet.experiments.reproduce.rows import JUDGED, Reproduction
from specfleet.experiments.reproduce.runs import acceptance_behind
from specfleet.fleet.data.shipped import shipped_scenarios
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.scenario.reading import read_scenario
from specfleet.sim.run import simulate
from tests.helpers.marks import slow
from tests.helpers.reproductions import reproduced, smaller

ARITHMETIC = ("starsd-table2", "starsd-fig4")  # on the paper's own columns
QUICK = ("starsd-fig6", "goodspeed-fig2", "batch-fig5b", "batch-table2", *ARITHMETIC)
NAMES = [name if name in QUICK else slow(name) for name in REPRODUCTIONS if name != NEEDS_TRACE]  # test_amusd


@pytest.fixture(scope="module", autouse=True)
def less() -> Iterator[None]:
    """Smaller reproductions, and nothing that is kept of them."""
    with smaller():
        yield


@pytest.fixture(scope="module")
def table1(less: None) -> Reproduction:  # noqa: ARG001  (the sizes are set before)
    return reproduced("starsd-table1")


@pytest.mark.parametrize("name", NAMES)
def test_every_reproduction_is_scored_by_its_predicted_rows(name: str) -> None:
    reproduction = reproduced(name)
    assert reproduction.assumptions
    for row in reproduction.rows:
        if row.error is not None:
            assert row.error == pytest.approx((row.ours - row.paper) / (row.part_of or row.paper))
        if row.kind == "input":
            assert row.paper in (row.ours, None)
    score = reproduction.score
    assert (score.rows + score.claims > 0) == (name not in ARITHMETIC)
    errors = [
        abs(row.error)
        for row in reproduction.rows
        if row.kind in JUDGED and row.error is not None and "(1: yes)" not in row.quantity
    ]
    assert score.rows == len(errors)
    assert score.mean_error == (pytest.approx(sum(errors) / len(errors)) if errors else None)
    assert score.worst_error == (max(errors) if errors else None)


@pytest.mark.parametrize("name", ["star", "intra-node", "inter-node", "m-for-n", "dying-drafter"])
def test_shipped_stars_draft_as_deep_as_equation_5_allows(name: str) -> None:
    scenario = read_scenario(shipped_scenarios()[name])
    profile, depth = scenario.profile, scenario.drafters.depth
    assert profile is not None
    assert depth == int(min(1000 * starsd.service_s(N) / starsd.draft_token_ms(N) for N in starsd.COLUMNS))
    assert profile.draft.mean_s(depth) == pytest.approx(starsd.service_s(3), rel=1e-3)
    assert scenario.acceptance == profile.acceptance
    beta = acceptance_behind(starsd.EAGLE["throughput"] / starsd.EAGLE["rounds_per_s"], depth)
    assert scenario.acceptance.beta == pytest.approx(beta, abs=0.005)


@pytest.mark.slow
@pytest.mark.parametrize("N", [1, 2, 3, 5, 6])
def test_table_1_has_the_round_speed_within_three_per_cent(table1: Reproduction, N: int) -> None:
    (row,) = [row for row in table1.rows if row.quantity == "rounds_per_s" and row.case == {"N": N}]
    assert abs(row.error) < 0.03


@pytest.mark.slow
def test_without_returns_that_vary_two_targets_would_hardly_wait() -> None:
    local_s = starsd.local_return_s()
    waits_s = [
        measure(simulate(starsd.star(2, starsd.service_s(2), local_s, local_s, variation)))["wait_s"]
        for variation in (0.0, starsd.return_variation(local_s))
    ]
    constant_s, varying_s = (wait.value for wait in waits_s)
    assert constant_s < 0.1 * starsd.printed("wait_s", 2)
    assert varying_s == pytest.approx(starsd.printed("wait_s", 2), rel=0.05)


def test_the_json_form_has_the_documented_keys() -> None:
    content = msgspec.to_builtins(reproduced("batch-table2"))
    assert set(content) == {"name", "rows", "assumptions", "score", "parts"}
    assert set(content["rows"][0]) == {"quantity", "case", "kind", "paper", "ours", "error"}
