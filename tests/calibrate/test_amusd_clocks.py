"""What the clocks of AMUSD's run files leave out: read from the run's own records, on files of made-up machines."""

import json
from pathlib import Path
from typing import Any

import pytest

from calibrate.readers.amusd import Measured, agreement_of, read_runs
from calibrate.readers.amusd_clocks import first_pass_s, launched_before_s, own_steps
from experiments.reproduce import REPRODUCTIONS, amusd
from experiments.reproduce.rows import Inputs, Row
from tests.helpers.amusd_runs import any_machine, run_file
from tests.helpers.marks import slow

SEEDS = [0, 3, *[slow(seed) for seed in range(4, 24)]]


def totals(entries: list[dict[str, Any]], folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, str], Row]:
    """The rows of total times, by sample and by strategy (amusd: by what it is predicted from)."""
    monkeypatch.setattr(amusd, "SEEDS", 3)
    file = folder / "runs.json"
    file.write_text(json.dumps(entries))
    rows = REPRODUCTIONS["amusd-a100"](Inputs(trace=str(file))).rows
    return {
        (row.case["sample"], row.case["from"][:3] if row.case["strategy"] == "amusd" else row.case["strategy"]): row
        for row in rows
        if row.quantity == "total_s"
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_own_step_times_and_greedy_are_right_within_three_per_cent_and_sd_alone_within_ten(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over machines, pairs of models and texts; a second more for half a monitor's interval where runs are short."""
    samples = 1 + seed % 2
    entries = run_file(any_machine(seed, samples=samples))
    rows = totals(entries, tmp_path, monkeypatch)
    assert len(rows) == 4 * samples
    for (sample, name), row in rows.items():
        assert row.error is not None
        assert row.paper is not None
        looks_s = 0.3 / row.paper if name in ("greedy", "(a)") else 0.0  # when it ended, the monitor leaves open
        allowed = (0.1 if name == "(a)" else 0.03) + looks_s
        assert abs(row.error) < allowed, (seed, sample, name, row)
