"""Engines of our studies alone: recorded counts, programs in their place; where an engine is there, it runs."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

torch = pytest.importorskip("torch")

from bench import others
from bench.others import CountedServed, OtherEngine, counts_differ
from specfleet.engine.decoding.models import load_model
from specfleet.engine.node.build import with_positions
from specfleet.engine.outside.engines import FOLDER
from specfleet.engine.outside.job import Served, job_of, settings_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import change_scenario, make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from tests.helpers.outside import is_installed, put_engine, recorded, run_of

TIE = 1e-3  # between logits
RECORD = Path(__file__).parent / "data" / "outside_openvino.json"


def scenario(drafters: dict[str, Any], **workload: Any) -> Scenario:
    """Return a scenario with more requests at once than rows, whose prompts are read in parts."""
    lengths = {"prompt_tokens": {"low": 32, "high": 96}, "new_tokens": {"low": 12, "high": 40}, "requests": 8}
    limits = {"max_num_seqs": 4, "max_num_batched_tokens": 64}
    tables = {"drafters": drafters, "verifiers": limits, "workload": lengths | {"streams": 6} | workload}
    return make_scenario({"name": "crowded"} | tables)


CROWDED = scenario({"count": 0})
DRAFTING = scenario({"place": "target", "depth": 4})


def openvino_run(**changed: Any) -> Run:
    return run_of(CROWDED, recorded("crowded", RECORD, CountedServed), counts_differ, **changed)


def test_the_station_plans_as_many_rows_as_openvino() -> None:
    steps, run = recorded("crowded", RECORD, CountedServed).served.steps, openvino_run()
    assert replay(run) == []
    done = run.frame().query("event == 'done'")
    assert done.groupby("step").size().tolist() == [step.counted for step in steps]
    assert (done.kind != "chunk").sum() == sum(row[2] for step in steps for row in step.rows.values())
    assert max(step.counted for step in steps) == 4


@pytest.mark.parametrize("change", ["row", "tokens"])
def test_other_rows_than_counted_are_refused(change: str) -> None:
    steps = recorded("crowded", RECORD, CountedServed).served.steps
    number = next(number for number, step in enumerate(steps) if len(step.rows) == 3)
    step = steps[number]
    changed = {"counted": step.counted + 1} if change == "row" else {"rows": dict(list(step.rows.items())[1:])}
    steps[number] = msgspec.structs.replace(step, **changed)
    with pytest.raises(InputError, match=f"step {number + 1} of the engine differs from the station's plan: it has"):
        openvino_run(steps=steps)


STUB = """
import json, sys
sys.stdin.readline()
content = json.load(open({path!r}))["crowded"]
print(json.dumps(content["facts"] | {facts!r}), flush=True)
for line in sys.stdin:
    print(json.dumps(content["served"]), flush=True)
"""


@pytest.mark.parametrize("answers", [False, True])
def test_openvinos_steps_are_kept_where_they_are_known(
    answers: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_engine(tmp_path, "openvino", STUB.format(path=str(RECORD), facts={"answers": answers}))
    monkeypatch.setenv(FOLDER, str(tmp_path))
    with OtherEngine("openvino") as outside:
        run = outside.run(CROWDED)
    assert run.header.steps == (not answers)
    assert str(run.header.engine).startswith("openvino ")
    assert (run.digest() == openvino_run().digest()) == (not answers)


def test_llama_cpp_is_asked_at_its_servers_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_on_server(_scenario: Scenario, url: str, _report: Any) -> Run:
        assert url == "http://127.0.0.1:7"
        return openvino_run()

    put_engine(tmp_path, "llama-cpp", STUB.format(path=str(RECORD), facts={"url": "http://127.0.0.1:7"}))
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setattr(others, "run_on_server", run_on_server)
    with OtherEngine("llama-cpp") as outside:
        assert str(outside.run(DRAFTING).header.engine).startswith("llama-cpp ")


@pytest.mark.parametrize(
    "changes", [{"precision": "bfloat16"}, {"drafters.kind": "lookup"}], ids=["another precision", "prompt lookup"]
)
def test_what_llama_cpp_does_not_have_is_refused(changes: dict[str, Any]) -> None:
    with OtherEngine("llama-cpp") as outside, pytest.raises(InputError, match="has float32 and drafts of model alone"):
        outside.run(change_scenario(DRAFTING, changes))


if_installed = pytest.mark.skipif(not is_installed("openvino"), reason="OpenVINO is not installed")


@pytest.mark.slow
@if_installed
def test_openvino_runs_as_the_station_plans() -> None:
    arriving = scenario({"count": 0}, streams=0, arrivals={"process": "poisson", "per_s": 100.0}, requests=32)
    with OtherEngine("openvino") as outside:
        runs = [outside.run(crowd) for crowd in (CROWDED, arriving)]
    assert [run.header.steps for run in runs] == [True, True]
    assert [replay(run) for run in runs] == [[], []]


@pytest.mark.slow
@if_installed
@pytest.mark.parametrize(
    "drafters",
    [{"count": 0}, {"place": "target", "depth": 4}, {"place": "target", "kind": "lookup", "depth": 4}],
    ids=["none", "model", "lookup"],
)
def test_greedy_texts_are_those_of_the_target(drafters: dict[str, Any]) -> None:
    """One stream with a small model: with several, this engine's texts begin with other tokens (docs/bench.md)."""
    streams = 1 if drafters.get("kind", "model") == "model" and drafters.get("place") else 6
    asked = scenario(drafters, streams=streams)
    fleet = with_positions(resolve(asked))
    job, driver = job_of(fleet), OtherEngine("openvino").started(settings_of(fleet, asked))
    served = driver.ask(job, Served)
    driver.close()
    target = load_model("demo", "target", "float32").model
    for request in [request for stream in job.streams for request in stream]:
        text = served.texts[request.number]
        assert len(text) == request.new_tokens
        with torch.no_grad():
            logits = target(torch.tensor([request.prompt + text])).logits[0, len(request.prompt) - 1 : -1]
        chosen = logits.gather(1, torch.tensor(text)[:, None])[:, 0]
        assert (logits.max(1).values - chosen).max() < TIE
