"""A node captures the graphs of its run before time zero; a recorder replaces graphs, see `test_graphs.py`."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from specfleet.engine.decoding import graphs
from specfleet.engine.decoding.models import CausalLM
from specfleet.engine.net.clock import now_s
from specfleet.engine.node import build
from specfleet.engine.node.build import with_positions
from specfleet.engine.node.node import Node, Stations
from specfleet.engine.node.prompts import prompts_of
from specfleet.engine.node.real import drafter_node, verifier_node
from specfleet.engine.replayed.continuations import continuations_of
from specfleet.engine.replayed.targets import ReplayedFleet
from specfleet.fleet.scenario.resolve import resolve
from tests.helpers.marks import slow
from tests.helpers.pairs import DRAFTERS, drafters_of, pair_scenario
from tests.helpers.plain import plain_outputs
from tests.helpers.recorder import Recorder, run_again, taped
from tests.helpers.threads import Threads

TEXTS = {"prompt_tokens": 40, "new_tokens": 40}  # prompts that are no chains to capture
SHAPES = [{}, {"shape": {"kind": "tree", "branching": [2, 1]}}, slow({"shape": {"kind": "dynamic", "width": 3}})]
OPEN = {"arrivals": {"process": "poisson", "per_s": 40.0}}
WARMED = {"warm_up": {"policy": "after-idle", "idle_gap_s": 0.0, "tokens": 2}}


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Of the models that are loaded from now on, as on a GPU."""
    shared, load = Recorder(taped), build.load_model

    def load_with_graphs(*arguments: Any, **more: Any) -> CausalLM:
        model = load(*arguments, **more)
        model.graphs = graphs.Graphs(shared)
        return model

    monkeypatch.setattr(build, "load_model", load_with_graphs)
    monkeypatch.setattr(graphs, "NARROWEST", 64)  # two widths
    return shared


def texts(tiny: Path, requests: int) -> dict[str, Any]:
    return {"workload": TEXTS | {"requests": requests, "prompts": str(tiny / "long-prompts.jsonl")}}


def serve(drafter: Node, targets: Sequence[Stations]) -> None:
    with Threads() as threads:
        for node in (drafter, *targets):
            node.open()
        serving = threads.start(lambda: drafter.serve(now_s()))
        for target in targets:
            target.wait_for_welcomes(30.0)
        for run in [threads.start(partial(target.serve, now_s())) for target in targets]:
            run.result()
        drafter.stop()
        serving.result()


@pytest.mark.parametrize("drafters", [*SHAPES, WARMED], ids=str)
@pytest.mark.parametrize("count", [1, slow(16)])
def test_a_drafter_captures_nothing_in_a_run(
    tiny: Path, tmp_path: Path, recorder: Recorder, count: int, drafters: dict[str, Any]
) -> None:
    recorder.repeating = run_again  # quicker
    verifiers = {"kind": "replayed", "count": count, "verify": {"base_s": 0.001}}
    tables = texts(tiny, 2 * count) | {"verifiers": verifiers, "drafters": drafters}
    fleet = with_positions(resolve(pair_scenario(tiny, **tables)))
    continuations = continuations_of(fleet, tmp_path)
    recorder.captured = 0
    drafter = drafter_node(fleet)
    before = recorder.captured, recorder.replayed
    targets = ReplayedFleet(fleet, {0: drafter.address}, continuations=continuations)
    serve(drafter, [targets])
    assert recorder.captured == before[0] >= 2 * count
    assert recorder.replayed > before[1] + 20 * count


@pytest.mark.parametrize(
    ("kind", "load"),
    [
        ("model", {"streams": 1}), ("tree", {"streams": 1}), slow("tree", {"streams": 3}), ("plain", {"streams": 3}),
        slow("EAGLE", {"streams": 3}), ("model", OPEN), ("EAGLE-3 tree", OPEN), slow("dynamic tree", OPEN),
        slow("EAGLE", OPEN), slow("block", OPEN), slow("prompt lookup", OPEN), slow("lookup, then block", OPEN),
    ],
    ids=str,
)  # fmt: skip
def test_a_target_captures_nothing_in_a_run(
    tiny: Path, recorder: Recorder, kind: str, load: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither with requests that arrive and prompts in chunks, nor with heads, nor of fewer rows."""
    drafters = {"plain": {"count": 0}}.get(kind, {"place": "target"})
    tables = texts(tiny, 8 if "arrivals" in load else load["streams"]) | {
        "verifiers": {"count": 1, "max_num_seqs": 3, "max_num_batched_tokens": 32}
    }
    tables["drafters"] = drafters | (drafters_of(tiny, kind) if kind in DRAFTERS else {})
    tables["workload"] |= load
    scenario = pair_scenario(tiny, **tables)
    fleet = with_positions(resolve(scenario))
    node = verifier_node(fleet, 0, prompts_of(fleet), {})
    before = recorder.captured, recorder.replayed
    assert sum(int(number) for number in re.findall(r": (\d+) CUDA graphs in", capsys.readouterr().err)) == before[0]
    node.serve(now_s())
    assert node.outputs == plain_outputs(scenario)
    assert recorder.captured == before[0]
    assert recorder.replayed > before[1] + 10


@pytest.mark.parametrize(
    ("kind", "targets", "rows", "load"),
    [
        ("EAGLE-3 tree", 1, 3, OPEN), slow("EAGLE", 2, 1, {}), slow("block", 1, 3, {"streams": 3}),
        ("batch", 4, 1, {}),
    ],
)  # fmt: skip
def test_a_fleet_captures_nothing_in_a_run(
    tiny: Path, recorder: Recorder, kind: str, targets: int, rows: int, load: dict[str, Any]
) -> None:
    """Any rows of a target, or of a drafter, may share a pass."""
    drafters = drafters_of(tiny, kind) if kind in DRAFTERS else {"group": kind}
    verifiers = {"count": targets, "max_num_seqs": rows}
    scenario = pair_scenario(tiny, drafters=drafters, verifiers=verifiers, workload={"requests": 8} | load)
    fleet = with_positions(resolve(scenario))
    drafter, prompts = drafter_node(fleet), prompts_of(fleet)
    nodes = [verifier_node(fleet, number, prompts, {0: drafter.address}) for number in range(targets)]
    before = recorder.captured, recorder.replayed
    serve(drafter, nodes)
    assert {request: said for node in nodes for request, said in node.outputs.items()} == plain_outputs(scenario)
    assert recorder.captured == before[0]
    assert recorder.replayed > before[1] + 100
