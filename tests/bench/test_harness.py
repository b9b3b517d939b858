"""The harness of the studies: cases alternate, aims are met or not, tables are printed and written."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from bench import coverage, harness
from bench.__main__ import STUDIES
from bench.harness import Aim, Report, compared, first_rows, run
from specfleet.fleet.errors import InputError
from tests.helpers.processes import ROOT


def test_every_work_is_done_once_before_any_again() -> None:
    order: list[str] = []
    works = {name: lambda name=name: order.append(name) or {"n": len(order)} for name in "ab"}  # type: ignore[misc]
    rows = run(works, repetitions=2, cold=1)
    assert order == list("ababab")
    assert rows == {"a": [{"n": 3}, {"n": 5}], "b": [{"n": 4}, {"n": 6}]}
    assert first_rows(works) == [{"n": 7}, {"n": 8}]


@pytest.mark.parametrize(
    ("value", "low", "high", "verdict"),
    [
        (1.0, math.nan, math.nan, "met"),
        (1.1, math.nan, math.nan, "missed"),
        (math.nan, math.nan, math.nan, "missed"),
        (0.8, 0.7, 0.9, "met"),
        (1.2, 1.1, 1.3, "missed"),
        (0.9, 0.7, 1.1, "open"),
    ],
)
def test_an_aim_is_judged_by_its_interval(value: float, low: float, high: float, verdict: str) -> None:
    assert Aim("name", value, 1.0, low, high).verdict == verdict


def test_ratios_are_taken_run_by_run() -> None:
    rows = {"ours": [{"rate": 2.0, "n": 1.0}, {"rate": 4.0, "n": 3.0}], "theirs": [{"rate": 1.0}, {"rate": 4.0}]}
    ours, theirs = compared(rows, "rate", "ours")
    assert (ours["rate"], ours["times ours"], ours["n"]) == (3.0, 1.0, 2.0)
    assert theirs["times ours"] == pytest.approx(0.75)
    assert theirs["ratio from"] < 0.75 < theirs["ratio to"]


@pytest.mark.parametrize(("value", "status"), [(0.0, 0), (2.0, 1)])
def test_a_missed_aim_is_an_exit_status(
    value: float, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report({"found": [{"case": "a", "value": math.nan}]}, [Aim("errors", value, 1.0)])
    monkeypatch.setattr(coverage, "study", lambda _options: report)
    assert harness.main("coverage", ["-o", str(tmp_path / "out")]) == status
    written = json.loads((tmp_path / "out" / "coverage.json").read_text())
    assert written["tables"] == {"found": [{"case": "a", "value": None}]}
    assert written["aims"][0]["verdict"] == ("missed" if status else "met")
    assert "found" in capsys.readouterr().out


def test_every_study_is_listed_with_its_first_line() -> None:
    listed = subprocess.run([sys.executable, "-m", "bench"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(STUDIES)
    texts = {file.stem: file.read_text() for file in (ROOT / "bench").glob("*.py")}
    studies = {name for name, text in texts.items() if "\ndef study(" in text or "\ndef reproduce(" in text}
    assert studies == set(STUDIES)


def test_a_study_on_data_of_others_prints_and_writes_its_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert harness.main("estimates", ["-o", str(tmp_path / "out")]) == 0
    (written,) = json.loads((tmp_path / "out" / "estimates.json").read_text())["reproduced"]
    assert written["score"]["rows"] == sum(row["kind"] == "estimated" for row in written["rows"])
    assert "estimated: " in capsys.readouterr().out


def test_missing_data_are_asked_for_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^give --data FOLDER, which holds a.csv$"):
        harness.data_file(None, "a.csv")
    with pytest.raises(InputError, match=rf"^--data {tmp_path}: has no a.csv$"):
        harness.data_file(tmp_path, "a.csv")
