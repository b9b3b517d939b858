"""What the clocks of AMUSD's run files leave out: read from the run's own records, on files of made-up machines."""

import json
from pathlib import Path
from typing import Any

import pytest

from specfleet.experiments.reproduce import REPRODUCTIONS, amusd
from tests.helpers.amusd_runs import any_machine, run_file

QUICK = (0, 1)
MANY = range(24)


def written(entries: list[dict[str, Any]], folder: Path) -> Path:
    """A run file of the authors' form."""
    file = folder / "runs.json"
    file.write_text(json.dumps(entries))
    return file


def errors(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The error of each total time of a made-up file, by strategy."""
    monkeypatch.setattr(amusd, "SEEDS", 3)
    rows = REPRODUCTIONS["amusd-a100"](written(run_file(any_machine(seed)), folder)).rows
    totals = [row for row in rows if row.quantity == "total_s"]
    errors = {row.case["strategy"]: abs(row.error) for row in totals if row.error is not None}
    assert errors.keys() == {"sd", "amusd"}
    return errors


@pytest.mark.parametrize("seed", QUICK)
def test_total_times_are_predicted_within_bounds(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worst = errors(seed, tmp_path, monkeypatch)
    assert worst["sd"] < 0.03
    assert worst["amusd"] < 0.1


@pytest.mark.slow
def test_the_same_holds_over_machines_pairs_and_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine files of ten; the others have short texts, in which start-up and chance weigh more."""
    ordered = sorted(errors(seed, tmp_path, monkeypatch)["amusd"] for seed in MANY)
    assert ordered[int(0.9 * len(ordered)) - 1] < 0.08, ordered
    assert ordered[-1] < 0.1, ordered
