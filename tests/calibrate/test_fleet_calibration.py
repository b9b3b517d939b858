"""A fleet is calibrated on its own kind of drafts, and its profile predicts its own runs."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import msgspec

from specfleet.calibration.measurements import Effort
from specfleet.calibration.run import bench_of, calibrate, pair_of, plan_of
from specfleet.engine.launch.serve import serve
from specfleet.fleet.acceptance.models import Recorded
from specfleet.fleet.errors import InputError, UnsteadyHostError
from specfleet.fleet.records.replay import replay
from specfleet.sim.run import simulate
from tests.helpers.pairs import drafters_of, pair_scenario, write_pair
from tests.helpers.stars import star

TINY = Effort(
    requests=4, prompts=6, longest_gap_s=0.003, gap_rounds=30, warm_tokens=(0,),
    warm_rounds=6, loads=(1,), saturated_rounds=40, loaded_rounds=30, payloads_bytes=(64, 4096), pings=5,
    concurrent_targets=2, sharing_requests=6,
)  # fmt: skip


def loads_here(*_arguments: object) -> None:
    raise AssertionError("this process holds no model")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "temperature"), [("dynamic tree", 0.0), ("EAGLE tree", 0.0), ("tree", 1.0), ("block", 0.0)]
)
def test_a_fleet_is_calibrated_on_its_own_drafts(
    tmp_path: Path, kind: str, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampling: dict[str, object] = {"temperature": temperature}
    scenario = pair_scenario(write_pair(tmp_path), drafters=drafters_of(tmp_path, kind), workload=sampling)
    stages: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr("specfleet.engine.node.build.load_model", loads_here)
        try:
            bench = bench_of(scenario, tmp_path, TINY, stages.append, keep=True)
            profile = calibrate(scenario, bench, tmp_path / "signals.parquet")
        except UnsteadyHostError as error:  # beside other tests; no time is asserted below
            profile = error.result
    expected = [stage.name for stage in plan_of(scenario, TINY)]
    assert [stage for stage in stages if " again: " not in stage] == expected  # a busy host is measured again
    models = scenario.drafters.model, scenario.verifiers.model
    named = [profile.provenance[key] for key in ("drafter_model", "target_model", "prompts_file")]
    assert named == [*models, scenario.workload.prompts]
    assert (profile.one_pass is True) == (kind == "block")
    assert profile.hidden == (32 if kind == "EAGLE tree" else 0)
    assert profile.measured.keys() == {"steps", "delayed_share", "passes_differ", "alone"}
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
