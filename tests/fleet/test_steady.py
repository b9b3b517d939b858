"""Relaxation times, by hand for runs with known times."""

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from specfleet.fleet.acceptance.models import Recorded
from specfleet.fleet.records.metrics.findings import findings_of
from specfleet.fleet.records.metrics.measure import measure, window_of
from specfleet.fleet.records.metrics.steady import (
    LONG,
    _expected_work_s,
    _inside,
    _of_number_inside_s,
    expected_rounds,
    places_of,
    relaxation_s,
)
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.run import simulate
from tests.helpers.stars import TABLES, star

ALL_PASS = {"model": "geometric", "beta": 1.0}
GAPS_OF_10_AND_20_S = [0.0, *(30.0 * pair + more for pair in range(10) for more in (10.0, 30.0))]


def remembered_s(run: Run) -> float:
    findings = findings_of(run)
    return relaxation_s(findings, window_of(findings))


def traced(folder: Path, arrived_at_s: list[float], **tables: Any) -> Scenario:
    rows = [f"{at_s},10,13" for at_s in arrived_at_s]
    (folder / "trace.csv").write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *rows]))
    arrivals = {"process": "trace", "file": str(folder / "trace.csv")}
    workload = {"requests": len(arrived_at_s), "arrivals": arrivals}
    content = TABLES | {"acceptance": ALL_PASS, "verifiers": {"count": 1, "max_num_seqs": 1}, "workload": workload}
    return make_scenario(content | tables)


def of_queue_s(work_s: float, gap_s: float, variability: float) -> float:
    """The time of a queue with constant work, by the mean gap and its squared variation."""
    load = work_s / gap_s
    return work_s * 2 * (1 + load) / (1 - load) ** 2 * variability / 2


def test_a_closed_loop_remembers_half_a_round_of_a_stream() -> None:
    """Three targets, S = 1 s and Z = 4 s: rounds of 5 s."""
    run = simulate(star(acceptance=ALL_PASS, workload={"requests": 3, "new_tokens": 1 + 6 * 200}))
    assert remembered_s(run) == pytest.approx(2.5, rel=0.02)


def test_relaxation_of_a_trace_follows_its_busiest_device(tmp_path: Path) -> None:
    """Two rounds a request, 8 s of verification in all, 15 s apart on average."""
    run = simulate(traced(tmp_path, GAPS_OF_10_AND_20_S))
    assert remembered_s(run) == pytest.approx(of_queue_s(8.0, 15.0, 1 / 9))


def test_on_one_device_the_work_of_all_stations_adds_up(tmp_path: Path) -> None:
    """2 s of drafts and 8 s of verification."""
    shared = {
        "devices": {"host": {"sharing": "turns"}}, "drafters": {"depth": 5, "device": "host"},
        "verifiers": {"count": 1, "device": "host"},
    }  # fmt: skip
    run = simulate(traced(tmp_path, GAPS_OF_10_AND_20_S, **shared))
    assert remembered_s(run) == pytest.approx(of_queue_s(10.0, 15.0, 1 / 9))


@pytest.mark.parametrize(("chances", "tokens", "rounds"), [([1.0, 1.0], 7, 3.0), ([0.0], 7, 7.0), ([0.5], 2, 1.5)])
def test_expected_rounds_are_the_renewal_function(chances: list[float], tokens: int, rounds: float) -> None:
    assert expected_rounds(np.array(chances), tokens) == pytest.approx(rounds)


def test_rounds_of_a_long_answer_grow_by_the_mean_round() -> None:
    reached = np.array([0.6, 0.36])
    near, far = (expected_rounds(reached, tokens) for tokens in (2 * LONG, 10**7))
    assert far - near == pytest.approx((10**7 - 2 * LONG) / 1.96)


def test_a_run_deeper_than_its_profiles_acceptance_is_measured_by_its_own_work() -> None:
    """The engine ran it; only a simulation would need what the profile does not know."""
    arrivals = {"process": "poisson", "per_s": 0.02}
    tables = TABLES | {"verifiers": {"count": 1, "max_num_seqs": 1}, "acceptance": {"model": "geometric", "beta": 0.5}}
    run = simulate(make_scenario(tables | {"workload": {"requests": 20, "new_tokens": 13, "arrivals": arrivals}}))
    shallow = msgspec.structs.replace(run.header.fleet, acceptance=Recorded(2, ((2, 1), (0, 2))))
    assert run.header.fleet.drafters.depth > 2
    measured = measure(msgspec.structs.replace(run, header=msgspec.structs.replace(run.header, fleet=shallow)))
    assert measured["throughput"].value == measure(run)["throughput"].value


