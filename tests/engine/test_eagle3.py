"""EAGLE-3 heads: published checkpoints load, follow the paper's formulas, and decode losslessly."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from bench.speculative import decode_batch, decode_plain
from specfleet.engine.decoding.cache import shape_of
from specfleet.engine.decoding.eagle import Eagle3Head, EagleDrafter
from specfleet.engine.decoding.eagle_files import load_head, read_taps
from specfleet.engine.decoding.models import CausalLM
from specfleet.engine.decoding.rules import Rule
from specfleet.engine.decoding.sampling import Sampling
from specfleet.engine.decoding.verify import Target
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.shapes import CHAIN, Shape, dynamic, tree
from tests.helpers.eagle3 import (
    LAYERS,
    VOCABULARY,
    WIDTH,
    Layout,
    Reference,
    Tensors,
    layout_of,
    random_tensors,
    write_checkpoint,
)
from tests.helpers.exactly import distance_of_a_round, distribution
from tests.helpers.marks import slow

PROMPTS = [np.random.default_rng(n).integers(VOCABULARY, size=11 + 3 * n).tolist() for n in range(4)]
IDS = "eagle_aux_hidden_state_layer_ids"
SHAPES = [(CHAIN, 4), slow(tree(2, 2, 1), 3), (dynamic(3, 8), 4)]


def make_target(kind: str) -> CausalLM:
    """A float64 target with a text that depends on the heads' states."""
    torch.manual_seed(0)
    config, model = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM)}[
        kind.removesuffix(", modules")
    ]
    made = model(
        config(
            vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=64, num_hidden_layers=LAYERS,
            num_attention_heads=4, num_key_value_heads=2, bos_token_id=None, eos_token_id=None,
            tie_word_embeddings=kind == "qwen2",
        )
    )  # fmt: skip
    with torch.no_grad():
        made.lm_head.weight.mul_(30)
    return CausalLM(made.double(), lean=not kind.endswith("modules"))


@pytest.fixture(scope="module", params=["llama", "qwen2", slow("llama, modules")])
def target(request: pytest.FixtureRequest) -> CausalLM:
    return make_target(request.param)


def load(folder: Path, layout: Layout, target: CausalLM, **config: object) -> tuple[Eagle3Head, Tensors]:
    tensors = random_tensors(layout)
    head = load_head(write_checkpoint(folder, layout, tensors, **config), target.model, target.dtype, target.device)
    assert isinstance(head, Eagle3Head)
    return head, tensors


def reference_of(layout: Layout, tensors: Tensors, target: CausalLM) -> Reference:
    """The reference over transformers' own pass of the target, with its own attention."""
    own = type(target.model)(type(target.config)(**target.config.to_dict() | {"attn_implementation": "sdpa"}))
    own.load_state_dict(target.model.state_dict())
    for module in own.modules():
        if target.lean and type(module).__name__.endswith("RMSNorm"):  # it would norm in single precision
            module.forward = partial(normed, module)
    return Reference(layout, tensors, own.double().eval())


