"""What the clocks of AMUSD's run files leave out: read from the run's own records, on files of made-up machines."""

import json
from pathlib import Path
from typing import Any

import pytest

from specfleet.calibration.readers.amusd import read_runs
from specfleet.calibration.readers.amusd_clocks import first_pass_s, launched_before_s, own_steps
from specfleet.experiments.reproduce import REPRODUCTIONS, amusd
from specfleet.experiments.reproduce.rows import Inputs, PaperRow
from tests.helpers.amusd_runs import any_machine, run_file

QUICK = (0, 1)
MANY = range(24)


def written(entries: list[dict[str, Any]], folder: Path) -> Path:
    """A run file of the authors' form."""
    file = folder / "runs.json"
    file.write_text(json.dumps(entries))
    return file


def totals(
    entries: list[dict[str, Any]], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[tuple[int, str], PaperRow]:
    """The rows of total times, by sample and by strategy (amusd: by what it is predicted from)."""
    monkeypatch.setattr(amusd, "SEEDS", 3)
    rows = REPRODUCTIONS["amusd-a100"](Inputs(trace=str(written(entries, folder)))).rows
    return {
        (row.case["sample"], row.case["from"][:3] if row.case["strategy"] == "amusd" else row.case["strategy"]): row
        for row in rows
        if row.quantity == "total_s"
    }


def errors(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The worst error of each kind of total, over the samples of a made-up file."""
    samples = 1 + seed % 2
    rows = totals(run_file(any_machine(seed, samples=samples)), folder, monkeypatch)
    assert len(rows) == 4 * samples
    worst: dict[str, float] = {}
    for (_, name), row in rows.items():
        assert row.error is not None
        worst[name] = max(worst.get(name, 0.0), abs(row.error))
    return worst


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


def test_start_up_is_estimated_from_the_first_verification(tmp_path: Path) -> None:
    """In a process's first answer it is there; in later ones launching is as quick as in any step."""
    samples = read_runs(written(run_file(any_machine(5, samples=2, cold=0.6)), tmp_path))
    assert first_pass_s(samples[0]) == pytest.approx(0.6, abs=0.1)
    assert first_pass_s(samples[1]) < 0.1


def test_start_up_needs_a_monitor_and_a_greedy_run(tmp_path: Path) -> None:
    entries = run_file(any_machine(5, tokens=100))
    (sample,) = read_runs(written(entries, tmp_path)).values()
    assert launched_before_s(sample, cold=True) > 0.1
    assert launched_before_s({"sd": sample["sd"]}, cold=True) == 0.0
    for entry in entries:
        entry["metrics"]["gpustats"] = []
    assert launched_before_s(read_runs(written(entries, tmp_path))[0], cold=True) == 0.0


def test_the_steps_of_a_known_machine_are_found(tmp_path: Path) -> None:
    machine = any_machine(5)
    steps = own_steps(read_runs(written(run_file(machine), tmp_path))[0])
    assert steps.draft_s == pytest.approx(machine.launch[1] + machine.draft_wait + machine.call, rel=0.02)
    assert steps.verify_s == pytest.approx(machine.launch[0] + machine.verify_wait, rel=0.05)
    assert steps.alone_s == pytest.approx(machine.launch[0] + machine.token_wait, rel=0.05)


ODD: dict[str, Any] = {
    "no looks at the GPUs": lambda metrics: metrics.update(gpustats=[]),
    "one look": lambda metrics: metrics.update(gpustats=metrics["gpustats"][:1]),
    "no time a token": lambda metrics: metrics.pop("time_per_token"),
    "fewer drafts logged": lambda metrics: metrics.update(draft_times=metrics.get("draft_times", [])[:5]),
    "fewer tokens": lambda metrics: metrics.update(tokens_generated=5, time_per_token=0.0),
    "instant first steps": lambda metrics: [
        metrics[name].__setitem__(0, 1e-6) for name in ("draft_times", "verify_times", "token_times") if name in metrics
    ],
    "a looser clock": lambda metrics: metrics.update(total_time=2 * metrics["total_time"], time_per_token=0.0),
}


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_file_is_still_predicted(odd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = run_file(any_machine(7, tokens=60))
    for entry in entries:
        entry["sample_index"] = 41
        ODD[odd](entry["metrics"])
    rows = totals(list(reversed(entries)), tmp_path, monkeypatch)
    assert {name for _, name in rows} == {"greedy", "sd", "(a)", "(b)"}
    assert all(row.ours is not None and 0 < row.ours < 1e3 for row in rows.values())
