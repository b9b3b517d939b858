"""Targets that share cached blocks: shared prompts, conversations and traces in simulated time."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.replay import replay, replay_stations
from specfleet.fleet.records.run import Run, read_run, write_run
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import Request, streams_of
from specfleet.fleet.stations.build import stations
from specfleet.fleet.stations.verifier import VerifierStation
from specfleet.sim.run import simulate

BLOCK = 16
POISSON = {"process": "poisson", "per_s": 40}
TALKS = {"turns": {"low": 1, "high": 4}, "think_s": 0.2}
STEP = {"base_s": 0.002, "per_token_s": 2e-5}


def serving(cached: bool = True, workload: dict[str, Any] | None = None, **keys: Any) -> Scenario:
    profile = {
        "name": "made up", "draft": {"base_s": 0.001}, "verify": STEP, "decode": STEP, "verify_prefill": STEP,
        "draft_prefill": STEP, "link": {"latency_s": 0.0},
    }  # fmt: skip
    lengths = {"requests": 60, "prompt_tokens": {"low": 10, "high": 90}, "new_tokens": {"low": 5, "high": 60}}
    changes = {
        "profile": profile,
        "acceptance": {"model": "geometric", "beta": 0.7},
        "drafters": {"count": 1, "place": "target", "depth": 3},
        "measure": {"warm_up_share": 0.0},
        "workload": workload if "file" in str(workload) else lengths | (workload or {}),
    }
    verifiers = {"kv_tokens": 4096, "kv_block_size": BLOCK} | ({"prefix_cache": True} if cached else {})
    given = {table: changes.get(table, {}) | keys.get(table, {}) for table in keys if table != "verifiers"}
    return make_scenario(changes | given | {"verifiers": verifiers | keys.get("verifiers", {})})


LOADS: dict[str, dict[str, Any]] = {
    "shared": {"shared": {"groups": 4, "tokens": 100, "zipf": 1.0}, "streams": 12},
    "arrivals": {"shared": {"groups": 4, "tokens": 100, "zipf": 1.0}, "arrivals": POISSON},
    "talks": {"conversations": TALKS, "streams": 6},
    "both": {"shared": {"groups": 2, "tokens": 50}, "conversations": TALKS, "arrivals": POISSON},
}


def accepted(run: Run) -> dict[int, list[int]]:
    rows = run.frame()
    done = rows[(rows.event == "done") & (rows.kind == "verify")]
    return {int(request): group.accepted.tolist() for request, group in done.groupby("request")}


@pytest.mark.parametrize("load", LOADS)
def test_hits_save_time_and_change_no_token(load: str) -> None:
    with_cache, without = (simulate(serving(cached, LOADS[load])) for cached in (True, False))
    assert accepted(with_cache) == accepted(without)
    assert measure(with_cache)["prefix_hit_share"].value > 0.3
    assert "prefix_hit_share" not in measure(without)
    assert measure(with_cache)["ttft_s"].value < measure(without)["ttft_s"].value
    assert replay(with_cache) == replay(without) == []
    assert not any(without.table["identity"].to_pylist())


@pytest.mark.parametrize("kind", ["model", "eagle", "lookup"])
def test_a_hit_ends_before_the_last_token_and_with_a_head_one_block_earlier(kind: str) -> None:
    """One group of 100 tokens, and requests one after the other: each finds it but what fills no block."""
    load = {"shared": {"tokens": 100}, "streams": 1, "requests": 5, "prompt_tokens": 30, "new_tokens": 5}
    run = simulate(serving(workload=load, drafters={"kind": kind})).frame()
    begun = run[(run.event == "start") & run.kind.isin(["prefill", "chunk"])]
    assert begun.base.tolist() == [0] + 4 * [(100 // BLOCK - (kind == "eagle")) * BLOCK]


def test_prompts_of_their_own_take_the_time_of_today() -> None:
    """Without a preemption nothing hits, and every step is the same."""
    for keys in ({}, {"drafters": {"count": 0}}, {"verifiers": {"prefill_first": True, "kv_tokens": 0}}):
        with_cache, without = (simulate(serving(cached, {"streams": 8}, **keys)) for cached in (True, False))
        assert with_cache.digest() == without.digest()
        assert measure(with_cache)["prefix_hit_share"].value == 0


def test_a_preempted_request_finds_its_own_blocks() -> None:
    load = {"streams": 12, "requests": 48, "prompt_tokens": 60, "new_tokens": 80}
    runs = [simulate(serving(cached, load, verifiers={"kv_tokens": 800})) for cached in (True, False)]
    for run in runs:
        assert replay(run) == []
    tables = [run.frame() for run in runs]
    prefills = [rows[(rows.event == "start") & rows.kind.isin(["prefill", "chunk"])] for rows in tables]
    assert all(len(rows) > 48 for rows in prefills)  # some were preempted
    assert prefills[0].tokens.sum() < 0.9 * prefills[1].tokens.sum()
    assert measure(runs[0])["throughput"].value > measure(runs[1])["throughput"].value


def test_requests_that_end_together_free_blocks_in_order_of_admission() -> None:
    """As vLLM's, also those that came back after a preemption; the order of eviction follows from it."""
    crowd = {"streams": 12, "requests": 96, "prompt_tokens": 30, "new_tokens": {"low": 20, "high": 24}}
    run = simulate(serving(workload=crowd, verifiers={"kv_tokens": 480, "max_num_batched_tokens": 128}))
    target = stations(run.header.fleet)["verifier.1"]
    assert isinstance(target, VerifierStation)
    cache, closed = target.rows.cache, list[tuple[tuple[int, ...], int]]()
    assert cache is not None
    close = cache.close

    def noted(tag: int) -> None:
        closed.append((target.rows.order, target.rows.order.index(tag)))
        close(tag)

    cache.close = noted  # type: ignore[method-assign]
    assert replay_stations(run, {"verifier.1": target}) == []
    together = [(first, second) for (step, first), (other, second) in pairwise(closed) if step is other]
    assert len(together) > 5
    assert all(first < second for first, second in together)


