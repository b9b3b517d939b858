"""Runs on OpenVINO: of a recorded one, the rows of each step are counted; where the engine is there, it runs."""

from typing import Any

import msgspec
import pytest

torch = pytest.importorskip("torch")

from specfleet.engine.decoding.models import load_model
from specfleet.engine.node.build import with_positions
from specfleet.engine.outside.engines import Driver, OutsideEngine
from specfleet.engine.outside.job import Served, job_of, settings_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.replay import replay
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from tests.helpers.outside import is_installed, recorded, run_of

TIE = 1e-3  # between logits


def scenario(drafters: dict[str, Any], **workload: Any) -> Scenario:
    """Return a scenario with more requests at once than rows, whose prompts are read in parts."""
    lengths = {"prompt_tokens": {"low": 32, "high": 96}, "new_tokens": {"low": 12, "high": 40}, "requests": 8}
    limits = {"max_num_seqs": 4, "max_num_batched_tokens": 64}
    tables = {"drafters": drafters, "verifiers": limits, "workload": lengths | {"streams": 6} | workload}
    return make_scenario({"name": "crowded"} | tables)


CROWDED = scenario({"count": 0})


def test_the_station_plans_as_many_rows_as_openvino() -> None:
    steps = recorded("openvino", "crowded").served.steps
    run = run_of("openvino", CROWDED)
    assert replay(run) == []
    done = run.frame().query("event == 'done'")
    assert done.groupby("step").size().tolist() == [step.counted for step in steps]
    assert (done.kind != "chunk").sum() == sum(row[2] for step in steps for row in step.rows.values())
    assert max(step.counted for step in steps) == 4


@pytest.mark.parametrize("change", ["row", "tokens"])
def test_other_rows_than_counted_are_refused(change: str) -> None:
    steps = recorded("openvino", "crowded").served.steps
    number = next(number for number, step in enumerate(steps) if len(step.rows) == 3)
    step = steps[number]
    changed = {"counted": step.counted + 1} if change == "row" else {"rows": dict(list(step.rows.items())[1:])}
    steps[number] = msgspec.structs.replace(step, **changed)
    with pytest.raises(InputError, match=f"step {number + 1} of the engine differs from the station's plan: it has"):
        run_of("openvino", CROWDED, steps=steps)


if_installed = pytest.mark.skipif(not is_installed("openvino"), reason="OpenVINO is not installed")


@pytest.mark.slow
@if_installed
def test_openvino_runs_as_the_station_plans() -> None:
    arriving = scenario({"count": 0}, streams=0, arrivals={"process": "poisson", "per_s": 100.0}, requests=32)
    with OutsideEngine("openvino") as outside:
        runs = [outside.run(one) for one in (CROWDED, arriving)]
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
    """One stream with a small model: with several, this engine's texts begin with other tokens (docs/outside.md)."""
    streams = 1 if drafters.get("kind", "model") == "model" and drafters.get("place") else 6
    asked = scenario(drafters, streams=streams)
    fleet = with_positions(resolve(asked))
    job, driver = job_of(fleet), Driver("openvino", settings_of(fleet, asked, "openvino"))
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
