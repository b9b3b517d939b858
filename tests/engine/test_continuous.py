"""A target as a serving engine: rows join and leave, prompts come in chunks, caches are lost; texts stay those of plain
decoding."""

import itertools
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from specfleet.engine.decoding.sampling import Sampling
from specfleet.engine.launch.serve import serve
from specfleet.engine.node.build import load_target, new_drafter, new_streams, new_target
from specfleet.engine.node.executors import DraftExecutor, VerifyExecutor
from specfleet.engine.node.node import Node
from specfleet.engine.node.pending import PendingDrafts
from specfleet.engine.node.prompts import prompts_of
from specfleet.engine.node.real import verifier_node
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.records.replay import replay
from specfleet.fleet.records.run import Run, make_run
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.step import Step
from specfleet.sim.run import simulate
from tests.fakes.network import FakeNetwork
from tests.helpers.drafted import check_drafts, note_drafts
from tests.helpers.exactly import distribution
from tests.helpers.marks import slow
from tests.helpers.pairs import VOCABULARY, drafters_of, pair_scenario
from tests.helpers.plain import model_of, plain_outputs, served_here
from tests.helpers.toy_fleets import ToyFleet

NARROW: dict[str, Any] = {"count": 1, "max_num_seqs": 3, "max_num_batched_tokens": 12, "kv_tokens": 80}
LOAD: dict[str, Any] = {"streams": 4, "requests": 7, "prompt_tokens": {"low": 3, "high": 18}, "new_tokens": 18}
KIN = "kin"


