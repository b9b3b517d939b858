"""Where an error comes from: what is planted as mechanism, as parameters or as host comes out as that."""

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import specfleet
from specfleet.experiments.compare.compare import (
    ComparedQuantity,
    Reruns,
    compare_metrics,
    summarise,
    with_reruns,
    worst,
)
from specfleet.experiments.console.printing import print_comparison
from specfleet.fleet.records.metrics.window import Metric
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import change_scenario, make_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.run import simulate
from tests.helpers.cli import Say
from tests.helpers.stars import star

DELAYS = {"queued": {"mean_s": 0.08}, "woken": {"mean_s": 0.1}, "after": {"mean_s": 0.03}}
AROUND = {"overhead": {"own": {"drafter": DELAYS}}, "link": {"latency_s": 0.3}}
RANDOM = {"spread": {"spread": "quantiles", "levels": [0.0, 1.0], "ratios_at": [0.5, 1.5]}}


def scenario(count: int = 3, **profile: Any) -> Scenario:
    times = {"draft": {"base_s": 1.0} | RANDOM, "verify": {"base_s": 4.0}} | AROUND | profile
    return star(profile=times, verifiers={"count": count, "kind": "replayed"}, workload={"requests": 24})


def measured(scenario: Scenario, seed: int = 9) -> Run:
    """A run that stands for the engine's."""
    return simulate(msgspec.structs.replace(scenario, seed=seed))


def row_of(comparison: specfleet.Comparison, quantity: str) -> ComparedQuantity:
    return next(row for row in comparison.rows if row.quantity == quantity)


def errors_of(run: Run, **options: Any) -> ComparedQuantity:
    return row_of(specfleet.three_errors(specfleet.Result(run), seeds=4, **options), "rounds_per_s")


def test_lengths_and_arrivals_are_no_error_of_the_mechanism() -> None:
    """Whatever their lengths and arrivals: a run has its own, and its prediction the same."""
    workload = {"requests": 12, "prompt_tokens": {"low": 20, "high": 900}, "new_tokens": {"low": 4, "high": 200}}
    open_loop = workload | {"arrivals": {"process": "poisson", "per_s": 0.01}}
    tables = {
        "name": "asked",
        "profile": {"name": "p", "draft": {"base_s": 1.0}, "verify": {"base_s": 4.0, "per_row_token_s": 0.1}},
        "acceptance": {"model": "geometric", "beta": 0.5},
    }
    aligned = {"drafters": {"place": "target"}, "verifiers": {"max_num_seqs": 4, "aligned": {"policy": "realign"}}}
    for changes in (
        aligned | {"workload": workload | {"streams": 12}},
        aligned | {"workload": open_loop},
        {"workload": workload},
    ):
        comparison = specfleet.three_errors(specfleet.Result(measured(make_scenario(tables | changes))), seeds=3)
        left = {row.quantity: row.mechanism.value for row in comparison.rows if row.mechanism is not None}
        assert len(left) > 10
        assert left == pytest.approx(dict.fromkeys(left, 0.0), abs=1e-9)


@pytest.mark.parametrize("factor", [1.5, 3.0])
def test_longer_steps_are_an_error_of_the_parameters(factor: float) -> None:
    slower = scenario(draft={"base_s": factor} | RANDOM, link={"latency_s": 0.0}, overhead={})
    row = errors_of(measured(slower), profile={"draft": {"base_s": 1.0}})
    assert row.parameters.value > 0.1
    assert abs(row.mechanism.value) < 0.01


def test_a_longer_link_is_an_error_of_the_mechanism() -> None:
    run = measured(scenario(count=1, link={"latency_s": 1.5}))
    comparison = specfleet.three_errors(specfleet.Result(run), seeds=2, profile={"link": {"latency_s": 0.3}})
    row = row_of(comparison, "rounds_per_s")
    assert row.mechanism.value > 0.2


def metrics(value: float) -> dict[str, Metric]:
    return {"rounds_per_s": Metric(value, 0.99 * value, 1.01 * value, "rounds/s")}


def rows_of(predicted: float, runs: list[float]) -> ComparedQuantity:
    reruns = Reruns([metrics(value) for value in runs], [metrics(1.01 * value) for value in runs])
    return compare_metrics({"N": 1}, metrics(predicted), reruns)[0]


