"""Drafter and target with embeddings of different padding: ids that only one has never break a text."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from bench.speculative import decode_batch, decode_plain
from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.models import CausalLM
from specfleet.engine.decoding.rules import Rule
from specfleet.engine.decoding.sampling import Sampling
from specfleet.engine.decoding.verify import Target
from specfleet.engine.launch.serve import serve
from specfleet.engine.net.content import Content
from specfleet.engine.node.drafts import drafts_of
from specfleet.fleet.policies.shapes import CHAIN, Shape, dynamic, tree
from tests.helpers.exactly import distance_of_a_round, distribution
from tests.helpers.marks import slow
from tests.helpers.pairs import VOCABULARY, pair_scenario

KNOWN = 12  # ids of the tokenizer
PROMPT = np.random.default_rng(3).integers(KNOWN, size=9).tolist()
PADDED = [(12, 19), (19, 12), (17, 23), (23, 17)]  # drafter's and target's rows
SHAPES = [(CHAIN, 3), (tree(2, 1), 2), slow(dynamic(3, 6), 3)]
ROUNDS: list[tuple[Rule, Shape]] = [
    ("rejection", CHAIN), ("top-k", CHAIN), ("match", CHAIN), ("rejection", tree(2)), ("without-replacement", tree(2)),
    ("top-k", tree(2, 1)), ("match", tree(2, 1)),
]  # fmt: skip


def model_of(rows: int, seed: int, liking: float) -> CausalLM:
    """A model with that many rows, in which padding is about as likely as other tokens."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=rows, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
            bos_token_id=None, eos_token_id=None, tie_word_embeddings=bool(seed % 2),
        )
    ).double()  # fmt: skip
    with torch.no_grad():
        model.lm_head.weight.mul_(liking)
        model.lm_head.weight[KNOWN:] *= 1.5
    return CausalLM(model)


def pair_of(drafter_rows: int, target_rows: int) -> tuple[CausalLM, CausalLM]:
    """A drafter that equals its target on their common ids."""
    target, drafter = model_of(target_rows, 4, 25), model_of(drafter_rows, 4, 25)
    both = min(drafter_rows, target_rows)
    with torch.no_grad():
        for name, weight in target.model.state_dict().items():
            own = drafter.model.state_dict()[name]
            part = slice(both) if weight.shape != own.shape else slice(None)
            own[part].copy_(weight[part] + 0.02 * torch.randn_like(weight[part]))
    return CausalLM(drafter.model), target


@pytest.mark.parametrize(("drafter_rows", "target_rows"), PADDED)
@pytest.mark.parametrize(("shape", "depth"), SHAPES, ids=str)
def test_greedy_text_is_exact_with_padding_tokens(
    drafter_rows: int, target_rows: int, shape: Shape, depth: int
) -> None:
    small, large = pair_of(drafter_rows, target_rows)
    prompts = [np.random.default_rng(seed).integers(KNOWN, size=6 + seed).tolist() for seed in range(4)]
    plain = [decode_plain(Target(large), prompt, 20) for prompt in prompts]
    texts, accepted = decode_batch(Target(large), Drafter(small, shape), prompts, 20, depth)
    assert texts == plain
    assert sum(accepted) > 0
    assert target_rows == KNOWN or any(token >= KNOWN for text in plain for token in text)


@pytest.mark.parametrize(("drafter_rows", "target_rows"), PADDED)
@pytest.mark.parametrize(("rule", "shape"), ROUNDS, ids=str)
def test_sampled_text_is_exact_with_padding_tokens(
    monkeypatch: pytest.MonkeyPatch, drafter_rows: int, target_rows: int, rule: Rule, shape: Shape
) -> None:
    small, large = pair_of(drafter_rows, target_rows)
    with torch.no_grad():
        for model in (small, large):  # padding is likely on both sides
            model.head.weight[KNOWN:] = model.head.weight[: max(model.vocabulary - KNOWN, 0)] * 1.1
    sampling = Sampling(1.0, top_k=3)
    depth = 2 if shape == CHAIN else len(shape.branching)
    apart, drafted = distance_of_a_round(
        monkeypatch, Target(large, rule), lambda: Drafter(small, shape, rule), PROMPT, depth, sampling
    )
    assert apart < 1e-12
    if drafter_rows > target_rows and rule != "match":
        assert max(drafted) >= KNOWN  # else the test shows nothing
    if target_rows > KNOWN:
        assert np.flatnonzero(distribution(large, PROMPT, sampling)).max() >= KNOWN


def test_drafts_of_several_paddings_are_one_batch() -> None:
    contents = [Content([1], None, np.ones((1, width), np.float16), rule="rejection") for width in (3, 5)]
    q = drafts_of(contents, torch.device("cpu")).q
    assert q is not None
    assert q.tolist() == [[[1, 1, 1, 0, 0]], [[1, 1, 1, 1, 1]]]


@pytest.mark.parametrize("wide", ["target", slow("kin")])
def test_sampled_drafts_of_another_padding_cross_the_wire(
    tiny: Path, tmp_path: Path, wide: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specfleet.engine.node.build.check_shared_tokenizer", lambda *_: None)  # there is none
    model = AutoModelForCausalLM.from_pretrained(tiny / wide)
    model.resize_token_embeddings(VOCABULARY + 4, mean_resizing=False)
    with torch.no_grad():
        model.lm_head.weight[VOCABULARY:] = 0  # never among the likeliest
    model.save_pretrained(tmp_path / wide)
    models = {name: str((tmp_path if name == wide else tiny) / name) for name in ("kin", "target")}
    drafters, verifiers = {"model": models["kin"]}, {"model": models["target"], "count": 1}
    sampled = {"temperature": 1.0, "top_k": 6}
    rows = serve(pair_scenario(tiny, drafters=drafters, verifiers=verifiers, workload=sampled)).run.frame()
    assert not (rows.event == "refusal").any()
    assert rows.query("kind == 'verify'").accepted.sum() > 0