class RealFleet(ToyFleet):
    """A fleet of real models on a network in memory, with stated times of steps, so that every run is the same."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.prompts, self.model = prompts_of(self.fleet), load_target(self.fleet)
        self.drafting: list[DraftExecutor] = []

    def new_target(self) -> Any:
        """Return the executor of a target."""
        fleet, pending = self.fleet, PendingDrafts()
        target, streams = new_target(fleet, self.model), new_streams(fleet, self.prompts)
        return VerifyExecutor(target, streams, pending, fleet.drafters.kind == "eagle", in_turn=fleet.in_turn)

    def new_drafter(self, _drafter: int) -> Any:
        """Return the executor of a drafter."""
        drafter = new_drafter(self.fleet, self.model)
        self.state_numbers = getattr(drafter, "state_numbers", 0)
        self.drafting.append(DraftExecutor(drafter, new_streams(self.fleet), not self.fleet.in_turn))
        return self.drafting[-1]


def narrow(tiny: Path, kind: str, drafters: dict[str, Any], workload: dict[str, Any], **verifiers: Any) -> Scenario:
    """A scenario of a narrow target with drafts of a kind."""
    own = {"model": str(tiny / KIN)} if kind == KIN else drafters_of(tiny, kind)
    tables = {"drafters": {"depth": 4} | own | drafters, "workload": LOAD | workload}
    return pair_scenario(tiny, verifiers=NARROW | verifiers, **tables)


def served(tiny: Path, kind: str, drafters: dict[str, Any], workload: dict[str, Any], **verifiers: Any) -> Run:
    """Run a narrow target over processes; check texts and log."""
    scenario = narrow(tiny, kind, drafters, workload, **verifiers)
    found = serve(scenario)
    check_texts(scenario, found.outputs)
    assert replay(found.run) == []
    return found.run


def check_texts(scenario: Scenario, outputs: dict[int, list[int]]) -> None:
    """Check that greedy texts are those of plain decoding, and that sampled ones are whole."""
    if scenario.workload.temperature:
        assert [len(text) for text in outputs.values()] == [18] * 7
    else:
        assert outputs == plain_outputs(scenario)


def check_pressed(run: Run) -> None:
    """Check that the run had chunks, and requests that lost their caches."""
    starts = run.frame().query("event == 'start'")
    assert (starts.kind == "chunk").any()
    begun = starts[starts.kind.isin(["chunk", "prefill"]) & (starts.base == 0) & starts.station.str.startswith("ver")]
    assert begun.groupby("request").size().max() > 1, "no request was preempted"


@pytest.mark.parametrize(
    ("kind", "workload"),
    [
        (KIN, {}),
        ("EAGLE", {}),
        slow("EAGLE-3", {}),
        slow("EAGLE tree", {}),
        slow("prompt lookup", {}),
        slow("suffix decoding", {}),
        slow("block", {}),
        slow(KIN, {"temperature": 0.9}),
        ("EAGLE", {"temperature": 0.9}),
    ],
)
def test_drafts_from_elsewhere(tiny: Path, kind: str, workload: dict[str, Any]) -> None:
    check_pressed(served(tiny, kind, {}, workload))


@pytest.mark.parametrize(
    ("kind", "workload"),
    [
        (KIN, {}),
        ("EAGLE", {}),
        ("prompt lookup", {}),
        ("suffix decoding", {}),
        ("block", {}),
        ("EAGLE-3", {}),
        slow("tree", {}),
        slow("EAGLE tree", {}),
        slow("dynamic tree", {}),
        (KIN, {"temperature": 0.9}),
        slow("EAGLE", {"temperature": 0.9}),
        slow("block", {"temperature": 0.9}),
        ("suffix, then EAGLE", {}),
        ("lookup, then block", {}),
        ("suffix, then EAGLE", {"temperature": 0.9}),
        slow("lookup, then block", {"temperature": 0.9}),
        slow(KIN, {"streams": 0, "arrivals": {"process": "poisson", "per_s": 200.0}}),
    ],
)
def test_drafts_on_the_targets_own_device(tiny: Path, kind: str, workload: dict[str, Any]) -> None:
    """Drafts are those of a drafter that reads the whole text at once: caches survive chunks and preemptions."""
    masks = {"max_num_batched_tokens": 24} if "block" in kind else {}  # 4 of each row count, too
    scenario = narrow(tiny, kind, {"place": "target"}, workload, **masks)
    drafted: list[tuple[list[int], list[int]]] = []

    def noted(fleet: Fleet, prompts: Any) -> Node:
        node = verifier_node(fleet, 0, prompts, {})
        note_drafts(node.worker.executor.drafter, drafted)  # type: ignore[attr-defined]
        return node

    run, outputs = served_here(noted, scenario)
    check_texts(scenario, outputs)
    assert replay(run) == []
    check_pressed(run)
    if "then" in kind:
        assert set(run.frame().query("event == 'done' and kind == 'draft' and tokens > 0").flag) == {False, True}
    if not scenario.workload.temperature and kind != "suffix decoding":  # which knows earlier answers, too
        check_drafts(scenario, drafted)


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(
    kind=st.sampled_from([KIN, "EAGLE", "prompt lookup", "suffix decoding", "suffix, then EAGLE", "block", "none"]),
    limits=st.fixed_dictionaries(
        {
            "max_num_seqs": st.integers(1, 5), "max_num_batched_tokens": st.integers(6, 40),
            "kv_tokens": st.sampled_from([0, 64, 80, 112]),
        }
    ),
    load=st.fixed_dictionaries({"streams": st.integers(1, 7)})
    | st.just({"arrivals": {"process": "poisson", "per_s": 300.0}}),
    longest=st.integers(1, 18),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_no_limit_changes_a_text(
    tiny: Path, kind: str, limits: dict[str, Any], load: dict[str, Any], longest: int, seed: int
) -> None:
    """Random joins, leaves, chunks and preemptions."""
    drafters: dict[str, Any] = {"count": 0} if kind == "none" else {"place": "target"}
    lengths = {"prompt_tokens": {"low": 1, "high": longest}, "new_tokens": {"low": 1, "high": 18}}
    workload = {"streams": 0, "requests": 9, "seed": seed} | lengths | load
    scenario = narrow(tiny, "prompt lookup" if kind == "none" else kind, drafters, workload, **limits)
    run, outputs = served_here(lambda fleet, prompts: verifier_node(fleet, 0, prompts, {}), scenario)
    assert outputs == plain_outputs(scenario)
    assert replay(run) == []


def test_rows_that_sit_out_a_step_keep_their_signals(tiny: Path) -> None:
    """Without the drafter's logits, a draft would seem to come from a flat distribution."""
    nodes: list[Node] = []

    def noted(fleet: Fleet, prompts: Any) -> Node:
        nodes.append(verifier_node(fleet, 0, prompts, {}, signals=True))
        return nodes[-1]

    run, _ = served_here(noted, narrow(tiny, KIN, {"place": "target"}, {"prompt_tokens": 3}))  # all begin at once
    drafted, later = set[int](), 0  # requests of the last drafting step, and drafts that are verified after another's
    for _, step in run.frame().query("event == 'start' and tokens > 0").groupby("step"):
        later += len(set(step.request[step.kind == "verify"]) - drafted)
        drafted = set(step.request[step.kind == "draft"]) or drafted
    assert later > 0
    entropies = [token.entropy for own in nodes[0].signals.values() for token in own]
    assert max(entropies) < 0.999 * math.log(VOCABULARY)


