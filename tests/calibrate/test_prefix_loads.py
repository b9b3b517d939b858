"""A server with a prefix cache comes back from vLLM's metrics: hits become prompts with a shared beginning."""

from pathlib import Path
from typing import Any

import pytest

import specfleet
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import change_scenario
from specfleet.sim.run import simulate
from tests.helpers.loads import DEPTH, metrics_text, scenario_of_server, served_in
from tests.helpers.readings import write

OWN, SHARED = {"low": 40, "high": 84}, 144


def record(folder: Path, groups: int, kind: str = "model", **workload: Any) -> tuple[Run, list[Path], float]:
    """A run of which 70 % of the prompts' tokens hit, vLLM's metrics before and after it, and its seconds."""
    server = scenario_of_server(400, prompt_tokens=OWN, **workload)
    shared = {"tokens": SHARED, "groups": groups, "zipf": 1.0}
    changes = {"drafters.kind": kind, "verifiers.prefix_cache": True, "workload.shared": shared}
    run = simulate(change_scenario(server, changes))
    requests = served_in(run)
    begun = run.frame()[lambda rows: (rows.event == "start") & rows.kind.isin(["prefill", "chunk"])]
    hits, queries = begun.base.sum(), sum(request.prompt for request in requests)
    counters = "vllm:prefix_cache_hits_total {}\nvllm:prefix_cache_queries_total {}\n".format
    before = write(folder / "before.txt", metrics_text(requests[:9], DEPTH) + counters(0, 0))
    after = write(folder / "after.txt", metrics_text([*requests[:9], *requests], DEPTH) + counters(hits, queries))
    return run, [before, after], max(request.end_s for request in requests)


@pytest.mark.parametrize("workload", [{}, {"arrivals": {"process": "poisson", "per_s": 1.5}}], ids=["closed", "open"])
@pytest.mark.parametrize("groups", [1, 6])
def test_a_record_with_hits_predicts_itself(tmp_path: Path, groups: int, workload: dict[str, Any]) -> None:
    run, files, seconds = record(tmp_path, groups, **workload)
    made = specfleet.import_record("vllm-metrics", files, tmp_path / "made.toml", seconds=seconds)
    comparison = specfleet.compare_load(made)
    assert made.load is not None
    assert made.load.cached_share == pytest.approx(0.69, abs=0.03)
    assert any("prefix hits of 6" in note or "prefix hits of 7" in note for note in made.notes)
    assert made.scenario.verifiers.prefix_cache
    simulated = measure(simulate(made.scenario))
    assert simulated["prefix_hit_share"].value == pytest.approx(measure(run)["prefix_hit_share"].value, rel=0.1)
    assert comparison is not None
    (hits,) = [row for row in comparison.rows if row.quantity == "prefix hits, share"]
    assert hits.kind == "input"
    assert hits.observed == made.load.cached_share
    errors = {row.quantity: row.error for row in comparison.rows if row.kind == "predicted"}
    for name in ("tokens/s", "TTFT, ms, mean", "TPOT, ms, mean"):
        assert abs(errors[name] or 0.0) < 0.1, errors


def test_a_heads_hits_come_back_without_the_block_that_is_computed_again(tmp_path: Path) -> None:
    run, files, seconds = record(tmp_path, 1, "eagle")
    places = {"target": "llama-3.1-8b@h100", "draft": "eagle3-llama-3.1-8b"}
    made = specfleet.import_record("vllm-metrics", files, tmp_path / "made.toml", seconds=seconds, **places)
    assert made.scenario.drafters.kind == "eagle"
    again, observed = (measure(each)["prefix_hit_share"].value for each in (simulate(made.scenario), run))
    assert again == pytest.approx(observed, rel=0.03)


def test_more_hits_than_queries_are_refused(tmp_path: Path) -> None:
    requests = served_in(simulate(scenario_of_server(40)))
    for queries in ("", "vllm:prefix_cache_queries_total 60\n"):
        text = metrics_text(requests) + "vllm:prefix_cache_hits_total 90\n" + queries
        with pytest.raises(InputError, match=r"hits_total = 90 exceeds prefix_cache_queries_total = (0|60)"):
            specfleet.import_record("vllm-metrics", write(tmp_path / "a.txt", text), tmp_path / "made.toml")


def test_few_hits_are_left_out(tmp_path: Path) -> None:
    requests = served_in(simulate(scenario_of_server(40)))
    counters = "vllm:prefix_cache_hits_total 100\nvllm:prefix_cache_queries_total 10000\n"
    made = specfleet.import_record(
        "vllm-metrics", write(tmp_path / "a.txt", metrics_text(requests) + counters), tmp_path / "made.toml"
    )
    assert (made.scenario.verifiers.prefix_cache, made.scenario.workload.shared) == (False, None)
