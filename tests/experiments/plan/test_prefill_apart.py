"""Plans that divide a budget among prefill servers and decode servers."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from specfleet.experiments.plan.answer import Plan
from specfleet.experiments.plan.ask import plan
from specfleet.experiments.plan.candidates import Asked, make_candidates
from specfleet.experiments.plan.commands import server_commands
from specfleet.experiments.plan.deployments import Deployment, Load
from specfleet.experiments.plan.serving import FULL, Rounds, behind_prefill, curve_of_target, load_curve
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.profile import devices_in, estimate
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.scenario.reading import make_scenario, read_scenario, scenario_of
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.writing import scenario_lines
from specfleet.sim.run import simulate

LINK = {"verifiers.prefill.link.bandwidth_bytes_per_s": 50e9}
TEXTS = {"workload.prompt_tokens": 900, "workload.new_tokens": 24}


@pytest.fixture(scope="module")
def answer() -> Plan:
    return plan(
        None, {**TEXTS, **LINK}, devices="3xh100", target="llama-3.1-8b:bf16", draft="eagle3-llama-3.1-8b",
        acceptance=0.7, in_flight=12, vary=["drafters.depth=2,3"], jobs=1,
    )  # fmt: skip


def served(prefills: int, targets: int, **workload: Any) -> Scenario:
    profile = estimate("llama-3.1-8b@h100", "eagle3-llama-3.1-8b@h100")
    return make_scenario({
        "profile": profile, "acceptance": {"model": "geometric", "beta": 0.7},
        "drafters": {"place": "target", "kind": "eagle", "depth": 3},
        "verifiers": {"count": targets, "max_num_batched_tokens": 8192, "prefill": {"count": prefills}},
        "workload": {"prompt_tokens": 1000, "new_tokens": {"low": 90, "high": 110}} | workload,
    })  # fmt: skip


def test_methods_are_compared_with_and_without_prefill_servers(answer: Plan) -> None:
    methods = {row.method: row for row in answer.best()}
    assert {name.removesuffix(", prefill apart") for name in methods} == {
        name for name in methods if "apart" not in name
    }
    assert len(methods) == 4
    for row in answer.rows:
        assert (row.prefills > 0) == row.method.endswith(", prefill apart")
        devices = devices_in(row.target)[1] * (row.prefills + row.targets)
        assert row.devices == {"h100": devices}
        assert devices <= 3
        assert row.cost_per_hour == pytest.approx(devices * answer.chosen.cost_per_hour / answer.chosen.devices["h100"])
    assert any(row.fleet.startswith("1 prefill + 2 x llama-3.1-8b@1xh100:bf16") for row in answer.rows)


@pytest.mark.parametrize("draft", ["no speculation", "eagle3-llama-3.1-8b on the target's device"])
def test_a_split_reads_back_and_starts_both_roles(draft: str, tmp_path: Path) -> None:
    changes = {**TEXTS, **LINK, "drafters.place": "target", "verifiers.prefill.draft_cache": "sent"}
    asked = Asked(
        scenario_of("star", changes), ("llama-3.1-8b@h100",), ("eagle3-llama-3.1-8b",), ("0.7",), devices={"h100": 3}
    )
    candidates = {candidate.name: candidate for candidate in make_candidates(asked)[0]}
    assert set(candidates) >= {draft, f"{draft}, prefill apart"}
    depth = 0 if draft == "no speculation" else 3
    split = Deployment(candidates[f"{draft}, prefill apart"], 2, depth, prefills=1)
    scenario = split.scenario(Load(in_flight=12), 24)
    (tmp_path / "split.toml").write_text("\n".join(scenario_lines(scenario)))
    assert read_scenario(tmp_path / "split.toml").verifiers == scenario.verifiers
    vllm, sglang = server_commands(split.candidate, depth)
    assert "--kv-transfer-config" in vllm
    assert "--disaggregation-mode decode" in sglang
    assert "--kv-transfer-config" not in server_commands(candidates[draft], depth)[0]


def test_without_a_budget_prefill_servers_are_refused() -> None:
    with pytest.raises(InputError, match="give --devices"):
        plan(None, LINK, target="llama-3.1-8b@h100", in_flight=8)


def test_prefill_servers_limit_what_decode_servers_get() -> None:
    fleet = resolve(served(1, 1))
    alone, prompt_s = curve_of_target(Rounds(fleet)), Rounds(fleet).prompt_s()
    few, many = (behind_prefill(alone, fleet, servers) for servers in (0.25, 1000.0))
    assert few.capacity_per_s == pytest.approx(FULL * 0.25 / prompt_s)
    assert next(iter(few.full)) == "the prefill servers"
    assert many.capacity_per_s == pytest.approx(alone.capacity_per_s)
    idle_s = many.request_s[0] - alone.request_s[0]
    assert idle_s == pytest.approx(prompt_s, rel=0.01)
    for curve in (few, many):
        assert all(before <= after for before, after in pairwise(curve.per_s))
    assert few.request_at(1.1 * few.capacity_per_s) == math.inf


@pytest.mark.parametrize(("prefills", "targets", "streams"), [(1, 1, 16), (1, 2, 24), (2, 1, 48)])
def test_equations_of_a_split_are_near_its_simulation(prefills: int, targets: int, streams: int) -> None:
    scenario = served(prefills, targets, streams=streams, requests=6 * streams)
    simulated_s = measure(simulate(scenario))["latency_s"].value
    assert load_curve(resolve(scenario)).request_with(streams / targets) == pytest.approx(simulated_s, rel=0.25)
