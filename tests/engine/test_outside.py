"""Runs on engines of others: recorded steps of vLLM, and a stub in the place of its process."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")

from specfleet.engine.outside import engines
from specfleet.engine.outside.answers import answers_of
from specfleet.engine.outside.answers import run_of as answers_run
from specfleet.engine.outside.engines import OutsideEngine, environment_of
from specfleet.engine.outside.job import SeenStep, Served, job_of, settings_of
from specfleet.engine.outside.steps import _arrivals
from specfleet.fleet.errors import InputError, NodeDiedError
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import change_scenario, make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import streams_of
from tests.helpers.outside import RECORD, is_installed, put_engine, recorded, run_of

LIMITS = {"max_num_seqs": 4, "max_num_batched_tokens": 64}
LENGTHS = {"prompt_tokens": {"low": 32, "high": 96}, "new_tokens": {"low": 12, "high": 40}, "requests": 8}


def scenario(name: str, drafters: dict[str, Any], workload: dict[str, Any], **limits: int) -> Scenario:
    tables = {"drafters": drafters, "verifiers": LIMITS | limits, "workload": LENGTHS | workload}
    return make_scenario({"name": name} | tables)


SCENARIOS = {  # as recorded; the second one's cache is too small for its requests
    each.name: each
    for each in (
        scenario("plain", {"count": 0}, {"streams": 4}),
        scenario("preempted", {"place": "target", "depth": 3},
                 {"streams": 4, "prompt_tokens": 30, "new_tokens": 70}, kv_tokens=256),
        scenario("shared", {"place": "target", "depth": 3},
                 {"streams": 4, "requests": 24, "prompt_tokens": {"low": 16, "high": 64},
                  "new_tokens": {"low": 8, "high": 24}, "shared": {"tokens": 64, "groups": 3},
                  "conversations": {"turns": {"low": 1, "high": 2}}},
                 kv_tokens=320, kv_block_size=32, prefix_cache=True),
        scenario("lookup", {"place": "target", "kind": "lookup", "depth": 4},
                 {"arrivals": {"process": "poisson", "per_s": 20.0}}),
    )
}  # fmt: skip


def vllm_run(name: str, **changed: Any) -> Run:
    return run_of(SCENARIOS[name], recorded(name), **changed)


@pytest.mark.parametrize("name", ["plain", "preempted", "lookup"])
def test_the_station_plans_the_steps_of_vllm(name: str) -> None:
    run, served = vllm_run(name), recorded(name).served
    assert replay(run) == []
    rows = run.frame()
    done = rows.query("event == 'done' and kind not in ('draft', 'draft_prefill')")
    assert done.step.nunique() == len(served.steps)
    yielded = sum(row[2] for step in served.steps for row in step.rows.values())
    committed = sum(done.kind != "chunk") + done[done.kind == "verify"].accepted.sum()
    assert committed == yielded
    lost = done[(done.kind == "chunk") & (done.base == 0) | (done.kind == "prefill") & (done.base == 0)]
    preempted = sum(len(step.preempted) for step in served.steps)
    assert len(lost) - LENGTHS["requests"] == preempted
    assert bool(preempted) == (name == "preempted")


def test_metrics_are_those_of_the_recorded_times() -> None:
    run, served = vllm_run("plain"), recorded("plain").served
    first = {}
    for step in served.steps:
        for request, (_, _, yielded) in step.rows.items():
            if yielded:
                first.setdefault(request, step.end_s - served.joined_s[request])
    measured = measure(run)
    rows = run.frame()
    known = rows[(rows.event == "done") & (rows.kind == "prefill")].set_index("request").time_s
    for request, ttft_s in first.items():
        assert known[request] - served.joined_s[request] == pytest.approx(ttft_s)
    assert 0 < measured["ttft_s"].value <= max(first.values())


def test_a_request_that_came_during_a_step_arrived_when_it_was_due() -> None:
    """The engine notices it at the step's end; the wait for that end is part of its TTFT."""
    run, served = vllm_run("lookup"), recorded("lookup").served
    due_s = {each.number: each.not_before_s for own in streams_of(run.header.fleet).values() for each in own}
    joins = run.frame().query("event == 'join'").set_index("request").time_s
    waited = 0
    for request, noticed_s in served.joined_s.items():
        began_s = max([step.start_s for step in served.steps if step.start_s < noticed_s], default=0.0)
        assert joins[request] == pytest.approx(min(max(due_s[request], began_s), noticed_s))
        waited += noticed_s - joins[request] > 0.001
    assert waited > 2


