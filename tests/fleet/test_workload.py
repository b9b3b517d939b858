"""Workloads: the same requests in every world; arrivals and traces; streams of one request each."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import mean_lengths, read_lengths, streams_of, with_arrivals

PROFILE = {"name": "p", "draft": {"base_s": 0.1}, "verify": {"base_s": 0.4}}


def scenario(workload: dict[str, Any], base: Path = Path(), **tables: Any) -> Scenario:
    content = {"profile": PROFILE, "acceptance": {"model": "geometric", "beta": 0.8}, "workload": workload}
    return make_scenario(content | tables, base=base)


def resolved(workload: dict[str, Any], base: Path = Path(), **tables: Any) -> Fleet:
    return resolve(scenario(workload, base, **tables))


def test_a_closed_loop_deals_requests_to_its_streams() -> None:
    streams = streams_of(resolved({"requests": 5}, verifiers={"count": 2}))
    assert {tag: [request.number for request in requests] for tag, requests in streams.items()} == {
        0: [0, 2, 4],
        1: [1, 3],
    }


def test_drawn_lengths_are_reproducible_and_within_bounds() -> None:
    workload = {"requests": 200, "prompt_tokens": {"low": 5, "high": 9}, "new_tokens": {"low": 1, "high": 3}}
    first, again, other = (streams_of(resolved(workload, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    prompts = {request.prompt_tokens for requests in first.values() for request in requests}
    assert prompts == {5, 6, 7, 8, 9}


def test_poisson_arrivals_have_their_rate() -> None:
    """2 000 gaps: the mean is within 4 standard errors (one seed in 16 000 would miss)."""
    streams = streams_of(resolved({"requests": 2000, "arrivals": {"process": "poisson", "per_s": 5.0}}))
    assert len(streams) == 2000
    last_s = max(requests[0].not_before_s for requests in streams.values())
    assert last_s == pytest.approx(2000 / 5, rel=4 / np.sqrt(2000))


def test_a_trace_gives_times_from_its_first_row_and_lengths(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(
        "arrived_at,num_prefill_tokens,num_decode_tokens\n3600.0,374,44\n3604.0,396,109\n"
    )
    workload = {"requests": 9, "arrivals": {"process": "trace", "file": "trace.csv"}}
    streams = streams_of(resolved(workload, tmp_path))
    shown = [(r.not_before_s, r.prompt_tokens, r.new_tokens) for requests in streams.values() for r in requests]
    assert shown == [(0.0, 374, 44), (4.0, 396, 109)]
    in_a_loop = with_arrivals(scenario(workload, tmp_path).workload, None)
    assert in_a_loop.arrivals is None
    assert mean_lengths(in_a_loop) == mean_lengths(resolved(workload, tmp_path).workload)


def test_files_of_lengths_serve_closed_and_open_loops(tmp_path: Path) -> None:
    (tmp_path / "lengths.csv").write_text("num_prefill_tokens,num_decode_tokens\n374,44\n396,109\n20,7\n")
    workload = {"requests": 4, "streams": 2, "lengths": "lengths.csv"}
    closed = streams_of(resolved(workload, tmp_path))
    assert {tag: [(r.number, r.prompt_tokens, r.new_tokens) for r in requests] for tag, requests in closed.items()} == {
        0: [(0, 374, 44), (2, 20, 7)],
        1: [(1, 396, 109), (3, 374, 44)],  # the first row again
    }
    arrivals = {"requests": 2, "lengths": "lengths.csv", "arrivals": {"process": "poisson", "per_s": 1.0}}
    arriving = streams_of(resolved(arrivals, tmp_path))
    assert [r.new_tokens for requests in arriving.values() for r in requests] == [44, 109]
    in_all = resolved(workload | {"requests": 9}, tmp_path).workload
    assert mean_lengths(in_all) == pytest.approx((790 / 3, 160 / 3))
    lengths = read_lengths(in_all)
    assert (lengths.longest_text, lengths.longest_answer) == (505, 109)
    (tmp_path / "lengths.csv").write_text("num_prefill_tokens,num_decode_tokens\n5,6\n")
    assert mean_lengths(in_all) == (5, 6)  # a changed file is read again
    assert mean_lengths(resolved({"prompt_tokens": {"low": 2, "high": 5}}, tmp_path).workload) == (3.5, 96)


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        ({"lengths": "none.csv"}, "cannot be read"),
        ({"arrivals": {"process": "trace", "file": "bad.csv"}}, "has the columns"),
        ({"lengths": "bad.csv"}, r"lengths .*bad.csv: has the columns \['a', 'b'\]; needs num_prefill_tokens, num_d"),
        ({"lengths": "zero.csv"}, "zero.csv: none of its 1 rows has tokens of prompt and answer"),
    ],
)
def test_bad_files_are_one_clear_line(tmp_path: Path, workload: dict[str, Any], message: str) -> None:
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    (tmp_path / "zero.csv").write_text("num_prefill_tokens,num_decode_tokens\n1,0\n")
    with pytest.raises(InputError, match=message):
        streams_of(resolved(workload, tmp_path))