def normed(module: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.rms_norm(x, (WIDTH,), module.weight, module.variance_epsilon)


@pytest.mark.parametrize("seed", [*range(4), *(slow(seed) for seed in range(4, 24))])
def test_a_published_heads_chain_follows_the_formulas(tmp_path: Path, target: CausalLM, seed: int) -> None:
    """Logits of every drafted token within 1e-9, for rounds with no, some or all tokens accepted."""
    layout = layout_of(seed)
    head, tensors = load(tmp_path, layout, target)
    assert head.taps == layout.taps
    reference = reference_of(layout, tensors, target)
    within = 1e-9 if target.lean else 1e-5  # transformers' modules norm in single precision
    verifier, drafter = Target(target, taps=head.taps), EagleDrafter(head, target)
    verifier.open(0, list(PROMPTS[0]))
    first = verifier.prefill(0)
    drafter.open(0, [*PROMPTS[0], first.token])
    drafter.read(0, hidden=first.hidden)
    for kept in (0, 2, 3):
        drafts = drafter.draft([0], [3], signals=True)
        tokens = drafts.tokens[0].tolist()
        for number in range(3):
            wanted = reference.logits(verifier.committed(0), tokens[:number])
            assert torch.allclose(drafts.logits[0, number], wanted, rtol=0, atol=within)
            assert tokens[number] == int(wanted.argmax())
        # As if the target had accepted so many: the head then reads the target's states at these tokens.
        follow(verifier, drafter, tokens[:kept])


def follow(verifier: Target, drafter: EagleDrafter, accepted: list[int]) -> None:
    """Commit drafted tokens and one of the target's own, without verification."""
    committed = [*verifier.committed(0), *accepted, 7]
    verifier.release(0)
    verifier.open(0, committed[:-1])
    states = verifier.prefill(0).hidden
    verifier.committed(0)[-1] = 7
    drafter.advance(0, list(range(1, len(accepted) + 1)), [*accepted, 7], states[-len(accepted) - 1 :])


@pytest.mark.parametrize("aligned", [False, slow(True)])
@pytest.mark.parametrize(("shape", "depth"), SHAPES, ids=str)
def test_rows_of_a_batch_decode_as_alone(
    tmp_path: Path, target: CausalLM, shape: Shape, depth: int, aligned: bool
) -> None:
    head, _ = load(tmp_path, layout_of(2), target)
    cache = target.aligned_cache(shape_of(head.config)) if aligned else None
    texts, _ = decode_batch(
        Target(target, taps=head.taps), EagleDrafter(head, target, shape, cache=cache), PROMPTS, 16, depth
    )
    assert texts == [decode_plain(Target(target), prompt, 16) for prompt in PROMPTS]


def test_only_a_head_of_the_right_states_is_accepted(tmp_path: Path) -> None:
    """A head that copies the input of the last but one layer, before a target with last layers that do nothing."""
    target = make_target("llama")
    with torch.no_grad():
        for number, layer in enumerate(target.model.model.layers):
            layer.self_attn.o_proj.weight.zero_()  # a text of bigrams
            layer.mlp.down_proj.weight.mul_(40 if number < 5 else 0)
    target = CausalLM(target.model)
    accepted = {}
    for ids in ([1, 3, 4], [0, 1, 2]):
        layout = Layout(drafted=0, own_lm_head=False)
        tensors = {name: torch.zeros_like(tensor) for name, tensor in random_tensors(layout).items()}
        tensors["fc.weight"][:, -WIDTH:] = torch.eye(WIDTH)
        tensors["norm.weight"] = target.norm.detach().clone()
        folder = write_checkpoint(
            tmp_path / str(ids[0]), layout, tensors, eagle_config={"eagle_aux_hidden_state_layer_ids": ids}
        )
        head = load_head(folder, target.model, target.dtype, target.device)
        verifier, drafter = Target(target, taps=head.taps), EagleDrafter(head, target)
        verifier.open(0, list(PROMPTS[1]))
        first = verifier.prefill(0)
        drafter.open(0, [*PROMPTS[1], first.token])
        drafter.read(0, hidden=first.hidden)
        # The state at the last token of the prompt gives the target's token after it, which is known already.
        accepted[ids[-1]] = int(drafter.draft([0], [1]).tokens[0, 0]) == first.token
    assert accepted == {4: True, 2: False}


@pytest.mark.parametrize(
    ("rule", "shape"),
    [("rejection", CHAIN), *(slow(rule, tree(2, 1)) for rule in ("without-replacement", "top-k", "match"))],
)
def test_a_small_draft_vocabulary_leaves_sampled_text_the_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: Rule, shape: Shape
) -> None:
    """Every branch of drafting and verification is followed; the target has tokens that the head cannot draft."""
    target, layout, sampling = make_target("llama"), Layout(drafted=10), Sampling(1.0, top_k=3)
    with torch.no_grad():
        target.model.lm_head.weight.div_(12)
    head, tensors = load(tmp_path, layout, target)
    known = set((tensors["d2t"] + torch.arange(10)).tolist())
    verifier = Target(target, rule, taps=head.taps)
    apart, drafted = distance_of_a_round(
        monkeypatch, verifier, lambda: EagleDrafter(head, target, shape, rule), PROMPTS[0], 2, sampling
    )
    assert apart < 1e-12
    assert drafted <= known
    assert set(np.flatnonzero(distribution(target, PROMPTS[0], sampling))) - known


