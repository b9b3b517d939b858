"""The page of large fleets says what the code assumes and computes; its tables can be made."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from bench import scale
from bench.harness import text_of
from bench.large_fleets import (
    IN_GROUPS,
    IN_TURN,
    PLACES,
    RACK,
    TARGETS_OF_DRAFTER,
    fleet_of,
    sessions_in_memory,
    star_of,
)
from bench.scale import LARGE_DRAFTERS, markdown, place_rows, simulated, simulated_here, study, view_rows
from tests.helpers.processes import ROOT

PAGE = (ROOT / "docs" / "scale.md").read_text()
AGAIN = "the page is old: make bench NAME=scale"


def rows_of(first: str) -> list[list[str]]:
    """The cells of the page's table rows that begin with this one."""
    lines = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("|")]
    return [cells for cells in lines if cells[0] == first]


def test_page_has_the_assumed_places() -> None:
    assert markdown("", place_rows()).partition("\n\n")[2] in PAGE, AGAIN


@pytest.mark.parametrize("place", PLACES.values(), ids=lambda place: place.name)
def test_page_has_what_equations_give(place: Any) -> None:
    equations = star_of(place)
    fleets = [cells for cells in rows_of(place.name) if cells[1] in (IN_TURN, IN_GROUPS)]
    assert len(fleets) == 2
    for cells in fleets:
        tokens_per_s = equations.tokens_per_s(TARGETS_OF_DRAFTER, cells[1])
        assert cells[4] == text_of(1000 * tokens_per_s), AGAIN
        assert cells[6] == text_of(LARGE_DRAFTERS * tokens_per_s), AGAIN
        simulated_per_s = float(cells[2].replace(",", ""))
        assert float(cells[5]) == pytest.approx(100 * (1000 * tokens_per_s / simulated_per_s - 1), abs=0.2)
    ends = {cells[1]: cells[3] for cells in rows_of(place.name)}
    for mode in (IN_TURN, IN_GROUPS):
        assert ends[f"drafter's time, {mode}"] == text_of(float(equations.carries(mode))), AGAIN


@pytest.mark.slow
def test_study_leaves_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "simulated", simulated_here)
    report = study(argparse.Namespace(drafters=2, routed=2, out=tmp_path))
    fleets, resources = report.tables["20 targets, simulated and by equations"], report.tables["resources of a drafter"]
    assert all(abs(row["error of these, %"]) < 12 for row in fleets)  # of two drafters, for half a second
    assert len(resources) == 5 * len(PLACES)
    assert all(row["in use"] > 0 for row in resources)
    text = (tmp_path / "tables.md").read_text()
    assert all(markdown(title, rows) in text for title, rows in report.tables.items())


def test_a_process_of_its_own_simulates_the_same() -> None:
    keys: dict[str, Any] = {"place": "rack", "drafters": 1, "mode": IN_GROUPS}  # which SimPy alone simulates
    here, there = simulated_here(**keys), simulated(**keys)
    for costs in ("peak MB", "processor s"):
        assert here.pop(costs) > 0
        assert there.pop(costs) > 0
    assert {name: text_of(value) for name, value in there.items()} == {
        name: text_of(value) for name, value in here.items()
    }


def test_equations_of_one_target_and_of_many() -> None:
    star = star_of(RACK)
    alone = 1 / (star.inputs.service_s + star.inputs.return_s)
    assert star.rounds_per_s(1, IN_TURN) == pytest.approx(alone)
    assert star.rounds_per_s(64, IN_TURN) == pytest.approx(1 / star.inputs.service_s)
    assert star.carries(IN_TURN) == pytest.approx(1 / (alone * star.inputs.service_s))
    rates = [star.rounds_per_s(targets, IN_GROUPS) for targets in (1, 2, 4, 8, 16, 64, 256)]
    assert rates == sorted(rates)
    assert rates[3] > star.rounds_per_s(8, IN_TURN)
    most = star.carries(IN_GROUPS)
    beyond = star.rounds_per_s(int(most) + 1, IN_GROUPS) / (most + 1)
    assert star.rounds_per_s(int(most), IN_GROUPS) / most >= rates[0] / 2 > beyond


def test_losses_are_relative_to_fresh_views() -> None:
    views = [{"place": "rack", "view_s": age_s, "throughput": rate} for age_s, rate in ((0.0, 100.0), (0.01, 98.0))]
    assert view_rows(views) == [{"place": "rack", "10 ms": pytest.approx(2)}]


def test_memory_holds_as_many_sessions_as_its_bytes_allow() -> None:
    """1.24 billion numbers of two bytes, and 2 x 16 layers x 512 numbers of two bytes a token, on an H100."""
    expected = (0.9 * 80e9 - 2 * 1.2358e9) / (2 * 16 * 512 * 2 * 192)
    assert sessions_in_memory(RACK) == pytest.approx(expected, rel=0.01)


def test_fleets_are_those_of_their_place() -> None:
    for place in PLACES.values():
        scenario = fleet_of(place, 3, IN_GROUPS, 2)
        assert (scenario.drafters.count, scenario.verifiers.count, scenario.workload.requests) == (3, 30, 60)
        assert scenario.workload.temperature == place.temperature