def test_arrivals_keep_the_order_in_which_the_engine_got_them() -> None:
    """A turn that was due between two others' arrivals is noticed with them, after both."""
    changes = {"workload.streams": 0, "workload.arrivals": {"process": "poisson", "per_s": 20.0}}
    fleet = resolve(change_scenario(SCENARIOS["shared"], changes))
    requests = [each for own in streams_of(fleet).values() for each in own]
    opens_s = {each.number: each.not_before_s or 0.5 for each in requests}  # turns are due at 0.5
    late_s = {number: 1.0 + place * 1e-4 for place, number in enumerate(sorted(opens_s, key=lambda n: opens_s[n]))}
    served = Served(late_s, [SeenStep({}, 0.0, 1.0)], {})
    times_s, numbers = zip(*((time_s, request.number) for time_s, _, request in _arrivals(fleet, served)), strict=True)
    assert list(numbers) == list(late_s)
    assert list(times_s) == sorted(times_s)
    assert all(time_s <= late_s[number] for time_s, number in zip(times_s, numbers, strict=True))


@pytest.mark.parametrize("place", [0, 1])
def test_another_step_than_planned_is_refused(place: int) -> None:
    """One token more in a row, or one draft less, is another schedule."""
    served = recorded("preempted").served
    number = next(number for number, step in enumerate(served.steps) if any(row[1] for row in step.rows.values()))
    step = served.steps[number]
    request, row = next((request, row) for request, row in step.rows.items() if row[1])
    changed = (row[0] + 1, row[1], row[2]) if place == 0 else (row[0], row[1] - 1, row[2])
    steps = [*served.steps]
    steps[number] = msgspec.structs.replace(step, rows=step.rows | {request: changed})
    with pytest.raises(InputError, match=f"step {number + 1} of the engine differs .* request {request} has"):
        vllm_run("preempted", steps=steps)


def test_the_station_caches_what_vllm_caches() -> None:
    """Steps, hits, free blocks and evictions are equal, through preemptions; one that is another is refused."""
    run, steps = vllm_run("shared"), recorded("shared").served.steps
    assert replay(run) == []
    assert 0.3 < measure(run)["prefix_hit_share"].value < 0.4
    assert steps[-1].blocks[2] > 40
    assert sum(len(step.preempted) for step in steps) == 5
    number = next(number for number, step in enumerate(steps) if max(step.computed.values()) and number > 20)
    seen = steps[number]
    for place in range(3):
        blocks = tuple(count + (place == other) for other, count in enumerate(seen.blocks))
        with pytest.raises(InputError, match=rf"step {number + 1} .* \(free, held, evicted\) blocks are"):
            vllm_run("shared", steps=[*steps[:number], msgspec.structs.replace(seen, blocks=blocks)])
    longer = {request: tokens + 32 for request, tokens in steps[0].computed.items()}
    with pytest.raises(InputError, match="begins after 32 tokens, planned 0"):
        vllm_run("shared", steps=[msgspec.structs.replace(steps[0], computed=longer)])


def test_later_turns_are_asked_by_what_follows_the_text() -> None:
    fleet = resolve(SCENARIOS["shared"])
    requests = {each.number: each for own in streams_of(fleet).values() for each in own}
    asked = [each for stream in job_of(fleet).streams for each in stream]
    first = {each.number: each for each in asked if not each.follows}
    assert len(first) < len(asked) == len(requests)
    assert all(len(each.prompt) == requests[number].prompt_tokens for number, each in first.items())
    assert all(16 <= len(each.prompt) <= 64 for each in asked if each.follows)


