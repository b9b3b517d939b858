"""The block drafter: one pass over masks is what transformers computes, losslessly, and the demo's is as recorded."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.speculative import decode_speculatively
from specfleet.engine.decoding.block import BlockDrafter
from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.graphs import Graphs
from specfleet.engine.decoding.models import CausalLM, load_model
from specfleet.engine.decoding.sampling import Sampling
from specfleet.engine.decoding.verify import Target
from specfleet.engine.demo_pair.corpus import read_prompts
from specfleet.fleet.errors import InputError
from tests.helpers.exactly import distance_of_a_round
from tests.helpers.pairs import VOCABULARY
from tools.demo_pair import train_block
from tools.demo_pair.train import continued
from tools.demo_pair.train_block import block_logits, blocks_of, rounds

MASK = VOCABULARY - 1
PROMPTS = [np.random.default_rng(n).integers(VOCABULARY, size=9 + 7 * n).tolist() for n in range(3)]


@pytest.fixture(scope="module")
def small(tiny: Path) -> CausalLM:
    return load_model(str(tiny / "kin"), "block", "float64", "cpu")


@pytest.fixture(scope="module")
def large(tiny: Path) -> CausalLM:
    return load_model(str(tiny / "target"), "target", "float64", "cpu")


@torch.inference_mode()
def one_pass(model: CausalLM, text: Sequence[int], depth: int) -> torch.Tensor:
    """The logits (depth, V) of transformers after a text and after masks."""
    logits: torch.Tensor = model.model(input_ids=torch.tensor([[*text, *[MASK] * (depth - 1)]])).logits[0, -depth:]
    return logits


@pytest.mark.parametrize("how", ["rows in slots", "aligned rows", "rows fed alike"])
def test_drafts_are_those_of_one_pass_over_masks(tiny: Path, large: CausalLM, how: str) -> None:
    """Round after round, in rows of their own lengths and depths: caches keep real tokens alone."""
    small = load_model(str(tiny / "kin"), "block", "float64", "cpu")
    if how == "rows fed alike":
        small.graphs = Graphs(lambda work: work)
    drafter = BlockDrafter(small, cache=small.aligned_cache() if how == "aligned rows" else None)
    target, tags, depths = Target(large), range(len(PROMPTS)), [4, 2, 3]
    for tag in tags:
        target.open(tag, PROMPTS[tag])
        first = target.prefill(tag)
        drafter.open(tag, [*PROMPTS[tag], first.token])
        drafter.read(tag)
    accepted = set()
    for _ in range(12):
        if how == "aligned rows":
            drafter.realign(tags)
        drafts = drafter.draft(tags, depths, signals=True)
        assert drafts.logits is not None
        for tag, depth in zip(tags, depths, strict=True):
            wanted = one_pass(small, target.committed(tag), depth)
            assert torch.allclose(drafts.logits[tag, :depth], wanted, rtol=0, atol=1e-5)  # tables of angles differ
            assert drafts.tokens[tag].tolist() == [*wanted.argmax(-1).tolist(), *[-1] * (4 - depth)]
        for tag, verdict in zip(tags, target.verify(tags, drafts), strict=True):
            drafter.advance(tag, verdict.path, verdict.tokens)
            accepted.add(verdict.accepted)
            assert drafter.cache.lengths[tag] < len(target.committed(tag))
    assert len(accepted) > 1


def test_a_round_is_the_targets_own_over_all_branches(
    small: CausalLM, large: CausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart, drafted = distance_of_a_round(
        monkeypatch, Target(large), lambda: BlockDrafter(small), PROMPTS[0], 2, Sampling(4.0, top_k=3)
    )
    assert apart < 1e-12
    assert len(drafted) > 3


def test_what_training_computes_is_what_drafting_computes(small: CausalLM) -> None:
    text = torch.tensor([PROMPTS[2]])
    anchors, depths = blocks_of(text.shape[1], torch.randperm(text.shape[1]))
    with torch.inference_mode():
        logits = block_logits(small.model, text, anchors, depths)[0]
    for anchor in range(text.shape[1]):
        of_block = logits[anchors == anchor]
        wanted = one_pass(small, text[0, : anchor + 1].tolist(), len(of_block))
        assert torch.allclose(of_block, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", ["chain", "block"])
def test_rounds_measured_after_training_are_the_engines(
    tiny: Path, large: CausalLM, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = load_model(str(tiny / "kin"), "block", "float64", "cpu")
    prompt, drafter = PROMPTS[0], (BlockDrafter if kind == "block" else Drafter)(small)
    wanted = decode_speculatively(Target(large), drafter, prompt, 60, train_block.DEPTH)[1][:-2]
    if kind == "chain":
        monkeypatch.setattr(small.config, "pard_token", None)
    monkeypatch.setattr(train_block, "PROMPT", len(prompt))
    texts = continued(large.model, torch.tensor([prompt]), len(prompt) + 70, torch.tensor([True]), torch.Generator())
    (measured,) = rounds(small.model, texts, is_greedy=True, generator=torch.Generator())
    assert measured.sum(1).tolist()[: len(wanted)] == wanted
    assert len(set(wanted)) > 1


@pytest.mark.parametrize("token", [None, "39", -1, VOCABULARY])
def test_a_model_without_a_mask_token_is_an_error(
    small: CausalLM, token: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small.config, "pard_token", token)
    with pytest.raises(InputError, match=r"kin: its config.json has pard_token = .*: 0 to 39"):
        BlockDrafter(small)


@pytest.mark.slow
def test_the_demos_blocks_are_seven_tenths_as_long_as_its_chains() -> None:
    """Accepted drafts of a greedy round, without the target's own token, on prompts that training left out."""
    target = load_model("demo", "target", device="cpu")
    chain, block = Drafter(load_model("demo", "drafter", device="cpu")), load_model("demo", "block", device="cpu")
    lengths = []
    for drafter in (chain, BlockDrafter(block)):
        prompts = [prompt[:128] for prompt in read_prompts("evaluation")[:16]]
        rounds = [decode_speculatively(Target(target), drafter, prompt, 64, 4)[1] for prompt in prompts]
        lengths.append(float(np.mean(np.concatenate(rounds))))
    assert lengths[1] > 0.7 * lengths[0]
