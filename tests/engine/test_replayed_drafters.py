"""Replayed drafters: random numbers, step times and sizes of drafts; a short run over processes."""

from typing import Any

import pytest

from specfleet.engine.launch.processes import NodeProcess
from specfleet.engine.launch.serve import serve
from specfleet.engine.net.content import NOTHING, Content
from specfleet.engine.replayed.drafter import ReplayedDraftExecutor, empty_draft
from specfleet.engine.replayed.targets import Drawn, ReplayedExecutor
from specfleet.fleet.acceptance.models import AcceptanceModel, BetaGeometric, Geometric, Recorded
from specfleet.fleet.policies.shapes import CHAIN, Shape, depths_of, dynamic, tree
from specfleet.fleet.records.replay import replay
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import streams_of
from specfleet.fleet.stations.build import verifier_station
from specfleet.fleet.stations.messages import Draft, DraftRequest
from specfleet.fleet.stations.outcomes import Outcomes
from specfleet.fleet.stations.payload import ENVELOPE_BYTES, RULE_BYTES, TOKEN_BYTES, payload_bytes
from specfleet.fleet.times.step import Member, Step
from specfleet.sim.run import simulate
from tests.helpers.light import modules_of_a_replayed_pair
from tests.helpers.marks import slow
from tests.helpers.stars import star

REPLAYED = {"kind": "replayed"}
SPREAD = {"spread": "quantiles", "levels": [0.0, 1.0], "ratios_at": [0.5, 1.5]}
VOCABULARY, LARGE = 50, 50_000


def replayed(**changes: Any) -> Scenario:
    """A replayed star with random draft times."""
    tables = {"drafters": REPLAYED, "verifiers": REPLAYED, "profile": {"draft": {"base_s": 1.0, "spread": SPREAD}}}
    for name, change in changes.items():
        tables[name] = tables.get(name, {}) | change if isinstance(change, dict) else change
    return star(**tables)


def accepted_in(scenario: Scenario) -> dict[int, list[int]]:
    """Accepted lengths of each request's rounds, in order, in a simulation."""
    rows = simulate(scenario).frame().query("event == 'done' and kind == 'verify'").sort_values(["request", "epoch"])
    return {int(request): of_request.accepted.tolist() for request, of_request in rows.groupby("request")}


# --- acceptance of targets that draw it ---


@pytest.mark.parametrize("acceptance", [Geometric(0.8), BetaGeometric(3, 1), Recorded(5, ((1, 2, 0), (5, 5), (3,)))])
def test_a_lone_target_accepts_what_it_does_in_simulation(acceptance: AcceptanceModel) -> None:
    scenario = replayed(acceptance=acceptance, verifiers={"count": 3})
    fleet, simulated = resolve(scenario), accepted_in(scenario)
    drawn = Drawn(Outcomes(fleet), False, verifier_station(fleet, 1))  # a process of this target only
    for request in streams_of(fleet)[1]:
        prompt = Member(1, request.number, 0, 0, request.prompt_tokens)
        drawn.outcomes(Step(0, "prefill", (prompt,)), [NOTHING])
        base, lengths = request.prompt_tokens + 1, []
        while base < request.prompt_tokens + request.new_tokens:
            (outcome,) = drawn.outcomes(Step(1, "verify", (Member(1, request.number, 1, base, 5),)), [NOTHING])
            lengths.append(outcome.accepted)
            base += outcome.accepted + 1
        assert lengths == simulated[request.number]


def test_requests_are_as_large_as_real_ones() -> None:
    fleet = resolve(replayed())
    drawn = Drawn(Outcomes(fleet), False, verifier_station(fleet, 0))
    for request in (DraftRequest(0, 0, 1, 17, opening=True), DraftRequest(0, 0, 2, 20)):
        size = payload_bytes(request, 0.0, 0) - ENVELOPE_BYTES[DraftRequest]
        assert TOKEN_BYTES * len(drawn.content_of(request).tokens) == size


@pytest.mark.parametrize("overlap", ["in-turn", "ahead"])
def test_a_request_in_turn_drops_drafts_before_it(overlap: str) -> None:
    fleet = resolve(replayed(drafters={"overlap": overlap}))
    target = ReplayedExecutor(fleet, Drawn(Outcomes(fleet), False, verifier_station(fleet, 0)))
    target.content_of(DraftRequest(0, 0, 1, 17, opening=True))
    target.pending.receive(Draft(0, 0, 1, 17, 2), Content([0, 0]))
    target.content_of(DraftRequest(0, 0, 2, 18))
    assert len(target.pending.take(0).tokens) == (2 if overlap == "ahead" else 0)


# --- the replayed drafter ---


