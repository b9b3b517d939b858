"""Adaptive verification in the engine: a target verifies the chosen tokens of its drafts, and texts stay the same."""

from pathlib import Path
from typing import Any

import pytest

from specfleet.engine.launch.runnable import check_can_run
from specfleet.engine.node.real import verifier_node
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.resolve import resolve
from tests.engine.test_continuous import KIN, check_distribution, narrow, sampled_load, served
from tests.helpers.marks import slow
from tests.helpers.plain import served_here

COSTS = {"rows": [1], "draft_s": [[0.001] * 5], "verify_s": [[0.01, 0.012, 0.016, 0.022, 0.03]]}
RULE: dict[str, Any] = {"policy": "adaptive", "depth": 4, "costs": COSTS}


def cut(run: Run) -> tuple[float, float]:
    """Mean tokens of drafts, and of their verifications."""
    rows = run.frame().query("event == 'done' and tokens > 0")
    drafts = rows[rows.kind == "draft"].tokens
    return drafts.mean(), rows[rows.kind == "verify"].tokens.sum() / len(drafts)


@pytest.mark.parametrize(
    ("kind", "by", "drafters", "workload"),
    [
        (KIN, "entropy", {"place": "target"}, {}),
        (KIN, "position", {}, {}),
        (KIN, "entropy", {"place": "target"}, {"temperature": 0.9}),
        slow("EAGLE", "entropy", {"place": "target"}, {}),
        slow("prompt lookup", "position", {"place": "target"}, {}),
        slow("EAGLE", "position", {}, {}),
    ],
)
def test_chosen_tokens_change_no_text(
    tiny: Path, kind: str, by: str, drafters: dict[str, Any], workload: dict[str, Any]
) -> None:
    run = served(tiny, kind, drafters, workload, allocate=RULE | {"by": by})
    rows = run.frame().query("event == 'done' and kind == 'draft' and tokens > 0")
    if by == "entropy":
        assert (rows.entropies.map(len) == rows.tokens).all()
    drafted, verified = cut(run)
    assert 0 < verified < drafted


@pytest.mark.slow
def test_chosen_tokens_keep_the_targets_distribution(tiny: Path, tmp_path: Path) -> None:
    """The entropies after a token depend on it, and choose among the tokens before it too."""
    limits = {"kv_tokens": 0, "max_num_batched_tokens": 64, "allocate": RULE | {"by": "entropy"}}
    scenario = narrow(tiny, KIN, {"place": "target"}, sampled_load(tmp_path), **limits)
    run, outputs = served_here(lambda fleet, prompts: verifier_node(fleet, 0, prompts, {}), scenario)
    drafted, verified = cut(run)
    assert 0 < verified < drafted
    check_distribution(scenario, outputs)


def test_the_engine_needs_times_of_rounds(tiny: Path) -> None:
    scenario = narrow(tiny, KIN, {"place": "target"}, {}, allocate={"policy": "adaptive", "depth": 4})
    with pytest.raises(InputError, match="'adaptive' without times; give profile or verifiers"):
        check_can_run(resolve(scenario))
