"""Plans of prompts that share texts: a plan's promise is its simulation, counted in another way from the records."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest

pytest.importorskip("numba")

import specfleet
from specfleet.experiments.plan import ask
from specfleet.experiments.plan.answer import Row, make_rows
from specfleet.experiments.plan.ask import _loads, _with_load
from specfleet.experiments.plan.candidates import Candidate
from specfleet.experiments.plan.commands import bench_command, server_commands
from specfleet.experiments.plan.deployments import Deployment, Load, Question, ramp_requests
from specfleet.experiments.plan.search import Simulations
from specfleet.experiments.plan.serving import load_curve, row_limits
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario, Workload
from specfleet.fleet.scenario.shared import Conversations, SharedPrompts
from specfleet.sim.run import simulate
from tests.helpers.loads import hit_share
from tests.helpers.plans import candidates
from tests.helpers.stars import star

TALKS = {"turns": 3, "think_s": 4.0}


def served(workload: dict[str, Any], **verifiers: Any) -> Scenario:
    """A target with a prefix cache that decodes without drafts."""
    step = {"base_s": 0.01, "per_token_s": 1e-4}
    return star(
        seed=0, profile=dict.fromkeys(("decode", "verify_prefill"), step), drafters={"count": 0, "depth": 4},
        verifiers={"count": 1, "prefix_cache": True} | verifiers, cost={"target_per_hour": 1.0},
        workload={"prompt_tokens": 64, "new_tokens": 20} | workload,
    )  # fmt: skip


def searched(scenario: Scenario, load: Load) -> tuple[Row, Scenario]:
    """One target under a load, as a plan simulates it."""
    candidate = Candidate("plain", "none", _with_load(scenario, True), (0,), 1.0)
    found = Simulations(Question((candidate,), load), 1, lambda _what: None)
    found.best = [made.fleet for made in found.estimates.values() if made.fleet.replicas == 1]
    found.run(found.best, 1)
    return next(make_rows(found)), found.scenario(found.best[0])


def at_once(run: Run) -> pd.DataFrame:
    """Stream, begin and end of each request at its target."""
    rows = run.frame()
    joins, begun = (rows[rows.event == event].groupby("request") for event in ("join", "start"))
    ended = rows[rows.event == "done"].groupby("request").time_s.max()
    return pd.DataFrame(
        {"tag": joins.tag.first(), "joined": joins.time_s.min(), "begun": begun.time_s.min(), "ended": ended}
    )


def overlap(begins: "pd.Series[float]", ends: "pd.Series[float]", low: float, high: float) -> float:
    """How many spans overlap a moment between two times, on average."""
    return float((np.minimum(ends, high) - np.maximum(begins, low)).clip(lower=0).sum() / (high - low))


def test_users_who_think_are_not_at_the_target() -> None:
    """Little's law for the requests that the records show, and the response-time law for all users."""
    row, scenario = searched(served({"conversations": TALKS}), Load(each=48))
    spans = at_once(simulate(scenario))
    end = spans.groupby("tag").ended.max().min()
    assert row.in_flight == pytest.approx(overlap(spans.joined, spans.ended, 0.2 * end, end), rel=0.1)
    assert row.in_flight < 48 / 4
    requests_per_s = row.tokens_per_s / 20
    assert 48 / requests_per_s == pytest.approx(row.metrics["latency_s"].value + 4.0 * 2 / 3, rel=0.1)
    curve = load_curve(resolve(scenario))
    assert 48 / (curve.request_with(48) + curve.think_s) == pytest.approx(requests_per_s, rel=0.1)
    assert curve.at_target(48) == pytest.approx(row.in_flight, rel=0.1)


def test_conversations_of_a_scenario_are_its_requests_in_a_plan() -> None:
    """A scenario's conversations arrive once a second: three requests, as many as the window of the simulation has."""
    scenario = served({"conversations": TALKS, "arrivals": {"process": "poisson", "per_s": 1.0}})
    (load,) = _loads(scenario, [], [], False)
    assert load == Load(per_s=pytest.approx(3.0))  # type: ignore[arg-type]
    row, planned = searched(scenario, load)
    assert planned.workload.arrivals == scenario.workload.arrivals
    assert row.tokens_per_s == pytest.approx(60.0)
    joins = (rows := simulate(planned).frame())[rows.event == "join"]
    last = joins.groupby("tag").time_s.min().max()
    counted = joins.time_s.between(planned.measure.warm_up_share * last, last).sum()
    assert counted / ((1 - planned.measure.warm_up_share) * last) == pytest.approx(3.0, rel=0.12)  # of 800 requests
    assert row.metrics["throughput"].value == pytest.approx(60.0, rel=0.12)


def test_a_plan_says_what_its_loads_count() -> None:
    scenario = served({"conversations": {"turns": 2}, "new_tokens": 8}, max_num_seqs=2)
    found = specfleet.plan(scenario, in_flight=1, jobs=1)
    assert (
        "conversations: arrivals are those of requests, 2 in each; requests in flight are users, who may think"
        in found.notes
    )


@pytest.mark.parametrize(
    ("shared", "own"),
    [
        ({"tokens": 512, "groups": 50, "zipf": 1.0}, 64),
        ({"share": 0.8, "groups": 4}, 640),
        ({"tokens": 1024, "groups": 20}, 64),
    ],
)
def test_a_beginning_is_once_in_memory(shared: dict[str, Any], own: int) -> None:
    """More requests than the cache holds: those that run, by the records, are as many as the equations say."""
    load = {"shared": shared, "prompt_tokens": own, "streams": 150, "requests": 700}
    scenario = served(load, kv_tokens=16384, max_num_seqs=512, max_num_batched_tokens=8192)
    spans, fleet = at_once(simulate(scenario)), resolve(scenario)
    end = spans.ended.max()
    running = overlap(spans.begun, spans.ended, 0.3 * end, 0.75 * end)
    assert row_limits(fleet)["the KV cache"] == pytest.approx(running, rel=0.12)
    assert running > 1.2 * 16384 / fleet.lengths.middle