def test_step_times_are_drawn_as_in_the_simulation() -> None:
    scenario = replayed()
    steps = simulate(scenario).frame().query("station == 'drafter' and event == 'done'").sort_values("seq")
    executor = ReplayedDraftExecutor(resolve(scenario))
    durations_s = []
    for row in steps.itertuples():
        kind = row.kind
        member = Member(row.tag, row.request, 1, row.base, row.tokens)
        durations_s.append(executor.duration_s(Step(row.step, kind, (member,))))
    assert durations_s == pytest.approx(steps.duration_s.tolist(), rel=1e-12)
    assert len(set(durations_s)) > 10, "or they do not spread"


@pytest.mark.parametrize("shape", [CHAIN, tree(3, 1), tree(2), dynamic(3, 10), dynamic(4, 4)])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("depth", [1, 4])
def test_drafts_have_the_simulated_size(shape: Shape, temperature: float, depth: int) -> None:
    keys = {"kind": shape.kind, "branching": list(shape.branching), "width": shape.width, "most": shape.most}
    read = {"chain": [], "tree": ["branching"], "dynamic": ["width", "most"]}[shape.kind]
    given = {"kind": shape.kind} | {name: keys[name] for name in read}
    texts, drafters = {"temperature": temperature}, {"shape": given, "depth": depth}
    fleet = resolve(replayed(drafters=drafters, workload=texts, profile={"vocabulary": VOCABULARY}))
    content = empty_draft(fleet, depth)
    sent = TOKEN_BYTES * (len(content.tokens) + len(content.nodes or ()))
    if content.distributions is not None:
        sent += content.distributions.nbytes + RULE_BYTES
    counted = payload_bytes(Draft(1, 100, 100, 1000, depth), temperature, VOCABULARY, fleet.drafters.shape)
    assert sent == counted - ENVELOPE_BYTES[Draft]
    assert max(depths_of(content.nodes or range(len(content.tokens)))) <= depth
    assert set(content.tokens) <= set(range(VOCABULARY))


# --- over processes ---


def short_run(count: int, temperature: float = 0.0, **changes: Any) -> Scenario:
    """A replayed star with drafts of 2 ms and verifications of 8 ms, for models with a large vocabulary."""
    times = {
        "draft": {"base_s": 0.002, "spread": SPREAD},
        "verify": {"base_s": 0.008},
        "verify_prefill": {"base_s": 0.004},
        "vocabulary": LARGE,
    }
    workload = {"requests": 2 * count, "prompt_tokens": 10, "new_tokens": 30, "temperature": temperature}
    return replayed(profile=times, verifiers={"count": count}, workload=workload, **changes)


@pytest.mark.parametrize(
    ("count", "temperature", "drafters"),
    [
        (3, 0.0, {}),
        (2, 1.0, {}),
        slow(16, 0.0, {"shape": {"kind": "tree", "branching": [2, 1]}}),
        slow(4, 1.0, {"shape": {"kind": "tree", "branching": [2, 1]}}),
        slow(2, 0.0, {"count": 0}),
    ],
)
def test_processes_accept_what_the_simulation_accepts(count: int, temperature: float, drafters: dict[str, Any]) -> None:
    scenario = short_run(count, temperature, drafters=drafters)
    run, simulated = serve(scenario).run, simulate(scenario)
    assert replay(run) == []
    sides = ("drafters", "targets") if scenario.drafters.count else ("targets",)
    assert run.header.replayed == sides
    assert simulated.header.replayed == ()
    assert set(run.frame().origin) == {"replayed"}
    keys = ["request", "epoch", "kind", "base", "tokens", "accepted"]
    rows, simulated_rows = (
        of_run.frame().query("event == 'done' and station != 'drafter'").sort_values(["request", "epoch"])[keys]
        for of_run in (run, simulated)
    )
    assert rows.reset_index(drop=True).equals(simulated_rows.reset_index(drop=True))
    arrived = run.frame().query("event == 'draft'")
    if len(arrived):
        counted = payload_bytes(Draft(0, 0, 1, 10, 5), temperature, LARGE, scenario.drafters.shape)
        assert abs(arrived.payload_bytes - counted).max() < 16, "numbers in an envelope take a byte to five"


def test_no_step_of_a_process_ends_before_its_time() -> None:
    run, simulated = (
        of_world.frame().query("event == 'done' and kind == 'draft'").sort_values("seq").duration_s.to_numpy()
        for of_world in (serve(short_run(2)).run, simulate(short_run(2)))
    )
    assert len(run) == len(simulated)
    assert (run >= simulated - 1e-6).all()


def test_replayed_stations_import_no_torch() -> None:
    node = NodeProcess("probe", modules_of_a_replayed_pair, resolve(short_run(1)), light=True)
    try:
        imported = node.receive()
    finally:
        node.end()
    assert "specfleet.engine.replayed.targets" in imported
    assert not {"torch", "transformers", "simpy", "matplotlib"} & set(imported)
