"""Workloads: the same requests in every world; arrivals, traces and conversations; streams of one request each."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleet.errors import InputError
from fleet.records.metrics import measure
from fleet.scenario.reading import make_scenario
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle
from fleet.scenario.settled import Fleet
from fleet.scenario.workload import streams_of
from sim.run import simulate

PROFILE = {"name": "p", "draft": {"base_s": 0.1}, "verify": {"base_s": 0.4}}


def scenario(workload: dict[str, Any], base: Path = Path(), **tables: Any) -> Scenario:
    content = {"profile": PROFILE, "acceptance": {"model": "geometric", "beta": 0.8}, "workload": workload}
    return make_scenario(content | tables, base=base)


def settled(workload: dict[str, Any], base: Path = Path(), **tables: Any) -> Fleet:
    return settle(scenario(workload, base, **tables))


def test_a_closed_loop_deals_requests_to_its_streams() -> None:
    streams = streams_of(settled({"requests": 5}, verifiers={"count": 2}))
    assert {tag: [request.number for request in requests] for tag, requests in streams.items()} == {
        0: [0, 2, 4],
        1: [1, 3],
    }


def test_lengths_between_are_the_same_for_the_same_seed_and_within_their_bounds() -> None:
    workload = {"requests": 200, "prompt_tokens": {"low": 5, "high": 9}, "new_tokens": {"low": 1, "high": 3}}
    first, again, other = (streams_of(settled(workload, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    prompts = {request.prompt_tokens for requests in first.values() for request in requests}
    assert prompts == {5, 6, 7, 8, 9}


def test_poisson_arrivals_come_at_the_asked_rate() -> None:
    """2 000 gaps: the mean is within 4 standard errors (one seed in 16 000 would miss)."""
    streams = streams_of(settled({"requests": 2000, "arrivals": {"process": "poisson", "per_s": 5.0}}))
    assert len(streams) == 2000
    last_s = max(requests[0].not_before_s for requests in streams.values())
    assert last_s == pytest.approx(2000 / 5, rel=4 / np.sqrt(2000))


def test_requests_that_arrive_by_themselves_share_a_target() -> None:
    run = simulate(scenario({"requests": 30, "new_tokens": 20, "arrivals": {"process": "poisson", "per_s": 1.0}}))
    metrics = measure(run)
    assert metrics["requests"].value > 20
    assert run.frame().tag.nunique() == 30


def test_a_trace_gives_times_and_lengths(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.0,396,109\n")
    workload = {"requests": 9, "arrivals": {"process": "trace", "file": "trace.csv", "speed": 2.0}}
    streams = streams_of(settled(workload, tmp_path))
    shown = [(r.not_before_s, r.prompt_tokens, r.new_tokens) for requests in streams.values() for r in requests]
    assert shown == [(0.0, 374, 44), (2.0, 396, 109)]


def test_a_conversation_grows_from_turn_to_turn(tmp_path: Path) -> None:
    (tmp_path / "talk.jsonl").write_text('{"turns": ["12345678", "1234"]}\n{"turns": ["1234"]}\n')
    workload = {"requests": 9, "new_tokens": 10, "conversations": "talk.jsonl"}
    arriving = streams_of(settled(workload | {"arrivals": {"process": "poisson", "per_s": 1.0}}, tmp_path))
    assert {tag: [request.prompt_tokens for request in requests] for tag, requests in arriving.items()} == {
        0: [2, 13],
        1: [1],
    }
    run = simulate(scenario(workload, tmp_path))
    joins = run.frame().query("event == 'join'")
    assert sorted(joins.tokens) == [1, 2, 13]


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ({"conversations": "none.jsonl"}, "cannot be read"),
        ({"conversations": "bad.jsonl"}, "line 1: content = .*object"),
        ({"arrivals": {"process": "trace", "file": "bad.csv"}}, "needs the columns"),
    ],
)
def test_bad_files_are_one_clear_line(tmp_path: Path, workload: dict[str, Any], message: str) -> None:
    (tmp_path / "bad.jsonl").write_text("[]\n")
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=message):
        streams_of(settled(workload, tmp_path))


def test_a_range_that_goes_down_is_refused() -> None:
    with pytest.raises(InputError, match=r"low = 9 is above high = 5"):
        scenario({"prompt_tokens": {"low": 9, "high": 5}})