def test_a_ramp_beyond_the_longest_simulation_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four mean ages of a request, a fifth of a simulation: with 1 turn before it on average, 20 times the thinking."""
    talks = Conversations(turns=3, think_s=500)
    assert [ramp_requests(Load(per_s=rate), talks) for rate in (1.0, 2.0)] == [10_000, 20_000]
    monkeypatch.setattr(ask, "LARGE", 50)
    changes = {"workload.conversations": {"turns": 3, "think_s": 2.0}, "workload.new_tokens": 8}
    for rate, said in ((1.0, 0), (2.0, 1)):
        found = specfleet.plan(None, changes, target="llama-3.1-8b@h100", arrivals=rate, jobs=1)
        assert sum("after a fifth of 80 requests; simulations end with 50," in note for note in found.notes) == said


def test_a_cached_share_hits() -> None:
    found = specfleet.plan(
        None, {"workload.prompt_tokens": 800, "workload.new_tokens": 40}, target="llama-3.1-8b@h100", in_flight=4,
        cached=0.7, jobs=1,
    )  # fmt: skip
    assert found.scenario is not None
    share = found.chosen.metrics["prefix_hit_share"].value
    assert share == pytest.approx(0.7, abs=0.01)
    assert hit_share(simulate(found.scenario)) == pytest.approx(0.7, abs=0.02)  # the first prompt is read
    assert f"; {share:.0%} of prompt tokens in the prefix cache" in found.lines[1]
    assert "prompts of 800 tokens (70% a common beginning), answers" in found.title
    assert "--random-input-len 240 --random-output-len 40 " in found.commands[-1]
    assert "--random-prefix-len 560 " in found.commands[-1]


def trace(path: Path, ids: bool) -> Path:
    rows = [
        {"timestamp": 100 * k, "input_length": 100, "output_length": 20}
        | ({"hash_ids": [2**60 - 1 - k % 4, 100 + k % 4, 200 + k, 300 + k]} if ids else {})
        for k in range(40)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.mark.parametrize("ids", [True, False])
def test_a_trace_keeps_its_own_shared_texts(ids: bool, tmp_path: Path) -> None:
    """Blocks of 32 tokens, of which two in four were seen before; rows that begin again are other texts."""
    file = {"process": "trace", "file": str(trace(tmp_path / "trace.jsonl", ids)), "id_tokens": 32}
    scenario = served({"arrivals": file, "requests": 40, "prompt_tokens": 192, "new_tokens": 96}, kv_block_size=32)
    row, planned = searched(scenario, Load(per_s=4.0))
    assert planned.workload.id_tokens == (32 if ids else 0)
    expected = 64 / 100 * 36 / 40 if ids else 0.0
    assert hit_share(simulate(planned)) == pytest.approx(expected, abs=0.01)
    assert row.metrics["prefix_hit_share"].value == pytest.approx(expected, abs=0.02)
    if ids:
        with pytest.raises(InputError, match=r"--cached 0\.7: the prompts of 'unnamed' share texts already"):
            specfleet.plan(scenario, arrivals=4.0, cached=0.7)


@pytest.mark.parametrize(
    ("workload", "cached", "said"),
    [
        ({"shared": {"tokens": 64}}, 0.7, "share texts already; leave one of both out"),
        ({"conversations": TALKS}, 0.7, "share texts already; leave one of both out"),
        ({}, 1.0, "--cached 1: needs a share of the prompts' tokens above 0 and below 1, such as 0.7"),
        ({}, -0.5, "--cached -0.5: needs a share"),
    ],
)
def test_a_share_that_is_none_is_one_clear_line(workload: dict[str, Any], cached: float, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        specfleet.plan(served(workload), arrivals=1.0, cached=cached)


def test_commands_have_the_caches_of_the_plan() -> None:
    """One shared text is vLLM's random prefix; other shared texts need prompts of the user."""
    load, base = Load(each=8), Workload(prompt_tokens=800, new_tokens=250)
    for shared, words in (
        ({"shared": SharedPrompts(600)}, "--random-input-len 800 --random-output-len 250 --random-prefix-len 600 "),
        (
            {"shared": SharedPrompts(share=0.75)},
            "--random-input-len 200 --random-output-len 250 --random-prefix-len 600 ",
        ),
        ({"shared": SharedPrompts(600, groups=4)}, "--dataset-name custom "),
        ({"conversations": Conversations()}, "--dataset-name custom "),
    ):
        scenario = Scenario(workload=msgspec.structs.replace(base, **shared))
        (candidate,) = candidates("llama-3.1-8b@h100", scenario=scenario)
        fleet = Deployment(candidate, 1)
        command = bench_command(fleet, load, fleet.scenario(load, 96))
        assert words in command
        said = (
            "each is sent by itself, without turns" if "conversations" in shared else "they share texts as the planned"
        )
        assert (said in command) == ("custom" in words)
        off = [" --no-enable-prefix-caching ", " --disable-radix-cache "]
        assert all(option in line for option, line in zip(off, server_commands(candidate, 0), strict=True))
        cached = msgspec.structs.replace(candidate.base.verifiers, prefix_cache=True)
        on = msgspec.structs.replace(candidate, base=msgspec.structs.replace(candidate.base, verifiers=cached))
        assert not any(option in line for option, line in zip(off, server_commands(on, 0), strict=True))
