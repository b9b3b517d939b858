"""A target as a serving engine: rows join and leave, prompts come in chunks, caches are lost; texts stay those of plain
decoding."""

from pathlib import Path
from typing import Any

import pytest

from engine.launch.serve import EngineRun, serve
from fleet.records.replay import replay
from tests.helpers.marks import slow
from tests.helpers.pairs import drafters_of, pair_scenario
from tests.helpers.plain import plain_outputs

NARROW: dict[str, Any] = {"count": 1, "max_num_seqs": 3, "max_num_batched_tokens": 12, "kv_tokens": 80}
LOAD: dict[str, Any] = {"streams": 4, "requests": 7, "prompt_tokens": {"low": 3, "high": 18}, "new_tokens": 18}
KIN = "kin"


def served(tiny: Path, kind: str, verifiers: dict[str, Any] = NARROW, **tables: Any) -> EngineRun:
    """Run a narrow target with drafts of a kind; check texts, where they are greedy, and the log."""
    drafters = {"model": str(tiny / KIN)} if kind == KIN else drafters_of(tiny, kind)
    workload = LOAD | tables.pop("workload", {})
    drafters = {"depth": 4} | drafters | tables.pop("drafters", {})
    scenario = pair_scenario(tiny, drafters=drafters, verifiers=verifiers, workload=workload, **tables)
    found = serve(scenario)
    if scenario.workload.temperature:
        assert [len(text) for text in found.outputs.values()] == [18] * 7
    else:
        assert found.outputs == plain_outputs(scenario)
    assert replay(found.run) == []
    return found


def check_pressed(found: EngineRun) -> None:
    """Check that the run had chunks, and requests that lost their caches."""
    starts = found.run.frame().query("event == 'start'")
    assert (starts.kind == "chunk").any()
    begun = starts[starts.kind.isin(["chunk", "prefill"]) & (starts.base == 0) & starts.station.str.startswith("ver")]
    assert begun.groupby("request").size().max() > 1, "no request was preempted"


@pytest.mark.parametrize(
    ("kind", "workload"),
    [
        (KIN, {}),
        ("EAGLE", {}),
        slow("EAGLE-3", {}),
        slow("EAGLE tree", {}),
        slow("prompt lookup", {}),
        slow(KIN, {"temperature": 0.9}),
        ("EAGLE", {"temperature": 0.9}),
    ],
)
def test_drafts_from_elsewhere(tiny: Path, kind: str, workload: dict[str, Any]) -> None:
    check_pressed(served(tiny, kind, workload=workload))
