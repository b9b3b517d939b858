"""Acceptance by place: every round accepts what was recorded at its start, in any fleet."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.fleet.acceptance.places import write_places
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.predict import predict
from specfleet.sim.run import simulate
from tests.helpers.places import repeatable, texts_of, tokens_and_steps

DEPTH = 6
PROMPT = 11
PROFILE = {
    "name": "p", "draft": {"per_token_s": 0.01}, "verify": {"base_s": 0.05}, "decode": {"base_s": 0.04}
}  # fmt: skip
STAR: dict[str, Any] = {"verifiers": {"count": 1}}
BESIDE: dict[str, Any] = {"drafters": {"place": "target"}, "workload": {"streams": 9}}
FLEETS: dict[str, dict[str, Any]] = {
    "a star of one": STAR,
    "a star of three, five streams": {"verifiers": {"count": 3}, "workload": {"streams": 5}},
    "two drafters and a router": {"drafters": {"count": 2, "route": "shortest-queue"}, "verifiers": {"count": 3}},
    "grants of a verifier": {"verifiers": {"count": 2, "allocate": {"policy": "fixed-share", "budget": 6}}},
    "a target that drafts": BESIDE | {"verifiers": {"count": 1, "max_num_seqs": 3}},
    "a target with lengths of its own": BESIDE
    | {"verifiers": {"count": 1, "max_num_seqs": 2, "allocate": {"policy": "random-share", "budget": 6}}},
    "realigned rows": BESIDE | {"verifiers": {"count": 1, "max_num_seqs": 3, "aligned": {"policy": "realign"}}},
}


def scenario_over(
    folder: Path, texts: Sequence[Sequence[int]], fleet: dict[str, Any], depth: int = DEPTH, requests: int = 0
) -> Scenario:
    """A scenario that decodes each text once. The prefill gives the token before its first place."""
    write_places(texts, folder / "places.parquet")
    rows = "".join(f"{PROMPT},{len(text) + 1}\n" for text in texts)
    (folder / "lengths.csv").write_text("num_prefill_tokens,num_decode_tokens\n" + rows)
    workload = fleet.get("workload", {}) | {"requests": requests or len(texts), "lengths": "lengths.csv"}
    content = {
        "profile": PROFILE,
        "acceptance": {"model": "by-place", "file": "places.parquet", "depth": DEPTH},
        **fleet,
        "drafters": {"depth": depth} | fleet.get("drafters", {}),
        "verifiers": {"count": 2} | fleet.get("verifiers", {}),
        "workload": workload,
        "measure": {"warm_up_share": 0.0},
    }
    return make_scenario(content, base=folder)


def verified(scenario: Scenario) -> pd.DataFrame:
    """Verifications of a simulated run."""
    rows = simulate(scenario).table.to_pandas()
    return rows[(rows.event == "done") & (rows.kind == "verify")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("places")


@pytest.mark.parametrize("name", FLEETS)
@repeatable
@given(texts=texts_of(DEPTH))
def test_every_round_accepts_as_recorded_at_its_place(folder: Path, name: str, texts: list[list[int]]) -> None:
    rows = verified(scenario_over(folder, texts, FLEETS[name]))
    assert set(rows.request) == set(range(len(texts)))
    expected = [
        min(texts[row.request][row.base - PROMPT - 1], row.tokens)
        for row in rows[["request", "base", "tokens"]].itertuples()
    ]
    assert rows.accepted.tolist() == expected


@pytest.mark.parametrize("name", ["a star of one", "a star of three, five streams", "a target that drafts"])
@repeatable
@given(texts=texts_of(DEPTH), depth=st.integers(1, DEPTH))
def test_tokens_a_step_equal_a_loop_over_the_places(
    folder: Path, name: str, texts: list[list[int]], depth: int
) -> None:
    scenario = scenario_over(folder, texts, FLEETS[name], depth)
    rows = verified(scenario)
    tokens, steps = map(sum, zip(*[tokens_and_steps(text, depth) for text in texts], strict=True))
    assert (int(rows.accepted.sum()) + len(rows), len(rows)) == (tokens, steps)
    if name == "a star of one":
        assert predict(scenario).mean_acceptance_length == pytest.approx(tokens / steps)


def test_a_fleet_that_drafts_ahead_is_refused(tmp_path: Path) -> None:
    scenario = scenario_over(tmp_path, [[1, 0]], {"drafters": {"overlap": "ahead"}, **STAR}, depth=5)
    with pytest.raises(InputError, match=r"rules need to know single tokens; acceptance.model = 'by-place'"):
        simulate(scenario)


def test_texts_and_their_lengths_begin_again_together(tmp_path: Path) -> None:
    rows = verified(scenario_over(tmp_path, [[1, 0], [2]], STAR, requests=4))
    accepted = {request: own.accepted.tolist() for request, own in rows.groupby("request")}
    assert accepted.keys() == {0, 1, 2, 3}
    assert [accepted[2], accepted[3]] == [accepted[0], accepted[1]]
