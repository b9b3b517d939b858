"""Recorded ends of texts, played back: each request gets its tokens up to there, whatever the system."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fleet.errors import InputError
from fleet.records.metrics import measure
from fleet.records.replay import replay
from fleet.records.tables import commits_of
from fleet.scenario.reading import read_scenario
from fleet.scenario.settle import settle
from fleet.scenario.workload import streams_of, unknown_ends
from sim.run import simulate
from tests.helpers.ends import write_ends
from tests.helpers.stars import star

SHIPPED = sorted((Path(__file__).parents[2] / "fleet" / "data" / "scenarios").glob("*.toml"))
REQUESTS = 24


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_system_commits_each_text_up_to_its_end_and_no_further(path: Path, seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    ends = {request: int(rng.integers(1, 60)) for request in range(0, REQUESTS, 1 + seed)}
    changes: dict[str, Any] = {
        "seed": seed,
        "workload.requests": REQUESTS,
        "workload.ignore_eos": False,
        "workload.ends": str(write_ends(tmp_path / "ends.parquet", ends)),
        "measure.warm_up_share": 0.0,
    }
    scenario = read_scenario(path, changes)
    asked = {request.number: request.new_tokens for many in streams_of(settle(scenario)).values() for request in many}
    run = simulate(scenario)
    assert replay(run) == []
    committed = commits_of(run.columns()).frame().groupby("request").committed.sum().to_dict()
    assert committed == {request: min(ends.get(request, tokens), tokens) for request, tokens in asked.items()}
    assert "requests" in measure(run)


def test_where_ends_are_unknown_a_note_says_what_the_simulation_does() -> None:
    told, untold = {"ignore_eos": False, "ends": "run.parquet"}, {"stop": ["x"]}
    assert unknown_ends(settle(star(workload=told))) is None
    assert unknown_ends(settle(star())) is None
    assert "workload.ends" in str(unknown_ends(settle(star(workload=untold))))


def test_ends_that_cannot_be_read_or_that_nothing_asks_for_are_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("no run")
    pq.write_table(pa.table({"event": ["done"]}), tmp_path / "other.parquet")
    for name in ("text", "other", "absent"):
        scenario = star(workload={"ignore_eos": False, "ends": str(tmp_path / f"{name}.parquet")})
        with pytest.raises(InputError, match=r"^workload\.ends:? .*parquet") as caught:
            simulate(scenario)
        assert "\n" not in str(caught.value)
    with pytest.raises(
        InputError, match=r"workload\.ends says where texts end, and workload.ignore_eos = true lets none"
    ):
        star(workload={"ends": "run.parquet"})
