"""A fleet is calibrated on its own kind of drafts, and its profile predicts its own runs."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import msgspec

from specfleet.calibration.measurements import Effort
from specfleet.calibration.pair import measure_steps
from specfleet.calibration.run import bench_of, calibrate, pair_of, stages_of
from specfleet.engine.launch.serve import serve
from specfleet.fleet.acceptance.models import Recorded
from specfleet.fleet.errors import InputError, UnsteadyHostError
from specfleet.fleet.records.replay import replay
from specfleet.fleet.times.profile import STEPS
from specfleet.sim.run import simulate
from tests.helpers.pairs import drafters_of, pair_scenario, write_pair
from tests.helpers.stars import star

TINY = Effort(
    depths=(1, 3), contexts=(16, 24), repeats=2, prompts=6, longest_gap_s=0.003, gap_rounds=30, warm_tokens=(0,),
    warm_rounds=6, loads=(1,), saturated_rounds=40, loaded_rounds=30, payloads_bytes=(64, 4096), pings=5,
    concurrent_targets=2, sharing_requests=6,
)  # fmt: skip


def loads_here(*_arguments: object) -> None:
    raise AssertionError("this process holds no model")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "temperature"), [("dynamic tree", 0.0), ("EAGLE tree", 0.0), ("tree", 1.0)])
def test_a_fleet_is_calibrated_on_its_own_drafts(
    tmp_path: Path, kind: str, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampling: dict[str, object] = {"temperature": temperature}
    scenario = pair_scenario(write_pair(tmp_path), drafters=drafters_of(tmp_path, kind), workload=sampling)
    stages: list[str] = []
    with monkeypatch.context() as patched:
        for module in ("specfleet.engine.node.build", "specfleet.engine.replayed.continuations"):
            patched.setattr(f"{module}.load_model", loads_here)
        try:
            profile = calibrate(scenario, tmp_path, TINY, stages.append)
        except UnsteadyHostError as error:  # beside other tests; no time is asserted below
            profile = error.result
    assert [stage for stage in stages if " again: " not in stage] == list(
        stages_of(TINY)
    )  # a busy host is measured again
    models = scenario.drafters.model, scenario.verifiers.model
    named = [profile.provenance[key] for key in ("drafter_model", "target_model", "prompts_file")]
    assert named == [*models, scenario.workload.prompts]
    nodes = scenario.drafters.shape.nodes(scenario.drafters.depth)
    assert max(row["tokens"] for row in profile.measured["verify"]) == nodes + 1
    assert profile.hidden == (32 if kind == "EAGLE tree" else 0)
    assert profile.measured.keys() == {*STEPS, "acceptance", "delayed_share", "passes_differ", "alone"}
    assert isinstance(profile.acceptance, Recorded)
    for stations in (profile.overhead.own, profile.overhead.time_sliced):
        assert stations is not None
        for overhead in (stations.drafter, stations.target):
            assert all(0 < delay.mean_s < 1 for delay in (overhead.queued, overhead.woken, overhead.after))
    # The run has the calibration's prompts, so what is accepted is known, not estimated.
    rounds = sum(map(len, profile.acceptance.sessions))
    simulated = simulate(msgspec.structs.replace(scenario, profile=profile))
    for run in (serve(scenario).run, simulated):
        assert len(run.frame().query("event == 'done' and kind == 'verify'")) == rounds
        assert replay(run) == []


@pytest.mark.parametrize(("kind", "reason"), [
    ("lookup", "drafts in no time.*calibrate it with drafters.place = 'target'"),
    ("replayed", "has no model to measure; give the kind .* 'model' or 'eagle'"),
])  # fmt: skip
def test_drafters_without_a_model_are_refused_before_any_stage(kind: str, reason: str) -> None:
    scenario = star(drafters={"kind": kind}, verifiers={"kind": "replayed"})
    with pytest.raises(InputError, match=f"drafters.kind = '{kind}' {reason}"):
        pair_of(scenario, 3)


def test_prefills_are_measured_up_to_the_prompts_of_the_scenario(tmp_path: Path) -> None:
    workload: dict[str, object] = {"prompts": str(tmp_path / "long-prompts.jsonl"), "prompt_tokens": 40}
    pair = pair_of(pair_scenario(write_pair(tmp_path), workload=workload), 3)
    for contexts, longer in (((8, 12), (20, 40)), ((8, 24), (40,)), ((8, 40), ())):
        bench = bench_of(pair, tmp_path, msgspec.structs.replace(TINY, contexts=contexts))
        points = measure_steps(bench.fleet, bench.effort).points
        for name in ("draft_prefill", "verify_prefill"):
            assert tuple(point.tokens for point in points[name]) == contexts + longer
        assert {point.context for point in points["verify"]} == set(contexts)
