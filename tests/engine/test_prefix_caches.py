"""Real targets with a prefix cache: texts stay those of plain decoding, and blocks are those of the simulation."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specfleet.engine.decoding import together
from specfleet.engine.decoding.blocks import BlockCache
from specfleet.engine.launch.runnable import check_can_run
from specfleet.engine.launch.serve import serve
from specfleet.engine.node.node import Node
from specfleet.engine.node.prompts import prompts_of
from specfleet.engine.node.serving import ServingExecutor
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import change_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import streams_of
from specfleet.fleet.times.step import Step
from specfleet.sim.run import simulate
from tests.helpers.drafted import check_drafts, note_drafts
from tests.helpers.loads import hit_share
from tests.helpers.marks import slow
from tests.helpers.pairs import drafters_of, pair_scenario
from tests.helpers.plain import plain_outputs, served_here, target_node

SMALL: dict[str, Any] = {
    "count": 1, "max_num_seqs": 3, "max_num_batched_tokens": 24, "kv_tokens": 160, "kv_block_size": 4,
    "prefix_cache": True,
}  # fmt: skip
WIDE: dict[str, Any] = {"max_num_seqs": 4, "max_num_batched_tokens": 200, "kv_tokens": 400}
LENGTHS: dict[str, Any] = {"prompt_tokens": {"low": 1, "high": 18}, "new_tokens": {"low": 1, "high": 18}}
SHARED = {"shared": {"tokens": 21, "groups": 2}}
TALKS = {"conversations": {"turns": 3}}
LOADS: dict[str, dict[str, Any]] = {"shared": SHARED, "talks": TALKS, "both": SHARED | TALKS}
LAWS = {
    name: {"base_s": 0.002} for name in ("draft", "draft_prefill", "decode", "verify", "verify_prefill")
} | {"link": {"latency_s": 0.0}}  # fmt: skip


def sharing(tiny: Path, kind: str, load: dict[str, Any], **verifiers: Any) -> Scenario:
    """A scenario of a small pool of blocks, with drafts of a kind on the target's device."""
    drafters: dict[str, Any] = {"count": 0}
    if kind != "none":
        own = {"model": str(tiny / "kin")} if kind == "kin" else drafters_of(tiny, kind)
        drafters = {"place": "target", "depth": 4} | own
    workload = {"requests": 9, "streams": 4, "prompts": str(tiny / "long-prompts.jsonl")} | LENGTHS | load
    measured: dict[str, object] = {"warm_up_share": 0.0}
    return pair_scenario(tiny, drafters=drafters, verifiers=SMALL | verifiers, workload=workload, measure=measured)


def lengths(folder: Path, *texts: tuple[int, int]) -> dict[str, Any]:
    """A load with one shared beginning, and these tokens of prompts and answers."""
    rows = "".join(f"{prompt},{answer}\n" for prompt, answer in texts)
    (folder / "lengths.csv").write_text("num_prefill_tokens,num_decode_tokens\n" + rows)
    return {"shared": {"tokens": 21}, "lengths": str(folder / "lengths.csv"), "prompt_tokens": 192, "new_tokens": 96}


def served(scenario: Scenario, see: Callable[[Any], None] = lambda _executor: None) -> Run:
    """Serve a scenario in this process; check its texts and its log. `see`: is handed the executor before it runs."""

    def noted(fleet: Fleet, prompts: Any) -> Node:
        node = target_node(fleet, prompts)
        see(node.worker.executor)
        return node

    run, outputs = served_here(noted, scenario)
    assert outputs == plain_outputs(scenario)
    assert replay(run) == []
    return run


def checked(scenario: Scenario) -> Run:
    """Serve a scenario, with the drafts of a drafter that reads the whole text at once."""
    drafted: list[tuple[list[int], list[int]]] = []
    run = served(scenario, lambda executor: note_drafts(executor.drafter, drafted))
    check_drafts(scenario, drafted)
    return run


def scheduled(run: Run) -> list[list[Any]]:
    """What each step of the target computes: request, kind, tokens before, tokens."""
    rows = run.frame().query("event == 'start' and station.str.startswith('ver')")
    return [[*row] for row in rows[["step", "request", "kind", "base", "tokens"]].itertuples(index=False)]


