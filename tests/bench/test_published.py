"""Published throughputs: what a row is made of, and that no estimate depends on the figure it is held against."""

from copy import deepcopy
from typing import Any

import pytest

from bench import published as study
from bench.published import reproduce, round_s
from specfleet.experiments.reproduce.rows import PaperRow
from specfleet.fleet.hardware.profile import estimate


@pytest.fixture(scope="module")
def rows() -> list[PaperRow]:
    return reproduce().rows


def test_rounds_are_drafts_and_a_verification() -> None:
    profile = estimate("llama-3.1-8b@h100", "eagle-llama-3-8b@h100")
    chain = round_s(profile, 400, 4, steps=3, nodes=4, children=1)
    assert chain == profile.draft.mean_s(3, 400, 4, 9) + profile.verify.mean_s(4, 400, 4, 12)
    tree = round_s(profile, 400, 4, steps=3, nodes=16, children=4)
    assert tree == profile.draft.mean_s(3, 400, 16, 45) + profile.verify.mean_s(16, 400, 4, 48)
    assert round_s(profile, 400, 4, steps=0, nodes=1, children=1) == profile.decode.mean_s(1, 400, 4, 3)


def test_the_best_depth_of_the_eagle_table_is_found(rows: list[PaperRow]) -> None:
    """vLLM #20780 measured it at 3, and each depth is within 6 %."""
    own = [row for row in rows if row.case["thread"] == "vLLM #20780"]
    best = min(own, key=lambda row: row.ours or 0.0)
    assert best.case["draft"].startswith("3_")
    assert max(abs(row.error or 1.0) for row in own) < 0.06


def test_estimates_do_not_move_with_what_was_measured(rows: list[PaperRow], monkeypatch: pytest.MonkeyPatch) -> None:
    changed: dict[str, Any] = deepcopy(study.THREADS)
    for entry in [*(entry for table in changed["tables"] for entry in table["rows"]), *changed["apart"][0]["rows"][1:]]:
        entry["measured"] *= 2
    for entry in changed["loops"][0]["rows"]:
        entry["tpot_ms"], entry["ttft_ms"] = 2 * entry["tpot_ms"], 2 * entry["ttft_ms"]
    monkeypatch.setattr(study, "THREADS", changed)
    after = reproduce().rows
    assert [row.ours for row in after] == [row.ours for row in rows]
    assert {row.kind for row in rows} == {"estimated", "predicted", "fitted", "unsettled"}