def test_answers_alone_give_the_same_metrics() -> None:
    """What a run keeps whose steps are not the station's."""
    stepped, own = vllm_run("preempted"), recorded("preempted")
    answered = answers_run(SCENARIOS["preempted"], stepped.header.fleet, answers_of(own.served), "vllm")
    ours, theirs = measure(answered), measure(stepped)
    for name, error in (("throughput", 0.05), ("tpot_s", 0.05), ("ttft_s", 1e-9)):
        assert ours[name].value == pytest.approx(theirs[name].value, rel=error)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"drafters.place": "own"}, "drafters.place"),
        ({"drafters.kind": "eagle"}, "drafters.kind"),
        ({"verifiers.count": 2}, "verifiers.count"),
        ({"verifiers.prefill_first": True}, "verifiers.prefill_first"),
        (
            {"drafters.depth": 5, "verifiers.allocate": {"policy": "by-batch", "up_to": [4], "depths": [3, 0]}},
            "verifiers.allocate",
        ),
    ],
)
def test_unknown_keys_are_refused_by_name(changes: dict[str, Any], key: str) -> None:
    changed = change_scenario(SCENARIOS["preempted"], changes)
    with pytest.raises(InputError, match=key):
        settings_of(resolve(changed), changed)


def test_a_block_is_drafted_in_parallel_there() -> None:
    changed = change_scenario(SCENARIOS["preempted"], {"drafters.kind": "block", "drafters.model": "demo"})
    speculative = settings_of(resolve(changed), changed).speculative
    assert speculative.pop("model").endswith("demo_pair/block")
    wanted = {"method": "draft_model", "num_speculative_tokens": changed.drafters.depth, "parallel_drafting": True}
    assert speculative == wanted


STUB = """
import json, sys
print("words of the engine", file=sys.stderr)
settings = json.loads(sys.stdin.readline())
if settings["max_num_seqs"] == 3:
    sys.exit("no memory is left")
content = json.load(open({path!r}))["plain"]
print(json.dumps(content["facts"]), flush=True)
for line in sys.stdin:
    print(json.dumps(content["served"]), flush=True)
"""


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program in the place of vLLM's environment."""
    put_engine(tmp_path, "vllm", STUB.format(path=str(RECORD)))
    monkeypatch.setenv(engines.FOLDER, str(tmp_path))


@pytest.mark.usefixtures("stub")
def test_an_engine_is_started_once_and_ended() -> None:
    said: list[str] = []
    with OutsideEngine("vllm", said.append) as outside:
        first, second = (outside.run(SCENARIOS["plain"]) for _ in range(2))
        (driver,) = outside.drivers.values()
    assert driver.process.returncode == 0
    assert said == ["starting vllm"]
    assert first.digest() == second.digest() == vllm_run("plain").digest()
    assert first.header.engine == "vllm 0.32.0"


@pytest.mark.usefixtures("stub")
def test_only_the_last_engines_are_kept() -> None:
    said: list[str] = []
    seats = (8, 9, 10, 11, 12, 12, 11, 8)
    with OutsideEngine("vllm", said.append) as outside:
        for max_num_seqs in seats:
            outside.run(change_scenario(SCENARIOS["plain"], {"verifiers.max_num_seqs": max_num_seqs}))
            assert len(outside.drivers) <= engines.MAX_DRIVERS
    assert said.count("starting vllm") == 6  # the five, and the first once more


@pytest.mark.usefixtures("stub")
def test_a_dead_engine_is_an_error_with_its_last_lines() -> None:
    short = change_scenario(SCENARIOS["plain"], {"verifiers.max_num_seqs": 3})
    with OutsideEngine("vllm") as outside, pytest.raises(NodeDiedError, match=r"ended with 1: .*no memory is left"):
        outside.run(short)


def test_a_missing_engine_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(engines.FOLDER, str(tmp_path))
    with pytest.raises(InputError, match=r"make outside ENGINE=vllm"):
        environment_of("vllm")


@pytest.mark.slow
@pytest.mark.skipif(not is_installed("vllm"), reason="vLLM is not installed")
@pytest.mark.parametrize("name", SCENARIOS)
def test_vllm_runs_as_the_station_plans(name: str) -> None:
    with OutsideEngine("vllm") as outside:
        run = outside.run(SCENARIOS[name])
    assert replay(run) == []