def test_the_host_error_compares_runs_with_each_other() -> None:
    row = rows_of(10.0, [10.0, 12.5])
    assert row.host.value == pytest.approx((0.25 + 0.2) / 2)
    assert row.host.values == pytest.approx((0.2, 0.25))
    assert row.parameters.absolute == pytest.approx(0.1)
    assert row.mechanism.value == pytest.approx(0.01)
    assert row.engine == 11.25
    assert row.runs == (10.0, 12.5)


@pytest.mark.parametrize(
    ("predicted", "runs", "steady"),
    [
        (12.0, [10.0, 10.1], True),  # reruns agree better than the prediction
        (10.05, [10.0, 10.09], True),  # they agree to 1 %
        (10.5, [9.0, 11.0, 10.5], False),
        (10.5, [10.5], None),  # one run shows no spread
    ],
)
def test_reruns_that_disagree_more_than_the_error_are_unsteady(
    predicted: float, runs: list[float], steady: bool | None, capsys: pytest.CaptureFixture[str]
) -> None:
    row = rows_of(predicted, runs)
    assert row.steady is steady
    print_comparison("cells", specfleet.Comparison([row], {"rounds_per_s": 0.1}))
    assert ("unsteady host" in capsys.readouterr().out) == (steady is False)


@pytest.mark.parametrize(
    ("runs", "verdict", "error"),
    [
        ([10.0], "4.0% above measured; one run, so that the runs' own spread is unknown", "+4.0%"),
        ([9.6, 10.4], "4.0% above measured, within the runs' own spread of 8.0%", "+8.3%, +0.0%"),
        ([2.0, 9.0, 40.0], "15.6% above measured, within the runs' own spread of 474.1%", "+15.6% +- over 100%"),
        ([10.8, 10.85, 10.9], "4.1% below measured, beyond the runs' own spread of 0.6%", "-4.1% +- 1.1%"),
    ],
)
def test_a_verdict_comes_first_and_two_runs_have_no_interval(
    runs: list[float], verdict: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def of(value: float) -> dict[str, Metric]:
        return {"throughput": Metric(value, value, value, "tokens/s")}

    comparison = summarise(compare_metrics({}, of(10.4), Reruns([of(value) for value in runs])))
    print_comparison("", comparison)
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == f"tokens/s: simulated {verdict}"
    assert comparison.line() == f"tokens/s: simulated {verdict}"
    assert f" {error} " in printed


@pytest.mark.parametrize(
    ("predicted", "run", "off"),
    [(2.0, 4.0, 0.5), (0.0, 4.0, 1.0), (0.0, 0.0, 0.0), (3.0, 0.0, math.inf), (math.nan, 4.0, math.inf)],
)
def test_zero_against_another_value_is_beyond_any_tolerance(predicted: float, run: float, off: float) -> None:
    comparison = summarise(compare_metrics({}, metrics(predicted), Reruns([metrics(run)])))
    assert worst(comparison, "rounds_per_s") == off


def test_errors_of_cells_have_means_and_the_worst() -> None:
    pytest.importorskip("torch")  # the demo calibrates
    from specfleet.experiments.demo.run import errors_of

    rows = [rows_of(12.0, [10.0, 10.1]), rows_of(10.5, [9.0, 11.0, 10.5])]
    errors = errors_of(rows)
    assert errors.mechanism == pytest.approx(0.01, rel=0.01)
    assert errors.blind < errors.blind_worst == pytest.approx((12.0 / 10.0 + 12.0 / 10.1) / 2 - 1)
    assert errors.host == pytest.approx(np.mean([row.host.absolute for row in rows if row.host]))


def test_intervals_of_errors_over_reruns_cover_the_error() -> None:
    """Of 400 cells of four runs each, a 95 % interval may miss 38 at an alarm of 1 in 10,000."""
    rng = np.random.default_rng(5)
    missed = 0
    for _ in range(400):
        row = rows_of(1.1, rng.normal(1.0, 0.02, 4).tolist())
        missed += not row.parameters.low <= 0.1 <= row.parameters.high
    assert missed <= 38


def of_engine(run: Run, *replayed: str) -> Run:
    """The run as one of the engine, with those sides replayed."""
    return Run(msgspec.structs.replace(run.header, world="engine", replayed=replayed), run.table)


ON_ONE_DEVICE = {"devices.host.sharing": "turns", "verifiers.device": "host"}


@pytest.mark.parametrize(
    ("changes", "of_models", "replayed"),
    [
        ({"name": "again", "seed": 5}, True, True),
        ({"profile.draft.base_s": 2.0}, True, False),
        ({"acceptance.beta": 0.5}, True, False),
        (ON_ONE_DEVICE, False, False),
        ({"verifiers.count": 3}, False, False),
    ],
)
def test_reruns_share_all_that_decides_a_run(changes: dict[str, Any], of_models: bool, replayed: bool) -> None:
    """Models have their own times and acceptance; replayed stations have those of the scenario."""
    own = simulate(scenario(2))
    other = simulate(change_scenario(scenario(2), changes))
    for sides, same in (((), of_models), (("drafters", "targets"), replayed)):
        run, rerun = (of_engine(one, *sides) for one in (own, other))
        if same:
            assert len(with_reruns(run, [("again", rerun)])) == 2
        else:
            with pytest.raises(specfleet.InputError, match="rerun again: is of another scenario; "):
                with_reruns(run, [("again", rerun)])


def test_the_mechanism_of_other_devices_is_unknown() -> None:
    run = specfleet.Result(of_engine(simulate(scenario(2)), "targets"))
    comparison = specfleet.compare(specfleet.simulate(scenario(2), ON_ONE_DEVICE), run)
    (note,) = comparison.notes
    assert note.startswith("mechanism: unknown, because the scenarios differ: devices.host.sharing: turns in the sim")
    assert all(row.mechanism is None for row in comparison.rows)


def test_a_run_without_playback_is_compared() -> None:
    """Runs of several hosts, for example, cannot be replayed; `--reruns` says why."""
    one = measured(scenario())
    header = msgspec.structs.replace(one.header, world="engine", fleet=measured(scenario(1)).header.fleet)
    odd = specfleet.Result(Run(header, one.table))
    comparison = specfleet.compare(specfleet.Result(one), odd)
    assert "throughput" in comparison.mape
    assert comparison.notes[0].startswith("mechanism: unknown: the run to play back is not one of its scenario")
    with pytest.raises(specfleet.InputError, match="the run to play back is not one of its scenario"):
        specfleet.compare(specfleet.Result(one), odd, reruns=[specfleet.Result(of_engine(measured(scenario(), 2)))])
    with pytest.raises(specfleet.InputError, match=r"rerun .*: is a run that is named already"):
        specfleet.compare(specfleet.Result(one), odd, reruns=[odd])


def test_a_run_without_steps_has_two_errors() -> None:
    """Those of servers, of which answers alone are seen."""
    one, other = (measured(scenario(), seed=seed) for seed in (1, 2))
    header = msgspec.structs.replace(one.header, world="engine", steps=False)
    first, second = (specfleet.Result(Run(header, run.table)) for run in (one, other))
    comparison = specfleet.three_errors(first, reruns=[second], seeds=2)
    assert comparison.notes == ["mechanism: unknown: a server's steps are not seen"]
    assert all(row.mechanism is None for row in comparison.rows)
    assert all(row.parameters and row.host for row in comparison.rows if row.engine)


def test_the_command_compares_a_measured_run_with_its_reruns(say: Say, tmp_path: Path) -> None:
    files = [str(tmp_path / f"{number}.parquet") for number in (1, 2, 3)]
    for number, file in enumerate(files):
        specfleet.Result(measured(scenario(), seed=number)).save(file)
    words = ["compare", files[0], "--rerun", files[1], "--rerun", files[2], "--tolerance", "1"]
    printed = json.loads(say(*words, "--json").out)
    row = next(row for row in printed["rows"] if row["quantity"] == "tpot_p90_s")
    assert len(row["runs"]) == 3
    assert row["mechanism"]["low"] <= row["mechanism"]["value"] <= row["mechanism"]["high"]
    assert "mechanism" in say(*words).out
