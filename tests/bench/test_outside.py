"""The study of vLLM's prefix cache: its cells can be run, and a recorded run becomes its line."""

from argparse import Namespace

import pytest

pytest.importorskip("torch")

from bench.outside import SHARED_DRAFTS, shared_cells, shared_row
from specfleet.engine.outside.answers import answers_of
from specfleet.engine.outside.answers import run_of as answers_run
from specfleet.engine.outside.job import job_of, settings_of
from specfleet.fleet.scenario.resolve import resolve
from tests.engine.test_outside import vllm_run
from tests.helpers.outside import recorded


def test_vllm_takes_all_cells_that_share() -> None:
    cells = shared_cells(Namespace(drafts=list(SHARED_DRAFTS)))
    assert len(cells) == 36
    for _, scenario in cells.values():
        fleet = resolve(scenario)
        settings = settings_of(fleet, scenario)
        assert (settings.prefix_cache, settings.block_size) == (True, 32)
        assert sum(map(len, job_of(fleet).streams)) == scenario.workload.requests


def test_a_cells_line_counts_what_vllm_did() -> None:
    run, served = vllm_run("shared"), recorded("shared").served
    row = shared_row("a cell", run)
    assert (row["steps that differ"], row["preempted"]) == ("none", 5)
    assert row["evictions"] == max(step.blocks[2] for step in served.steps)
    assert row["hits, %"] == pytest.approx(35.4, abs=0.1)
    assert row["simulated, %"] == pytest.approx(row["hits, %"], abs=5)
    seen = answers_run(run.header.scenario, run.header.fleet, answers_of(served), "vllm")
    assert shared_row("a cell", seen) == {"cell": "a cell", "steps that differ": "some"}