def test_a_turns_prompt_is_the_text_so_far_and_more() -> None:
    for load in (LOADS["talks"], LOADS["both"]):
        fleet = resolve(serving(workload=load))
        shared = load.get("shared", {}).get("tokens", 0)
        prompts, longest = [], 0
        for requests in streams_of(fleet).values():
            before: Request | None = None
            for request in requests:
                prompts.append(request.prompt_tokens)
                longest = max(longest, request.prompt_tokens + request.new_tokens)
                if request.identity[2 if shared else 0 :]:
                    assert before is not None
                    more = request.prompt_tokens - before.prompt_tokens - before.new_tokens
                    assert request.identity[-1] == request.prompt_tokens + request.new_tokens
                else:
                    more = request.prompt_tokens - shared
                    assert request.think_s == 0
                assert 10 <= more <= 90
                before = request
        assert longest <= fleet.lengths.longest_text
        assert sorted({request.number for own in streams_of(fleet).values() for request in own}) == list(range(60))


def test_means_of_conversations_are_those_of_many() -> None:
    many = serving(workload={"conversations": TALKS, "shared": {"tokens": 40}, "requests": 20000, "arrivals": POISSON})
    fleet = resolve(many)
    requests = [request for requests in streams_of(fleet).values() for request in requests]
    assert fleet.lengths.mean_prompt == pytest.approx(
        np.mean([request.prompt_tokens for request in requests]), rel=0.01
    )
    thinks = [request.think_s for request in requests if request.think_s]
    assert np.mean(thinks) == pytest.approx(TALKS["think_s"], rel=0.04)  # four standard errors


def test_a_conversation_beyond_every_model_is_refused_in_one_line() -> None:
    talks = {"conversations": {"turns": {"low": 1, "high": 10**7}}}
    with pytest.raises(InputError, match="turns: a text has up to 1500000000 tokens; allowed"):
        resolve(serving(workload=talks))


def test_the_next_turn_waits_for_the_answer_and_the_user() -> None:
    load = {"conversations": {"turns": 3, "think_s": 5.0}, "requests": 30, "streams": 2}
    scenario = serving(workload=load, drafters={"count": 0})
    rows = simulate(scenario).frame()
    joins, ends = rows[rows.event == "join"], rows[rows.event == "done"].groupby("request").time_s.max()
    for requests in streams_of(resolve(scenario)).values():
        for before, request in pairwise(requests):
            joined_s = joins[joins.request == request.number].time_s.item()
            assert joined_s - ends[before.number] == pytest.approx(request.think_s)
            assert bool(request.think_s) == (len(request.identity) > 0)


