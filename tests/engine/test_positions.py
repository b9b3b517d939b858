"""Models with learned positions: drafts end at the last one, and tags are opened once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.decoding import rule_of
from bench.speculative import decode_batch, decode_plain, decode_speculatively
from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.lookup import LookupDrafter
from specfleet.engine.decoding.models import CausalLM, load_model
from specfleet.engine.decoding.verify import Target
from specfleet.engine.node.build import positions_of, with_positions
from specfleet.engine.node.prompts import prompts_of
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.shapes import CHAIN, Shape, dynamic, tree
from specfleet.fleet.records.replay import replay
from specfleet.fleet.scenario.reading import change_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.run import simulate
from tests.helpers.marks import slow
from tests.helpers.pairs import VOCABULARY, pair_scenario
from tests.helpers.plain import served_here, target_node
from tests.helpers.stars import star

POSITIONS, PROMPT = 36, 16
ASKED = POSITIONS - PROMPT


@pytest.fixture(scope="module")
def learned(tiny: Path) -> Path:
    """Folders `target` and `drafter` of an untrained pair with 36 positions."""
    from transformers import GPT2Config, GPT2LMHeadModel

    for role, layers in (("target", 2), ("drafter", 1)):
        torch.manual_seed(layers)
        config = GPT2Config(
            vocab_size=VOCABULARY, n_positions=POSITIONS, n_embd=32, n_layer=layers, n_head=2, bos_token_id=None,
            eos_token_id=None, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )  # fmt: skip
        model = GPT2LMHeadModel(config)
        model.transformer.wte.weight.data *= 5
        model.save_pretrained(tiny / "learned" / role)
    return tiny / "learned"


def pair(learned: Path) -> tuple[CausalLM, CausalLM]:
    large, small = (load_model(str(learned / role), role, "float64", "cpu") for role in ("target", "drafter"))
    return large, small


@pytest.mark.parametrize("shape", [CHAIN, tree(2, 1), dynamic(3, 8)], ids=str)
@pytest.mark.parametrize("depth", [1, 4, 9])
def test_texts_as_long_as_the_positions_decode_losslessly(learned: Path, shape: Shape, depth: int) -> None:
    large, small = pair(learned)
    assert large.positions == small.positions == POSITIONS
    prompts = [np.random.default_rng(n).integers(VOCABULARY, size=PROMPT).tolist() for n in range(3)]
    wanted = [decode_plain(Target(large), prompt, ASKED) for prompt in prompts]
    for drafts in (small, large):  # with drafts that are often refused, and never
        for prompt, text in zip(prompts, wanted, strict=True):
            assert decode_speculatively(Target(large), Drafter(drafts, shape), prompt, ASKED, depth)[0] == text
        assert decode_batch(Target(large), Drafter(drafts, shape), prompts, ASKED, depth)[0] == wanted
    lookup: Any = LookupDrafter(large.device)
    assert decode_speculatively(Target(large), lookup, prompts[0], ASKED, depth)[0] == wanted[0]


def learned_scenario(tiny: Path, learned: Path, **tables: dict[str, Any]) -> Scenario:
    given: dict[str, dict[str, Any]] = {
        "drafters": {"model": str(learned / "drafter"), "depth": 7},
        "verifiers": {"model": str(learned / "target"), "count": 2},
        "workload": {"prompt_tokens": PROMPT, "new_tokens": ASKED},
    }
    return pair_scenario(tiny, **(tables | {name: table | tables.get(name, {}) for name, table in given.items()}))


@pytest.mark.parametrize("kind", ["chain", slow("dynamic")])
def test_last_drafts_are_shorter_and_replay(tiny: Path, learned: Path, kind: str) -> None:
    changes = {"drafters.place": "target", "verifiers.count": 1, "verifiers.max_num_seqs": 1}
    scenario = change_scenario(learned_scenario(tiny, learned, drafters={"shape": kind}), changes)
    prompts = prompts_of(resolve(scenario))
    run, outputs = served_here(target_node, scenario)
    target = Target(pair(learned)[0])
    assert outputs == {number: decode_plain(target, prompt, ASKED) for number, prompt in enumerate(prompts)}
    assert run.header.fleet.drafters.positions == POSITIONS
    assert replay(run) == []
    rows = run.frame()
    drafts = rows[(rows.event == "start") & (rows.kind == "draft")]
    assert (drafts.base + drafts.tokens <= POSITIONS).all()
    assert drafts.tokens.max() == 7


@pytest.mark.parametrize("rule", ["continuous", "EqSpec", slow("EqSpec, online"), slow("ExSpec"), slow("rollback")])
def test_rows_of_a_batch_shorten_their_own_drafts_only(tiny: Path, learned: Path, rule: str) -> None:
    lengths = {"streams": 6, "prompt_tokens": {"low": 5, "high": PROMPT}, "new_tokens": {"low": 2, "high": ASKED}}
    rows = rule_of(rule, 3) | {"count": 1}
    scenario = learned_scenario(tiny, learned, drafters={"place": "target"}, verifiers=rows, workload=lengths)
    prompts, target = prompts_of(resolve(scenario)), Target(pair(learned)[0])
    run, outputs = served_here(target_node, scenario)
    assert replay(run) == []
    joins = run.frame().query("event == 'join'").set_index("request")
    for request, text in outputs.items():
        join = joins.loc[request]
        assert text == decode_plain(target, prompts[request][: join.tokens], int(join.goal - join.tokens))


def test_the_simulator_shortens_them_where_its_profile_knows_the_positions() -> None:
    workload = {"requests": 6, "prompt_tokens": PROMPT, "new_tokens": ASKED}
    tables = {"profile": {"positions": POSITIONS}, "workload": workload, "drafters": {"depth": 7}}
    run = simulate(star(**tables))
    rows = run.frame()
    drafts = rows[(rows.event == "start") & (rows.kind == "draft")]
    assert (drafts.base + drafts.tokens <= POSITIONS).all()
    assert replay(run) == []
    message = "request 0 has 16 . 21 tokens, and its models have learned 36 positions"
    with pytest.raises(InputError, match=message):
        simulate(change_scenario(star(**tables), {"workload.new_tokens": ASKED + 1}))


def test_a_tail_that_is_drafted_ahead_ends_within_the_positions() -> None:
    workload = {"requests": 6, "prompt_tokens": PROMPT, "new_tokens": ASKED}
    ahead = star(profile={"positions": POSITIONS}, workload=workload, drafters={"overlap": "ahead"})
    drafts = simulate(ahead).frame().query("event == 'start' and kind == 'draft'")
    assert (drafts.base + drafts.tokens).max() == POSITIONS


def test_computed_positions_and_missing_folders_have_no_limit(tiny: Path, learned: Path) -> None:
    assert positions_of(str(tiny / "target"), "target") == positions_of("not-here", "target") == 0
    assert with_positions(resolve(pair_scenario(tiny))).drafters.positions == 0
    mixed = pair_scenario(tiny, drafters={"model": str(learned / "drafter")})
    assert with_positions(resolve(mixed)).drafters.positions == POSITIONS


@pytest.mark.parametrize("kind", ["in place", "aligned", "lookup"])
def test_opening_a_tag_twice_is_an_error(tiny: Path, kind: str) -> None:
    model = load_model(str(tiny / "target"), "target", "float64", "cpu")
    made = {"in place": Target(model), "aligned": Drafter(model, cache=model.aligned_cache())}
    one: Any = made.get(kind, LookupDrafter(model.device))
    for _ in range(2):
        one.open(4, [1, 2, 3])
        with pytest.raises(ValueError, match="tag 4 is open"):
            one.open(4, [1, 2, 3])
        assert one.committed(4) == [1, 2, 3]
        one.release(4)
