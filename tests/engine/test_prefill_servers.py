"""Replayed prefill servers: how a prompt is handed over, and whole runs against their simulation."""

from pathlib import Path
from typing import Any

import pytest

from specfleet.engine.launch.runnable import check_by_hand, check_can_run
from specfleet.engine.launch.serve import serve
from specfleet.engine.net.clock import now_s
from specfleet.engine.replayed.targets import ReplayedFleet
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.measure import measure
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import Run, make_run
from specfleet.fleet.scenario.reading import read_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import streams_of
from specfleet.fleet.stations.build import kv_bytes
from specfleet.fleet.stations.prefill import KvLink
from specfleet.sim.run import simulate
from tests.helpers.marks import slow
from tests.helpers.stars import star

LINK = {"latency_s": 0.05, "bandwidth_bytes_per_s": 2e6}
HEAD = {"place": "target", "depth": 3}
REPLAYED: dict[str, Any] = {"drafters": {"kind": "replayed"}, "verifiers": {"kind": "replayed"}}


def split(drafters: dict[str, Any] = HEAD, **prefill: Any) -> Scenario:
    """Two prefill servers, and two targets with steps of milliseconds."""
    profile = {
        "draft": {"base_s": 0.002}, "draft_prefill": {"base_s": 0.001}, "verify": {"base_s": 0.008},
        "verify_prefill": {"base_s": 0.005, "per_token_s": 1e-4}, "decode": {"base_s": 0.008},
        "kv": {"free_bytes": 1e8, "token_bytes": 1000, "drafter_token_bytes": 100}, "link": {"latency_s": 0.0},
    }  # fmt: skip
    prompts, answers = {"low": 20, "high": 90}, {"low": 1, "high": 12}
    workload = {"requests": 12, "streams": 4, "prompt_tokens": prompts, "new_tokens": answers}
    verifiers = REPLAYED["verifiers"] | {"count": 2, "prefill": {"count": 2, "link": LINK, "layers": 4} | prefill}
    return star(
        drafters=REPLAYED["drafters"] | drafters, verifiers=verifiers, profile=profile, workload=workload,
        measure={"warm_up_share": 0.0},
    )  # fmt: skip


FLEET = resolve(split())


def work_of(run: Run) -> dict[int, list[tuple[Any, ...]]]:
    """Return what each request went through, in order; how many rows shared a step depends on the host."""
    rows = run.frame().sort_values(["time_s", "seq"]).query("event in ('join', 'done')")
    rows = rows[rows.station.str.startswith(("prefill", "verifier"))]
    columns = ["station", "event", "kind", "base", "tokens", "accepted", "goal", "payload_bytes"]
    return {request: list(of[columns].itertuples(index=False, name=None)) for request, of in rows.groupby("request")}


def test_no_cache_arrives_before_its_bytes() -> None:
    scenario = split()
    targets = ReplayedFleet(FLEET, {})
    targets.open()
    log = targets.serve(now_s() + 0.05)
    run = make_run(scenario, "engine", log, FLEET)
    assert replay(run) == []
    assert work_of(run) == work_of(simulate(scenario))
    rows, late_s = run.frame(), list[float]()
    came_s = rows[(rows.event == "join") & (rows.base > 0)].set_index("request").time_s
    requests = {request.number: request for stream in streams_of(FLEET).values() for request in stream}
    for server in ("prefill.1", "prefill.2"):
        done = rows[(rows.station == server) & (rows.event == "done")].sort_values("seq")
        link = KvLink(FLEET.verifiers.prefill, None)  # type: ignore[arg-type]  # without jitter
        for row in done[(done.kind == "prefill") & done.request.isin(came_s.index)].itertuples():
            computing_s = done[done.request == row.request].duration_s.sum()
            way_s = link.way_s(kv_bytes(FLEET, requests[row.request]), row.time_s, computing_s)
            late_s.append(came_s[row.request] - row.time_s - way_s)
    assert len(late_s) == len(came_s) > 6
    assert min(late_s) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("drafters", "prefill"),
    [
        ({"count": 1, "depth": 3}, {}),
        slow({"count": 0}, {}),
        slow(HEAD, {"draft_cache": "sent", "first_round_drafts": True}),
        slow(HEAD | {"shape": {"kind": "tree", "branching": [2, 1]}}, {"count": 1}),
        slow({"count": 2, "route": "shortest-queue"}, {"count": 3}),
        slow({"overlap": "ahead"}, {"link": {"latency_s": 0.0}, "layers": 1}),
    ],
)
def test_requests_pass_both_servers_as_in_the_simulation(drafters: dict[str, Any], prefill: dict[str, Any]) -> None:
    scenario = split(drafters, **prefill)
    run, simulated = serve(scenario).run, simulate(scenario)
    assert replay(run) == []
    if "overlap" not in drafters:  # there, messages of a round pass each other
        assert work_of(run) == work_of(simulated)
    has_latency = bool(scenario.verifiers.prefill and scenario.verifiers.prefill.link.latency_s)
    assert (measure(run)["kv_transfer_s"].value > 0) == has_latency


def test_the_example_of_prefill_servers_runs_in_both_worlds() -> None:
    scenario = read_scenario(Path(__file__).parents[2] / "docs" / "examples" / "prefill-apart.toml")
    check_can_run(resolve(scenario))
    assert measure(simulate(scenario))["kv_transfer_s"].value > 0.01  # its latency


def test_prefill_servers_that_cannot_run_are_refused_by_key() -> None:
    with pytest.raises(InputError, match=r"verifiers\.prefill is simulated only .*allowed: 'replayed'"):
        check_can_run(resolve(star(verifiers={"prefill": {}})))
    with pytest.raises(InputError, match=r"verifiers\.prefill: the recorded texts"):
        check_can_run(resolve(star(verifiers={"kind": "replayed", "prefill": {}})))
    with pytest.raises(InputError, match=r"verifiers\.prefill.*use `specfleet run`"):
        check_by_hand(FLEET)
