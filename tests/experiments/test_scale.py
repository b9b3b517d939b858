"""The page of large fleets says what the code assumes and computes, and the program that writes it runs."""

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from experiments.bench.scale import cost_of
from experiments.scale import command, page
from experiments.scale.equations import star_of
from experiments.scale.page import LARGE_DRAFTERS, parameters
from experiments.scale.places import IN_GROUPS, IN_TURN, PLACES, RACK, TARGETS_OF_DRAFTER, fleet_of
from experiments.scale.resources import Resource, age_of_loss, first_to_end, lost, sessions_in_memory
from experiments.scale.simulated import Simulated, Work, simulated, simulated_here
from experiments.terminal.printing import number
from fleet.scenario.names import SimPath
from tests.helpers.processes import ROOT

PAGE = (ROOT / "docs" / "scale.md").read_text()
AGAIN = "the page is old: python -m experiments.scale -o docs"


def rows_of(text: str, first: str) -> list[list[str]]:
    """The cells of a table's rows that begin with this one."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [cells for cells in lines if cells[0] == first]


def test_the_page_has_what_the_code_assumes() -> None:
    assert parameters() in PAGE, AGAIN
    fleet = f"## {TARGETS_OF_DRAFTER * command.DRAFTERS:,} targets and {command.DRAFTERS:,} drafters, simulated; "
    assert f"{fleet}{TARGETS_OF_DRAFTER * LARGE_DRAFTERS:,} targets by equations" in PAGE, AGAIN
    assert f"over {command.ROUTED} drafters" in PAGE, AGAIN
    assert (TARGETS_OF_DRAFTER * command.DRAFTERS, TARGETS_OF_DRAFTER * LARGE_DRAFTERS) == (10**4, 10**6)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_what_the_page_has_by_equations_is_what_they_give(place: page.Place) -> None:
    star = star_of(place)
    told = {cells[1]: cells for cells in rows_of(PAGE, place.name) if cells[1] in (IN_TURN, IN_GROUPS)}
    assert set(told) == {IN_TURN, IN_GROUPS}
    for mode, cells in told.items():
        tokens_per_s = star.tokens_per_s(TARGETS_OF_DRAFTER, mode)
        simulated_per_s, by_equations, error, large = cells[2], cells[4], cells[5], cells[6]
        assert by_equations == number(command.DRAFTERS * tokens_per_s), AGAIN
        assert large == number(LARGE_DRAFTERS * tokens_per_s), AGAIN
        off = command.DRAFTERS * tokens_per_s / float(simulated_per_s) - 1
        assert float(error.removesuffix("%")) / 100 == pytest.approx(off, abs=2e-3)


def test_a_small_page_is_written_with_all_of_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "simulated", simulated_here)
    monkeypatch.setattr(command, "both_paths", lambda sizes: {"simpy": [cost_of(size) for size in sizes]})
    command.write(tmp_path, 2, 2, (0.0, 0.05), (1, 2))
    written = (tmp_path / "scale.md").read_text()
    assert "## 20 targets and 2 drafters, simulated; 1,000,000 targets by equations" in written
    assert re.findall(r"^##.*", written, re.MULTILINE)[2:] == re.findall(r"^##.*", PAGE, re.MULTILINE)[2:]
    for place in PLACES:
        errors = [cells[5] for cells in rows_of(written, place.name) if cells[1] in (IN_TURN, IN_GROUPS)]
        assert len(errors) == 2
        assert all(abs(float(error.removesuffix("%"))) < 12 for error in errors)  # of two drafters, for half a second
    assert (tmp_path / "scale.png").stat().st_size > 10_000


def test_a_simulation_in_a_process_of_its_own_is_the_same() -> None:
    work = Work(0, 1, IN_TURN)
    here, there = (msgspec.structs.asdict(one) for one in (simulated_here(work), simulated(work)))
    assert there.pop("peak_bytes") > 3e7
    assert there.pop("cpu_s") > 0
    assert there.pop("path") in get_args(SimPath)  # which one pays depends on whether a process has the loop already
    assert there == {name: here[name] for name in there}


def test_one_target_waits_for_nobody_by_equations_and_many_share_a_busy_drafter() -> None:
    star = star_of(RACK)
    alone = 1 / (star.inputs.service_s + star.inputs.return_s)
    assert star.rounds_per_s(1, IN_TURN) == pytest.approx(alone)
    assert star.rounds_per_s(64, IN_TURN) == pytest.approx(1 / star.inputs.service_s)
    assert star.carries(IN_TURN) == pytest.approx(1 / (alone * star.inputs.service_s))
    rates = [star.rounds_per_s(targets, IN_GROUPS) for targets in (1, 2, 4, 8, 16, 64, 256)]
    assert rates == sorted(rates)
    assert rates[3] > star.rounds_per_s(8, IN_TURN)
    most = star.carries(IN_GROUPS)
    assert (
        star.rounds_per_s(int(most), IN_GROUPS) / most
        >= rates[0] / 2
        > star.rounds_per_s(int(most) + 1, IN_GROUPS) / (most + 1)
    )


def views(losses: dict[float, float]) -> list[Simulated]:
    one = simulated_here(Work(0, 1))
    works = {age_s: msgspec.structs.replace(one.work, view_s=age_s) for age_s in losses}
    return [
        msgspec.structs.replace(one, work=works[age_s], tokens_per_s=100.0 * (1 - loss))
        for age_s, loss in losses.items()
    ]


def test_the_age_at_which_views_cost_a_share_lies_between_the_ages_that_were_tried() -> None:
    some = views({0.0: 0.0, 0.01: 0.02, 0.02: 0.12})
    assert lost(some) == [(0.01, pytest.approx(0.02)), (0.02, pytest.approx(0.12))]
    assert age_of_loss(some, 0.07) == pytest.approx(0.015)
    assert age_of_loss(some, 0.5) == float("inf")
    assert age_of_loss(views({0.0: 0.0, 0.01: 0.1}), 0.05) == pytest.approx(0.005)


def test_a_memory_holds_as_many_sessions_as_its_bytes_allow() -> None:
    """1.24 billion numbers of two bytes, and 2 x 16 layers x 512 numbers of two bytes a token, on an H100."""
    expected = (0.9 * 80e9 - 2 * 1.2358e9) / (2 * 16 * 512 * 2 * 192)
    assert sessions_in_memory(RACK) == pytest.approx(expected, rel=0.01)


def test_the_first_to_end_is_the_one_with_the_fewest_targets() -> None:
    some = [Resource("a", 0.1, 5.0, ""), Resource("b", 0.2, 3.0, ""), Resource("c", 0.3, float("inf"), "")]
    assert first_to_end(some, "").name == "b"
    assert first_to_end(some, "b").name == "a"


def test_fleets_are_those_of_their_place() -> None:
    for place in PLACES:
        scenario = fleet_of(place, 3, IN_GROUPS, 2)
        assert (scenario.drafters.count, scenario.verifiers.count, scenario.workload.requests) == (3, 30, 60)
        assert scenario.workload.temperature == place.temperature