def test_a_tied_head_shares_its_embedding(tmp_path: Path, target: CausalLM) -> None:
    layout = Layout(drafted=0, own_lm_head=False, own_embedding=True, tied=True)
    head, _ = load(tmp_path, layout, target)
    assert head.lm_head.weight is head.embed_tokens.weight


def test_eagle_3_is_known_by_its_draft_vocabulary(tmp_path: Path, target: CausalLM) -> None:
    """Its architecture says LlamaForCausalLM, it names no layers, and has no embedding of its own."""
    load(tmp_path, Layout(), target, architectures=["LlamaForCausalLM"])
    assert read_taps(tmp_path, 32) == (2, 16, 29)


SPOILT: dict[str, tuple[Callable[[Tensors], object], dict[str, object], str]] = {
    "no norm": (lambda t: t.pop("norm.weight"), {}, r"tensor norm\.weight is missing"),
    "no head": (lambda t: t.pop("lm_head.weight"), {}, r"lm_head\.weight is missing.*draft vocabulary of 25"),
    "no map": (lambda t: t.pop("d2t"), {}, r"d2t is missing"),
    "a map out of the vocabulary": (lambda t: t["d2t"].add_(30), {}, r"d2t maps to tokens .* allowed: .* 0 to 39"),
    "a map that meets itself": (lambda t: t["d2t"].copy_(-torch.arange(25)), {}, r"d2t maps to tokens 0 to 0"),
    "maps that disagree": (lambda t: t["t2d"].logical_not_(), {}, r"d2t and t2d do not agree"),
    "a map of another length": (lambda t: t.update(d2t=t["d2t"][1:]), {}, r"d2t has shape \(24,\)"),
    "four states": (lambda t: t.update({"fc.weight": torch.zeros(WIDTH, 4 * WIDTH)}), {}, r"fc\.weight has shape"),
    "a name twice": (lambda t: t.update({"model.norm.weight": torch.ones(WIDTH)}), {}, r"norm\.weight is there twice"),
    "a second layer": (lambda t: t.update({"layers.1.mlp.x.weight": torch.ones(1)}), {}, r"layers\.1.* is unknown"),
    "one bias of three": (
        lambda t: t.update({"midlayer.self_attn.q_proj.bias": torch.ones(32)}), {}, r"k_proj\.bias.* is missing"
    ),
    "a promised bias": (lambda _: None, {"attention_bias": True}, r"proj\.bias.* is missing"),
    "no such layer": (lambda _: None, {IDS: [1, 2, 8]}, r"allowed: .* 0 to 7.* 8 layers"),
    "no list of layers": (lambda _: None, {IDS: "all"}, r"allowed: a list of numbers"),
    "the last state": (
        lambda _: None, {"eagle_config": {"use_aux_hidden_state": False}}, r"use_aux_hidden_state = false"
    ),
    "another activation": (lambda _: None, {"hidden_act": "gelu"}, r"hidden_act = 'gelu'; allowed: 'silu'"),
    "heads that do not divide": (lambda _: None, {"num_attention_heads": 5}, r"not that of a Llama-type draft head"),
    "biases of the MLP": (lambda _: None, {"mlp_bias": True}, r"mlp_bias = True; allowed: false"),
    "angles by length": (
        lambda _: None, {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, r"rope_type = 'dynamic'"
    ),
    "a larger draft vocabulary": (lambda _: None, {"draft_vocab_size": 50}, r"draft_vocab_size = 50; allowed: 1 to"),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILT)
def test_an_unfit_checkpoint_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    spoil, config, message = SPOILT[name]
    target, layout = make_target("llama"), Layout()
    tensors = random_tensors(layout)
    spoil(tensors)
    with pytest.raises(InputError, match=message) as caught:
        load_head(write_checkpoint(tmp_path, layout, tensors, **config), target.model, target.dtype, "cpu")
    assert str(caught.value).startswith(str(tmp_path))


def test_a_target_of_few_layers_needs_named_layers(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"draft_vocab_size": 9, "intermediate_size": 8, "num_attention_heads": 1})
    )
    assert read_taps(tmp_path, 7) == (2, 3, 4)
    with pytest.raises(InputError, match=r"6 layers has no three layers .* eagle_config"):
        read_taps(tmp_path, 6)
