"""Rows of a target that drafts itself: each decodes the text that it decodes alone, by every rule, and the log
replays."""

import itertools
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from bench.decoding import RULES, rule_of
from bench.speculative import decode_speculatively
from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.graphs import Graphs
from specfleet.engine.decoding.models import CausalLM, load_model
from specfleet.engine.decoding.sampling import Sampling
from specfleet.engine.decoding.verify import Target
from specfleet.engine.node import real
from specfleet.engine.node.aligned import AlignedExecutor
from specfleet.engine.node.prompts import prompts_of
from specfleet.engine.node.real import executor_of
from specfleet.engine.node.serving import ServingExecutor
from specfleet.fleet.policies.shapes import CHAIN, Shape, tree
from specfleet.fleet.records.replay import replay
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import streams_of
from tests.helpers.marks import slow
from tests.helpers.pairs import VOCABULARY
from tests.helpers.plain import plain_outputs, served_here, target_node

Part = dict[str, dict[str, object]]  # of a scenario


@pytest.fixture(scope="module")
def pair(tiny: Path) -> Part:
    """An untrained target and its kin, which drafts, on prompts of mixed length."""
    return {
        "drafters": {"model": str(tiny / "kin"), "depth": 4},
        "verifiers": {"model": str(tiny / "target")},
        "workload": {"prompts": str(tiny / "long-prompts.jsonl")},
    }


def batch(rule: str, size: int, *parts: Part, **tables: dict[str, object]) -> Scenario:
    """The demo pair, unless a part says otherwise, in float64 on prompts of mixed length."""
    load = {"requests": max(6, size + 3), "streams": max(6, size + 3)}
    content: Part = {
        "drafters": {"depth": 4, "place": "target"},
        "verifiers": rule_of(rule, size),
        "workload": load | {"prompt_tokens": {"low": 12, "high": 40}, "new_tokens": {"low": 5, "high": 24}},
    }
    for part in (*parts, tables):
        for name, table in part.items():
            content[name] = content.get(name, {}) | table
    if "allocate" in content["verifiers"]:
        content["drafters"].pop("depth", None)  # the rule has the lengths
    return make_scenario({"name": rule, "precision": "float64", **content})


def check_lossless(scenario: Scenario) -> None:
    run, outputs = served_here(target_node, scenario)
    assert outputs == plain_outputs(scenario)
    assert replay(run) == []


@pytest.mark.parametrize("size", [slow(1), slow(2), 4, slow(8), slow(16)])
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_decodes_as_plain_decoding(pair: Part, rule: str, size: int) -> None:
    check_lossless(batch(rule, size, pair))


VARIANTS: dict[str, Part] = {  # speculation lengths of every row's own, and trees
    "fixed": {"verifiers": {"allocate": {"policy": "fixed", "depth": 6}}},
    **{policy: {"verifiers": {"allocate": {"policy": policy}}} for policy in ("dsde", "adaedl")},
    "tree": {"drafters": {"shape": {"kind": "tree", "branching": [3, 2, 1]}}},
    "dynamic tree": {"drafters": {"shape": {"kind": "dynamic", "width": 3, "most": 8}}},
    "block": {"drafters": {"kind": "block"}},
}
QUICK = {
    *itertools.product(["continuous"], VARIANTS), *itertools.product(["EqSpec"], ("tree", "dynamic tree", "block"))
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "variant"),
    [
        case if case in QUICK else slow(*case)
        for case in itertools.product(["continuous", "EqSpec", "ExSpec"], VARIANTS)
    ],
)
def test_other_drafts_are_lossless_too(pair: Part, rule: str, variant: str) -> None:
    check_lossless(batch(rule, 4, pair, VARIANTS[variant]))


@pytest.mark.parametrize("rule", ["continuous", slow("EqSpec"), slow("EqSpec, online"), "ExSpec"])
def test_acceptance_of_a_row_is_equal_in_a_batch(pair: Part, rule: str) -> None:
    """A wrong cache of a drafter lowers acceptance only, so acceptance is a law too."""
    scenario = batch(rule, 4, pair)
    rows = served_here(target_node, scenario)[0].frame()
    verified = rows[(rows.event == "done") & (rows.kind == "verify")]
    assert set(verified.accepted) == {0, 1, 2, 3, 4}  # else the test shows little
    small, large = (load_model(part.model, "", "float64") for part in (scenario.drafters, scenario.verifiers))
    for requests in streams_of(resolve(scenario)).values():
        for request in requests:
            prompt = prompts_of(resolve(scenario))[request.number][: request.prompt_tokens]
            _, accepted = decode_speculatively(Target(large), Drafter(small), prompt, request.new_tokens, 4)
            assert verified[verified.request == request.number].accepted.tolist() == accepted