def test_a_target_that_drafts_is_a_process_without_connections(tiny: Path) -> None:
    """Some of its rows are granted no drafts; their drafter reads on."""
    run = served(tiny, KIN, {"place": "target"}, {}, allocate={"policy": "goodspeed", "budget": 5})
    assert {"draft", "draft_prefill"} <= set(run.frame().kind)
    assert set(run.frame().station) == {"verifier.1"}


def test_replayed_targets_draft_as_simulated_ones(tiny: Path) -> None:
    step = {"base_s": 0.001}
    laws = dict.fromkeys(("draft", "decode", "draft_prefill", "verify_prefill", "verify"), step)
    scenario = pair_scenario(
        tiny,
        profile={"name": "stated"} | laws,
        acceptance={"model": "geometric", "beta": 0.6},
        drafters={"kind": "replayed", "place": "target"},
        verifiers=NARROW | {"kind": "replayed"},
        workload=LOAD,
    )
    runs = serve(scenario).run, simulate(scenario)
    assert [replay(run) for run in runs] == [[], []]
    for run in runs:
        check_pressed(run)
    assert all({"draft", "draft_prefill"} & set(run.frame().kind) for run in runs)


SECONDS = {"verify": 0.3, "decode": 0.25, "draft": 0.1}
KINDS = (KIN, "EAGLE", "EAGLE-3", "tree", "EAGLE tree", "dynamic tree", "prompt lookup", "block")
QUICK = {(KIN, "decode"), ("EAGLE", "decode"), ("kin tree", "decode"), (KIN, "skip"), ("EAGLE", "skip")}


@pytest.mark.parametrize(
    ("kind", "late"),
    [
        case if case in QUICK else slow(*case)
        for case in itertools.product((*KINDS, "kin tree", "sampled", "sampled tree"), ("decode", "skip"))
    ],
)
def test_drafts_that_come_late(tiny: Path, kind: str, late: str) -> None:
    """Their first tokens are those of the text, or they are lost; the drafter's text and cache follow."""
    is_tree, sampled = kind.endswith("kin tree"), kind.startswith("sampled")
    drafters = {"model": str(tiny / KIN), "shape": {"kind": "tree", "branching": [3, 1]}} if is_tree else {}
    base = KIN if is_tree or sampled else kind
    scenario = narrow(tiny, base, drafters, {"temperature": 0.7} if sampled else {}, late=late)
    accepted = [sum(played(scenario, draft_s)) for draft_s in (0.05, 0.2, 0.9)]
    if late == "decode" and base == KIN:
        assert sum(accepted) > 0, "no part of a late draft was accepted"


def played(scenario: Scenario, draft_s: float) -> list[int]:
    """Run a fleet with drafts of so many seconds; check it, and return the accepted tokens of late drafts."""
    fleet, network = resolve(scenario), FakeNetwork(0, way_s=0.02)
    real = RealFleet(fleet, network, lambda step: draft_s if step.kind == "draft" else SECONDS.get(step.kind, 0.3))
    real.start()
    drafted: list[tuple[list[int], list[int]]] = []
    accepted: list[int] = []
    note_drafts(real.drafting[0].drafter, drafted)
    note_late(real, accepted)
    assert network.run(600.0, lambda: real.finished)
    network.run(network.now_s + 5.0, lambda: False)
    (outputs,) = real.outputs
    check_texts(scenario, outputs)
    run = make_run(scenario, "engine", real.log, fleet)
    assert replay(run) == []
    check_pressed(run)
    if not scenario.workload.temperature and fleet.drafters.kind != "eagle":  # whose states are sent in half precision
        check_drafts(scenario, drafted)
    server = network.nodes["drafter"].connections.server
    assert server is not None
    assert not any(server.counts.values())
    return accepted