@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(
    kind=st.sampled_from(["kin", "EAGLE", "prompt lookup", "suffix, then EAGLE", "none"]),
    load=st.sampled_from(list(LOADS.values())),
    limits=st.fixed_dictionaries(
        {
            "max_num_seqs": st.integers(1, 5), "max_num_batched_tokens": st.integers(6, 40),
            "kv_tokens": st.sampled_from([144, 160, 400]), "kv_block_size": st.sampled_from([1, 2, 4, 8]),
        }
    ),
    streams=st.fixed_dictionaries({"streams": st.integers(1, 7)})
    | st.just({"streams": 0, "arrivals": {"process": "poisson", "per_s": 300.0}}),
    chunk=st.sampled_from([512, 5]),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_no_hit_changes_a_text(
    tiny: Path, kind: str, load: dict[str, Any], limits: dict[str, Any], streams: dict[str, Any], chunk: int, seed: int
) -> None:
    """Random hits, also within a step; evictions; preemptions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(together, "CHUNK", chunk)
        served(sharing(tiny, kind, load | streams | {"seed": seed}, **limits))


@pytest.mark.parametrize(("kind", "chunk"), [("kin", 512), ("EAGLE", 8), slow("kin", 8), slow("EAGLE", 512)])
def test_a_row_finds_what_its_own_step_computes(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, chunk: int
) -> None:
    """In one pass, and in a pass for each prompt; also where the step names the finder first."""
    monkeypatch.setattr(together, "CHUNK", chunk)
    run: Callable[[Any, Step], tuple[Outcome, ...]] = ServingExecutor.run
    reverse = msgspec.structs.replace
    monkeypatch.setattr(
        ServingExecutor, "run", lambda self, step: run(self, reverse(step, members=step.members[::-1]))[::-1]
    )
    scenario = sharing(tiny, kind, lengths(tmp_path, (2, 18), (12, 18), (12, 18), (12, 18)), **WIDE)
    first = [row[3] for row in scheduled(checked(scenario)) if row[0] == 1]
    assert first == [0, *[20 if kind == "kin" else 16] * 3]  # with a head, one of five blocks is computed again


@pytest.mark.parametrize("load", ["both", slow("shared"), slow("talks")])
@pytest.mark.parametrize("kind", ["kin", "EAGLE", slow("EAGLE-3")])
def test_who_finds_a_block_has_the_drafters_part_too(tiny: Path, kind: str, load: str) -> None:
    assert measure(checked(sharing(tiny, kind, LOADS[load])))["prefix_hit_share"].value > 0.2


@pytest.mark.parametrize("kind", ["EAGLE", slow("kin"), slow("none")])
def test_a_preempted_row_goes_on_behind_its_own_blocks(tiny: Path, kind: str) -> None:
    scenario = sharing(tiny, kind, SHARED | {"new_tokens": 18}, kv_tokens=72)
    run = (served if kind == "none" else checked)(scenario)
    ends = run.frame().query("event == 'start' and kind == 'prefill'").groupby("request").base
    again = ends.last()[ends.size() > 1]
    assert (again > 21).sum() > 1  # beyond the shared beginning


@pytest.mark.parametrize("kind", ["kin", "EAGLE"])
def test_the_drafter_reads_prompts_of_requests_that_end_at_once(tiny: Path, tmp_path: Path, kind: str) -> None:
    load = lengths(tmp_path, (12, 1), (12, 18)) | {"shared": {"tokens": 21, "groups": 2}, "streams": 1, "requests": 8}
    checked(sharing(tiny, kind, load, **WIDE))


def test_hits_cost_no_prefill_and_memory_is_the_pools(tiny: Path) -> None:
    executors, fed = list[Any](), list[int]()

    def see(executor: Any) -> None:
        executors.append(executor)
        forward = executor.target.model.forward
        executor.target.model.forward = lambda cache, tokens, *more: (
            fed.append(len(tokens)) or forward(cache, tokens, *more)  # type: ignore[func-returns-value]
        )

    run = served(sharing(tiny, "EAGLE", SHARED | TALKS | {"requests": 20}, kv_tokens=400), see)
    rows = run.frame()
    starts = rows[(rows.event == "start") & ~rows.kind.str.startswith("draft")]
    in_prompts = starts.kind.isin(["prefill", "chunk"])
    assert hit_share(run) > 0.2
    found = rows[rows.event == "join"].tokens.sum() - starts[in_prompts].tokens.sum()  # without a preemption
    assert found == pytest.approx(hit_share(run) * rows[rows.event == "join"].tokens.sum())
    assert sum(fed) == starts.tokens.sum() + (starts.kind == "verify").sum()  # a draft comes after a token
    for cache in (executors[0].target.cache, executors[0].drafter.cache):
        assert isinstance(cache, BlockCache)
        assert cache.storage.numel() == (400 + 4) * cache.shape.numbers
        assert not cache.lengths


@pytest.mark.parametrize("load", LOADS)
def test_real_steps_are_those_of_the_simulation(tiny: Path, load: str) -> None:
    """One request at a time: no time decides."""
    scenario = sharing(tiny, "none", LOADS[load] | {"streams": 1}, kv_tokens=144)
    of_laws = pair_scenario(
        tiny, profile={"name": "stated"} | LAWS, drafters={"count": 0}, verifiers=SMALL | {"kv_tokens": 144},
        workload=LENGTHS | LOADS[load] | {"requests": 9, "streams": 1}, measure={"warm_up_share": 0.0},
    )  # fmt: skip
    check_equal_steps(served(scenario), simulate(of_laws))


def check_equal_steps(run: Run, simulated: Run) -> None:
    assert scheduled(run) == scheduled(simulated)
    assert hit_share(run) == hit_share(simulated) > 0.2


@pytest.mark.parametrize("load", ["shared", "both"])
def test_replayed_steps_are_those_of_the_simulation(tiny: Path, load: str) -> None:
    """Times are far apart; a turn begins its think time after the last answer."""
    talks = {"conversations": {"turns": 3, "think_s": 0.05}} if load == "both" else {}
    scenario = pair_scenario(
        tiny,
        profile={"name": "stated"} | LAWS,
        acceptance={"model": "geometric", "beta": 0.6},
        drafters={"kind": "replayed", "place": "target"},
        verifiers=SMALL | {"kind": "replayed", "kv_tokens": 144},
        workload=LENGTHS | SHARED | talks | {"requests": 12, "streams": 1 if talks else 4},
        measure={"warm_up_share": 0.0},
    )
    runs = serve(scenario).run, simulate(scenario)
    assert [replay(run) for run in runs] == [[], []]
    check_equal_steps(*runs)
    for run in runs:
        rows = run.frame()
        (requests,) = list(streams_of(resolve(scenario)).values()) if talks else [[]]
        for request in requests:
            joined_s = rows[(rows.event == "join") & (rows.request == request.number)].time_s.item()
            ended_s = rows[(rows.event == "done") & (rows.request < request.number)].time_s.max()
            assert not request.think_s or joined_s >= ended_s + request.think_s


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"verifiers.late": "decode"},
        {"drafters.overlap": {"policy": "ahead"}},
        {
            "workload.conversations": None, "verifiers.patience_s": 0.5, "drafters.lease_s": 5.0,
            "faults": [{"what": "kill", "node": "verifier.1", "at_s": 0.05, "for_s": 0.0}],
        },
    ],
)  # fmt: skip
def test_drafters_elsewhere_read_whole_prompts(tiny: Path, changes: dict[str, Any]) -> None:
    """A target that was killed begins with an empty cache."""
    scenario = change_scenario(sharing(tiny, "kin", SHARED | TALKS), {"drafters.place": "own"} | changes)
    found = serve(scenario)
    assert found.outputs == plain_outputs(scenario)
    assert replay(found.run) == []
    assert hit_share(found.run) > 0.2


@pytest.mark.parametrize("cached", [True, False])
def test_equal_sources_are_equal_tokens(tiny: Path, tmp_path: Path, cached: bool) -> None:
    """Of groups, with a cache or without one, and of a trace's ids."""
    fleet = resolve(sharing(tiny, "none", SHARED | {"requests": 20}, prefix_cache=cached, kv_block_size=16))
    beginnings = {tuple(prompt[:21]) for prompt in prompts_of(fleet)}
    assert len(beginnings) == 2
    assert len({tuple(prompt) for prompt in prompts_of(fleet)}) > 15
    ids = [[7, 1], [7, 2], [7, 1, 3], [1 << 59, 1]]
    rows = [{"timestamp": 0, "input_length": 8 * len(each) - 3, "output_length": 4, "hash_ids": each} for each in ids]
    (tmp_path / "trace.jsonl").write_text("\n".join(map(json.dumps, rows)))
    trace = {"arrivals": {"process": "trace", "file": str(tmp_path / "trace.jsonl"), "id_tokens": 8}, "requests": 4}
    scenario = pair_scenario(
        tiny, drafters={"count": 0}, verifiers=SMALL,
        workload=trace | {"prompts": str(tiny / "long-prompts.jsonl"), "prompt_tokens": 192, "new_tokens": 96},
    )  # fmt: skip
    first, second, third, last = prompts_of(resolve(scenario))
    assert [len(first), len(third)] == [13, 21]
    assert first[:8] == second[:8] == third[:8] != last[:8]
    assert first[8:] == third[8:13] != second[8:]
    served(scenario)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"verifiers.kv_tokens": 0}, "verifiers.kv_tokens"),
        ({"drafters.shape": {"kind": "tree", "branching": [2, 1]}}, "drafters.shape.kind = 'tree'"),
        ({"drafters.kind": "eagle", "drafters.place": "own"}, "drafters.kind = 'eagle'"),
        (
            {
                "workload.conversations": {}, "verifiers.patience_s": 1.0, "drafters.lease_s": 5.0,
                "drafters.place": "own", "faults": [{"what": "kill", "node": "verifier.1"}],
            },
            "workload.conversations",
        ),
    ],
)  # fmt: skip
def test_what_the_blocks_cannot_hold_is_refused(tiny: Path, changes: dict[str, Any], named: str) -> None:
    scenario = change_scenario(sharing(tiny, "kin", {}, kv_tokens=400), changes)
    with pytest.raises(InputError, match=named):
        check_can_run(resolve(scenario))