def test_popularity_falls_as_a_power_of_the_rank() -> None:
    load = {"shared": {"groups": 3, "tokens": 20, "zipf": 1.0}, "requests": 6000, "arrivals": POISSON}
    streams = streams_of(resolve(serving(workload=load)))
    counts = np.bincount([requests[0].identity[0] for requests in streams.values()])
    assert counts / 6000 == pytest.approx(np.array([6, 3, 2]) / 11, abs=0.025)  # four standard errors


def trace(path: Path, rows: list[tuple[float, int, list[int]]]) -> dict[str, Any]:
    lines = [
        json.dumps({"timestamp": time, "input_length": prompt, "output_length": 9, "hash_ids": ids})
        for time, prompt, ids in rows
    ]
    path.write_text("\n".join(lines))
    return {"process": "trace", "file": str(path), "id_tokens": 64}


def test_a_traces_ids_are_shared_blocks(tmp_path: Path) -> None:
    """Of 150 tokens the second finds two whole blocks of ids, the third all but the block of its last token."""
    rows = [(0, 150, [1, 2, 3]), (900, 150, [1, 2, 4]), (1800, 128, [1, 2])]
    run = simulate(serving(workload={"arrivals": trace(tmp_path / "a.jsonl", rows)}))
    begun = run.frame()[lambda rows: (rows.event == "start") & (rows.kind == "prefill")]
    assert begun.base.tolist() == [0, 128, 112]
    write_run(run, tmp_path / "run.parquet")
    (tmp_path / "a.jsonl").unlink()  # the records have the identities
    again = read_run(tmp_path / "run.parquet")
    assert replay(again) == []
    assert again.digest() == run.digest()


@pytest.mark.parametrize(
    ("rows", "verifiers", "message"),
    [
        ([(0, 150, [1, 2])], {}, "line 1: hash_ids has 2 ids; needs 3, one for each 64 tokens"),
        ([(0, 50, [1, 2, 3])], {}, "line 1: hash_ids has 3 ids; needs 1, one for each 64 tokens"),
        ([(0, 50, [-1])], {}, r"line 1: hash_ids = \[-1\]: needs a list of whole numbers"),
        ([(5, 50, [1]), (4, 50, [1])], {}, "line 2: timestamp = 4 is before the row above"),
        ([(0, 50, [1])], {"kv_block_size": 48}, "kv_block_size = 48 does not divide workload.arrivals.id_tokens = 64"),
        ([(0, 5000, [*range(79)])], {}, "a request of 5009 tokens and its draft do not fit into a KV cache of 4096"),
    ],
)
def test_a_wrong_trace_is_one_clear_line(
    tmp_path: Path, rows: list[tuple[float, int, list[int]]], verifiers: dict[str, Any], message: str
) -> None:
    scenario = serving(workload={"arrivals": trace(tmp_path / "a.jsonl", rows)}, verifiers=verifiers)
    with pytest.raises(InputError, match=message):
        simulate(scenario)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    "drafters",
    [
        {"place": "target"}, {"place": "target", "kind": "eagle"}, {"count": 0}, {"place": "own", "late": "wait"},
        {"place": "own", "late": "decode"}, {"place": "own", "late": "skip"},
    ],
)  # fmt: skip
def test_every_target_replays_and_frees_all_blocks(drafters: dict[str, Any], first: bool) -> None:
    """Little memory, so that requests wait, are preempted, and lose what others would have found."""
    drafters = dict(drafters)
    verifiers = {"kv_tokens": 480, "max_num_batched_tokens": 64, "prefill_first": first}
    verifiers |= {"late": late} if (late := drafters.pop("late", "")) else {}
    load = {"shared": {"groups": 3, "tokens": 60, "zipf": 1.0}, "streams": 12, "requests": 40}
    run = simulate(serving(workload=load, drafters=drafters, verifiers=verifiers))
    fresh = stations(resolve(run.header.scenario))
    assert replay_stations(run, fresh) == []
    target = fresh["verifier.1"]
    assert isinstance(target, VerifierStation)
    cache = target.rows.cache
    assert cache is not None
    assert (cache.free, cache.texts, cache.journal, sum(cache.users)) == (480 // BLOCK, {}, [], 0)
    assert 0 < measure(run)["prefix_hit_share"].value < 0.7
