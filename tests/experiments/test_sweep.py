"""Sweeps and comparisons as a user meets them: cells, reruns, failures, tolerances."""

import json
import sys
from pathlib import Path

import msgspec
import pandas as pd
import pytest

from experiments.compare import Row, compare_metrics, summarise, worst
from experiments.sweep import Result, cell_file, cells_of, parse_vary, sweep
from fleet.errors import InputError
from fleet.records.metrics import measure
from fleet.records.run import read_run, write_run
from fleet.records.window import Metric
from fleet.scenario.reading import read_scenario
from sim.predict import predict
from sim.run import simulate
from specfleet import cli
from tests.helpers.stars import star

SCENARIO = """
profile = "rtx-4090"
acceptance = {model = "geometric", beta = 0.8}
workload = {requests = 16, new_tokens = 24}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(SCENARIO)
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("verifiers.count=1:4", ("verifiers.count", [1, 2, 3, 4])),
        ("verifiers.count=1:16:5", ("verifiers.count", [1, 6, 11, 16])),
        ("acceptance.beta=0.5,0.9", ("acceptance.beta", [0.5, 0.9])),
        ("drafters.order=fifo,priority", ("drafters.order", ["fifo", "priority"])),
        ("drafters.depth=7", ("drafters.depth", [7])),
    ],
)
def test_vary_reads_ranges_with_both_ends_and_lists(text: str, expected: tuple[str, list[object]]) -> None:
    assert parse_vary(text) == expected


@pytest.mark.parametrize("text", ["verifiers.count", "verifiers.count=", "verifiers.count=4:1"])
def test_vary_says_how_it_is_written(text: str) -> None:
    with pytest.raises(InputError, match=text):
        parse_vary(text)


def test_cells_are_all_combinations() -> None:
    cells = list(cells_of(["verifiers.count=1:3", "drafters.depth=2,4"]))
    assert len(cells) == 6
    assert {"verifiers.count": 3, "drafters.depth": 4} in cells


@pytest.mark.slow
def test_results_do_not_depend_on_how_many_cells_run_at_once(file: Path, tmp_path: Path) -> None:
    vary = ["verifiers.count=1:4"]
    one = sweep(file, vary, tmp_path / "one", jobs=1)
    two = sweep(file, vary, tmp_path / "two", jobs=2)
    assert msgspec.json.encode(one) == msgspec.json.encode(two)


def test_a_rerun_computes_only_what_is_missing(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []
    first = sweep(file, ["verifiers.count=1:3"], tmp_path / "out", seeds=1)
    cell_file(tmp_path / "out", {"verifiers.count": 2}).unlink()

    def counted(cell: dict[str, object], *rest: object) -> Result:
        ran.append(cell)
        return original(cell, *rest)

    import experiments.sweep as module

    original = module.run_cell
    monkeypatch.setattr(module, "run_cell", counted)
    second = sweep(file, ["verifiers.count=1:3"], tmp_path / "out", seeds=1)
    assert ran == [{"verifiers.count": 2}]
    assert sorted(map(repr, first)) == sorted(map(repr, second))


def test_the_equations_stand_beside_every_cell_of_a_star(file: Path, tmp_path: Path) -> None:
    sweep(file, ["verifiers.count=2,3"], tmp_path / "out", seeds=1)
    table = pd.read_csv(tmp_path / "out" / "sweep.csv").query("world == 'analytic'")
    for N in (2, 3):
        of_cell = table[table["verifiers.count"] == N].set_index("quantity").value
        prediction = predict(read_scenario(file, [f"verifiers.count={N}"]))
        assert of_cell["throughput"] == pytest.approx(prediction.throughput.with_bonus)
        assert of_cell["N_full"] == prediction.N_full


def test_the_equations_are_left_out_where_they_do_not_apply(file: Path, tmp_path: Path) -> None:
    shared = ['devices.host.sharing="turns"', 'drafters.device="host"', 'verifiers.device="host"']
    (result,) = sweep(file, ["verifiers.count=2"], tmp_path / "out", seeds=1, changes=shared)
    assert result.metrics
    assert result.analytic == {}


def test_another_scenario_does_not_find_the_old_results(file: Path, tmp_path: Path) -> None:
    first = sweep(file, ["verifiers.count=1"], tmp_path / "out", seeds=1)
    second = sweep(file, ["verifiers.count=1"], tmp_path / "out", seeds=1, changes=["acceptance.beta=0.1"])
    assert first[0].metrics["throughput"].value != second[0].metrics["throughput"].value


def run_cli(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["specfleet", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return int(end.value.code or 0)


def test_a_failed_cell_is_reported_loses_no_other_and_leaves_status_1(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    # Acceptance was recorded at depth 5: nothing is known of depth 9.
    recorded = "acceptance={model = 'recorded', depth = 5, sessions = [[1, 5, 2], [0, 3]]}"
    options = ["--set", recorded, "--vary", "drafters.depth=2,9", "--seeds", "1", "--jobs", "1"]
    status = run_cli(monkeypatch, "sweep", str(file), "-o", str(out), *options)
    assert status == 1
    captured = capsys.readouterr()
    assert "1 of 2 cells failed" in captured.err
    errors = [json.loads(path.read_text())["error"] for path in sorted((out / "cells").glob("*.json"))]
    assert [bool(error) for error in errors] == [False, True]


def test_compare_ends_with_status_1_beyond_its_tolerance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fast, slow = tmp_path / "fast.parquet", tmp_path / "slow.parquet"
    write_run(simulate(star()), fast)
    write_run(simulate(star(profile={"draft": {"base_s": 2.0}})), slow)
    assert run_cli(monkeypatch, "compare", str(fast), str(fast), "--json") == 0
    assert json.loads(capsys.readouterr().out)["mape"]["rounds_per_s"] == 0
    assert run_cli(monkeypatch, "compare", str(fast), str(slow), "--tolerance", "0.05") == 1
    assert "differ by more than 5.0%" in capsys.readouterr().err


def test_a_run_survives_its_file(tmp_path: Path) -> None:
    run = simulate(star())
    write_run(run, tmp_path / "run.parquet")
    again = read_run(tmp_path / "run.parquet")
    assert again.digest() == run.digest()
    assert again.header == run.header
    assert measure(again) == measure(run)


def test_errors_are_relative_to_the_measured_run() -> None:
    sim = {"throughput": Metric(11.0, 10.0, 12.0, "tokens/s")}
    engine = {"throughput": Metric(10.0, 9.0, 11.0, "tokens/s")}
    rows: list[Row] = compare_metrics({"N": 1}, sim, engine)
    comparison = summarise(rows, "digest")
    assert rows[0].error == pytest.approx(0.1)
    assert comparison.mape == {"throughput": pytest.approx(0.1)}
    assert worst(comparison, "throughput") == pytest.approx(0.1)
