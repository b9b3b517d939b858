"""What the clocks of AMUSD's run files leave out: read from the run's own records, on files of made-up machines."""

import json
from pathlib import Path
from typing import Any

import pytest

from specfleet.experiments.reproduce import REPRODUCTIONS, amusd
from specfleet.experiments.reproduce.amusd_runs import read_sample
from tests.helpers.amusd_runs import any_machine, run_file

QUICK = (0, 1)
MANY = range(24)


def written(entries: list[dict[str, Any]], folder: Path) -> Path:
    """A run file of the authors' form."""
    file = folder / "runs.json"
    file.write_text(json.dumps(entries))
    return file


def errors(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The error of each total time of a made-up file, by strategy (amusd: by what it is predicted from)."""
    monkeypatch.setattr(amusd, "SEEDS", 3)
    rows = REPRODUCTIONS["amusd-a100"](written(run_file(any_machine(seed)), folder)).rows
    errors = {
        row.case["from"][:3] if row.case["strategy"] == "amusd" else row.case["strategy"]: abs(row.error)
        for row in rows
        if row.quantity == "total_s" and row.error is not None
    }
    assert errors.keys() == {"greedy", "sd", "(a)", "(b)"}
    return errors


@pytest.mark.parametrize("seed", QUICK)
def test_step_times_are_recovered_within_bounds(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worst = errors(seed, tmp_path, monkeypatch)
    assert max(worst["(b)"], worst["greedy"], worst["sd"]) < 0.03
    assert worst["(a)"] < 0.1


@pytest.mark.slow
def test_the_same_holds_over_machines_pairs_and_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine files of ten; the others have short texts, in which the monitor's interval and chance weigh more."""
    files = [errors(seed, tmp_path, monkeypatch) for seed in MANY]
    for name, nine_of_ten, all_of_them in (("(b)", 0.03, 0.05), ("greedy", 0.03, 0.05), ("(a)", 0.08, 0.1)):
        ordered = sorted(worst[name] for worst in files)
        assert ordered[int(0.9 * len(ordered)) - 1] < nine_of_ten, (name, ordered)
        assert ordered[-1] < all_of_them, (name, ordered)


def test_the_steps_of_a_known_machine_are_found(tmp_path: Path) -> None:
    machine = any_machine(5)
    steps = read_sample(written(run_file(machine), tmp_path)).own_steps
    assert steps.draft_s == pytest.approx(machine.launch[1] + machine.draft_wait + machine.call, rel=0.02)
    assert steps.verify_s == pytest.approx(machine.launch[0] + machine.verify_wait, rel=0.05)
    assert steps.alone_s == pytest.approx(machine.launch[0] + machine.token_wait, rel=0.05)