def test_lucky_runs_are_judged_by_the_work_that_is_expected() -> None:
    """At equal load, runs differ by their drawn work alone, and the scenario says its mean."""
    arrivals = {"process": "poisson", "per_s": 0.02}
    tables = TABLES | {"verifiers": {"count": 1, "max_num_seqs": 1}, "acceptance": {"model": "geometric", "beta": 0.5}}
    workload = {"requests": 60, "new_tokens": 13, "arrivals": arrivals}
    runs = [simulate(make_scenario(tables | {"seed": seed, "workload": workload})) for seed in range(12)]
    drawn = [run.frame().query("event == 'done' and station == 'verifier.1'").duration_s.sum() / 60 for run in runs]
    expected_s = _expected_work_s(runs[0].header.fleet)[1]
    assert np.mean(drawn) == pytest.approx(expected_s, rel=0.03)
    assert np.std(drawn) > 0.02 * expected_s
    times_s = np.array([remembered_s(run) for run in runs])
    assert np.corrcoef(times_s, drawn)[0, 1] < 0.8  # only the variance of work is left of the sample
    assert times_s.std() < 0.05 * times_s.mean()


def test_work_that_contradicts_the_scenario_counts_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The times of another host, say: twice what the scenario expects."""
    tables = TABLES | {"verifiers": {"count": 1, "max_num_seqs": 1}, "acceptance": {"model": "geometric", "beta": 0.5}}
    tables |= {"workload": {"requests": 40, "new_tokens": 13, "arrivals": {"process": "poisson", "per_s": 0.02}}}
    run = simulate(make_scenario(tables))
    as_expected = remembered_s(run)
    half = make_scenario(tables | {"verifiers": {"count": 1, "max_num_seqs": 1, "verify": {"base_s": 2.0}}})
    header = msgspec.structs.replace(run.header, fleet=simulate(half).header.fleet)
    as_it_is = remembered_s(msgspec.structs.replace(run, header=header))
    monkeypatch.setattr("specfleet.fleet.records.metrics.steady._expected_work_s", lambda _fleet: (math.nan, math.nan))
    assert as_it_is == remembered_s(run) != as_expected


def test_a_router_is_no_device(tmp_path: Path) -> None:
    routed = {"drafters": {"depth": 5, "count": 2, "route": "round-robin"}}
    run = simulate(traced(tmp_path, GAPS_OF_10_AND_20_S, **routed))
    assert remembered_s(run) == pytest.approx(of_queue_s(8.0, 15.0, 1 / 9))


def test_simultaneous_or_single_arrivals_are_never_long_enough(tmp_path: Path) -> None:
    assert remembered_s(simulate(traced(tmp_path, [0.0, 0.0, 0.0]))) == math.inf
    assert remembered_s(simulate(traced(tmp_path, [0.0]))) == math.inf


@pytest.mark.parametrize("arrived_at_s", [[0.0, 400.0], [200.0 * place for place in range(9)]])
def test_what_never_varies_is_long_enough(tmp_path: Path, arrived_at_s: list[float]) -> None:
    """Equal requests at equal distances."""
    run = simulate(traced(tmp_path, arrived_at_s))
    assert remembered_s(run) == 0
    assert measure(run)["tpot_s"].value > 0


def test_shared_steps_use_the_number_of_requests_inside(tmp_path: Path) -> None:
    """Two targets, two concurrent requests, and a drafter that drafts for all that wait."""
    arrived_at_s = [8.0 * (number // 2) for number in range(60)]
    grouped = traced(tmp_path, arrived_at_s, drafters={"depth": 5, "group": "batch"}, verifiers={"count": 2})
    run = simulate(grouped)
    findings = findings_of(run)
    window = window_of(findings)
    assert run.frame().query("event == 'done'").duplicated(["station", "step"]).any()
    assert relaxation_s(findings, window) == _of_number_inside_s(_inside(run.columns(), findings.commits), window)


def test_places_are_streams_or_rows_or_targets(tmp_path: Path) -> None:
    full = {"drafters": {"place": "target"}, "verifiers": {"max_num_seqs": 7}}
    for expected, scenario in (
        (3, star()),
        (1, traced(tmp_path, [0.0, 9.0])),
        (2, traced(tmp_path, [0.0, 9.0], **full)),
        (7, traced(tmp_path, list(range(9)), **full)),
    ):
        assert places_of(simulate(scenario).header.fleet) == expected


def test_nothing_queues_without_work() -> None:
    """Requests of one token with a free prefill complete on arrival; they have no metrics."""
    run = simulate(star(workload={"new_tokens": 1, "arrivals": {"process": "poisson", "per_s": 1.0}}))
    metrics = measure(run)
    assert metrics["latency_s"].value == 0
    assert not math.isnan(metrics["throughput"].low)