def note_late(real: RealFleet, accepted: list[int]) -> None:
    """Note how many tokens of each late draft are accepted."""
    executor: Any = real.executors["verifier.1"][0]
    run = executor.run

    def noting(step: Step) -> tuple[Outcome, ...]:
        outcomes: tuple[Outcome, ...] = run(step)
        accepted.extend(
            outcome.accepted
            for member, outcome in zip(step.members, outcomes, strict=True)
            if member.behind and step.kind_of(member) == "verify"
        )
        return outcomes

    executor.run = noting


@pytest.mark.slow
def test_texts_with_late_drafts_follow_the_targets_distribution(tiny: Path, tmp_path: Path) -> None:
    """Chi-square of all continuations of one prompt, at 99.9 %."""
    scenario = narrow(tiny, KIN, {}, sampled_load(tmp_path), late="decode", kv_tokens=0, max_num_batched_tokens=64)
    fleet, network = resolve(scenario), FakeNetwork(0, way_s=0.02)
    real = RealFleet(fleet, network, lambda step: {"draft": 0.15, "prefill": 0.02}.get(step.kind, 0.25))
    real.start()
    accepted: list[int] = []
    note_late(real, accepted)
    assert network.run(1e4, lambda: real.finished)
    (outputs,) = real.outputs
    assert sum(accepted) > 50
    check_distribution(scenario, outputs)


@pytest.mark.slow
def test_texts_with_found_drafts_follow_the_targets_distribution(tiny: Path, tmp_path: Path) -> None:
    """Chi-square as above: steps verify found and drawn drafts together."""
    limits = {"kv_tokens": 0, "max_num_batched_tokens": 64}
    scenario = narrow(tiny, "suffix, then EAGLE", {}, sampled_load(tmp_path), **limits)
    run, outputs = served_here(lambda fleet, prompts: verifier_node(fleet, 0, prompts, {}), scenario)
    assert run.frame().query("event == 'done' and kind == 'draft'").groupby("step").flag.nunique().max() == 2
    check_distribution(scenario, outputs)


PROMPT, SAMPLING = [3, 1, 4, 1, 5, 9, 2, 6], {"temperature": 4.0, "top_k": 2}


def sampled_load(folder: Path) -> dict[str, Any]:
    """400 requests with one prompt and answers of four sampled tokens."""
    (folder / "one.jsonl").write_text(f'{{"prompt_ids": {PROMPT}}}')
    load = {"prompts": str(folder / "one.jsonl"), "prompt_tokens": 8, "new_tokens": 4, "requests": 400}
    return load | SAMPLING


def check_distribution(scenario: Scenario, outputs: dict[int, list[int]]) -> None:
    """Check by chi-square, at 99.9 %, that texts of a sampled load follow the target's distribution."""
    model, requests = model_of(scenario.verifiers.model, scenario.precision), scenario.workload.requests
    chances = {(): 1.0}
    for _ in range(4):
        chances = {
            (*said, token): chance * share
            for said, chance in chances.items()
            for token, share in enumerate(distribution(model, [*PROMPT, *said], Sampling(**SAMPLING)).tolist())
            if share
        }
    found = Counter(tuple(text) for text in outputs.values())
    assert set(found) <= set(chances)
    _rarest, *often = sorted((text for text in chances if chances[text] * requests >= 5), key=chances.__getitem__)
    expected = [chances[text] * requests for text in often]
    observed = [found[text] for text in often]
    # the rarest of these counts with all rarer ones
    assert chisquare([requests - sum(observed), *observed], [requests - sum(expected), *expected]).pvalue > 1e-3
