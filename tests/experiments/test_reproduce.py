"""Reproductions say what kind of number each row is, are scored by what they predict, and are JSON.

What a predicted row may not depend on: test_predicted.py.
"""

from collections.abc import Iterator

import msgspec
import pytest

from specfleet.experiments.reproduce import REPRODUCTIONS, starsd
from specfleet.experiments.reproduce.every import NEEDS_TRACE
from specfleet.experiments.reproduce.rows import JUDGED, Kind, PaperRow, Reproduction, claim, reversed_orders, row
from specfleet.fleet.acceptance.models import Geometric, rate_of_mean
from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.scenario.reading import read_scenario
from specfleet.sim.run import simulate
from tests.helpers.marks import slow
from tests.helpers.reproductions import reproduced, smaller

ARITHMETIC = ("starsd-table2", "starsd-fig4", "starsd-fig6")  # on the paper's own columns
QUICK = ("goodspeed-fig2", "batch-fig5b", "batch-table2", *ARITHMETIC)
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
    for entry in reproduction.rows:
        if entry.error is not None:
            assert entry.error == pytest.approx((entry.ours - entry.paper) / (entry.part_of or entry.paper))
        if entry.kind == "input":
            assert entry.paper in (entry.ours, None)
    counted = [entry for entry in reproduction.rows if entry.kind in JUDGED and entry.error is not None]
    assert all((entry.null is None) == entry.is_claim for entry in counted)
    score = reproduction.score
    assert (score.rows + score.claims > 0) == (name not in ARITHMETIC)
    errors = [
        abs(entry.error)
        for entry in reproduction.rows
        if entry.kind in JUDGED and entry.error is not None and "(1: yes)" not in entry.quantity
    ]
    assert score.rows == len(errors)
    assert score.mean_error == (pytest.approx(sum(errors) / len(errors)) if errors else None)
    assert score.worst_error == (max(errors) if errors else None)


@pytest.mark.parametrize("name", ["star", "intra-node", "inter-node", "m-for-n", "dying-drafter"])
def test_shipped_stars_draft_as_deep_as_equation_5_allows(name: str) -> None:
    scenario = read_scenario(shipped_files("scenarios")[name])
    profile, depth = scenario.profile, scenario.drafters.depth
    assert depth == int(min(1000 * starsd.service_s(N) / starsd.draft_token_ms(N) for N in starsd.COLUMNS))
    assert profile.draft.mean_s(depth) == pytest.approx(starsd.service_s(3), rel=1e-3)
    assert scenario.acceptance == profile.acceptance == Geometric(round(rate_of_mean(94.3 / 26.8, depth), 2))


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


def of(method: str, paper: float | None, ours: float, kind: Kind = "predicted", B: int = 4) -> PaperRow:
    return row("latency, s", {"method": method, "B": B}, kind, paper, ours)


def test_a_pair_in_another_order_is_said_with_all_four_numbers() -> None:
    rows = [of("a", 1.0, 1.1), of("b", 2.0, 0.9), of("c", 3.0, 3.0), of("a", 5.0, 5.0, B=8), of("b", 4.0, 4.0, B=8)]
    count, reversed_ones = reversed_orders(rows)
    assert count == 4
    assert reversed_ones == ["latency, s, B=4: a 1 below b 2 in the paper, 1.1 and 0.9 here"]


def test_only_predictions_have_an_order() -> None:
    rows = [of("a", 1.0, 2.0, "fitted"), of("b", 2.0, 1.0, "fitted"), of("c", None, 1.0), of("d", 1.0, 1.0, "input")]
    assert reversed_orders(rows) == (0, [])
    assert reversed_orders([of("a", 1.0, 1.0), of("b", 1.0, 2.0)]) == (0, [])
    assert reversed_orders([claim("a is above b", {"method": "a"}, True)]) == (0, [])


def test_a_quotient_has_an_order_with_one() -> None:
    rows = [row("latency, a over b", {"B": B}, "predicted", 3.3, ours) for B, ours in ((4, 0.96), (8, 1.2))]
    assert reversed_orders(rows) == (2, ["latency, a over b, B=4: 3.3 in the paper, 0.96 here"])