def test_rows_shorter_than_a_draft_are_drafted_for_as_alone() -> None:
    """A head feeds an accepted draft again: a new row has fewer tokens than that."""
    short: Part = {"drafters": {"kind": "eagle"}, "workload": {"prompt_tokens": {"low": 1, "high": 3}}}
    accepted = []
    for rule in ("continuous", "EqSpec, online"):
        scenario = batch(rule, 4, short)
        run, outputs = served_here(target_node, scenario)
        assert outputs == plain_outputs(scenario)
        verified = run.frame().query("event == 'done' and kind == 'verify'")
        accepted.append({request: own.accepted.tolist() for request, own in verified.groupby("request")})
    assert accepted[0] == accepted[1]
    assert max(map(max, accepted[0].values())) > 3


def feed_alike(target: Target, drafter: Drafter) -> None:
    """Feed rows as on a GPU: equally many tokens each, through graphs, which here repeat eagerly."""
    target.rectangular = True
    for model in (target.model, drafter.model):
        model.graphs = Graphs(lambda work: work)


@pytest.mark.parametrize("rule", ["continuous", "EqSpec"])
def test_rows_with_surplus_tokens_decode_the_same(pair: Part, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    executors = []

    def on_a_gpu(*arguments: Any) -> AlignedExecutor | ServingExecutor:
        executor = executor_of(*arguments)
        assert isinstance(executor, AlignedExecutor | ServingExecutor)
        assert isinstance(executor.drafter, Drafter)
        feed_alike(executor.target, executor.drafter)
        executors.append(executor)
        return executor

    monkeypatch.setattr(real, "executor_of", on_a_gpu)
    check_lossless(batch(rule, 4, pair, verifiers={"allocate": {"policy": "adaedl"}}))
    assert executors


def gap_of_best_two(model: CausalLM, text: list[int]) -> float:
    cache = model.new_cache(1, len(text))
    cache.open(0)
    best = model.logits(model.prefill(cache, 0, text)[-1]).float().topk(2).values
    return float(best[0] - best[1])


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "tie"), [("float32", 1e-4), ("bfloat16", 0.25)])
@pytest.mark.parametrize("rule", ["continuous", "EqSpec", "ExSpec"])
def test_lower_precision_differs_only_at_near_ties(rule: str, precision: str, tie: float) -> None:
    """bfloat16 has 8 bits of mantissa: logits of about 16 are multiples of 1/8, and rounding may swap neighbours."""
    scenario = msgspec.structs.replace(batch(rule, 8), precision=precision)
    plain, (_, outputs) = plain_outputs(scenario), served_here(target_node, scenario)
    assert outputs.keys() == plain.keys()
    model, prompts = load_model("demo", "target", precision), prompts_of(resolve(scenario))
    for request in itertools.chain(*streams_of(resolve(scenario)).values()):
        wanted, found = plain[request.number], outputs[request.number]
        if found != wanted:
            unlike = next(place for place, token in enumerate(wanted) if found[place] != token)
            text = [*prompts[request.number][: request.prompt_tokens], *wanted[:unlike]]
            assert gap_of_best_two(model, text) < tie


@pytest.mark.parametrize("alike", [slow(False, id="ragged"), pytest.param(True, id="fed alike")])
@pytest.mark.parametrize("shape", [slow(CHAIN), tree(2, 1)], ids=str)
def test_rows_of_mixed_samplings_draw_as_alone(tiny: Path, shape: Shape, alike: bool) -> None:
    """In one batch: greedy, warm, top-k and top-p rows. Every row has its own random numbers."""
    large, small = (load_model(str(tiny / name), "", "float64") for name in ("target", "kin"))
    rng = np.random.default_rng(0)
    prompts = [rng.integers(VOCABULARY, size=20 + 5 * number).tolist() for number in range(4)]
    samplings = [Sampling(), Sampling(1.0), Sampling(0.8, top_k=20), Sampling(1.2, top_p=0.9)]
    target, drafter = Target(large), Drafter(small, shape)
    if alike:
        feed_alike(target, drafter)
    for tag, (prompt, sampling) in enumerate(zip(prompts, samplings, strict=True)):
        target.open(tag, prompt, sampling, seed=tag)
        first = target.prefill(tag)
        drafter.open(tag, [*prompt, first.token], sampling, seed=tag + 1)
        drafter.read(tag)
    tags = list(range(4))
    for _ in range(8):
        verdicts = target.verify(tags, drafter.draft(tags, [4, 2, 5, 3]))
        for tag, verdict in zip(tags, verdicts, strict=True):
            drafter.advance(tag, verdict.path, verdict.tokens)
    for tag, depth in zip(tags, [4, 2, 5, 3], strict=True):
        said = target.committed(tag)[len(prompts[tag]) :]
        alone, _ = decode_speculatively(
            Target(large), Drafter(small, shape), prompts[tag], len(said), depth, samplings[tag], seed=tag
        )
        assert said == alone
