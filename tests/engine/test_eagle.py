"""The draft head: it loads published checkpoints, computes the same as plain torch, and the demo's is as recorded."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from specfleet.engine.decoding.eagle import EagleDrafter, EagleHead
from specfleet.engine.decoding.eagle_files import load_head
from specfleet.engine.decoding.models import CausalLM, load_model
from specfleet.engine.demo_pair.corpus import FOLDER, read_prompts
from specfleet.fleet.errors import InputError
from tests.helpers import eagle3
from tests.helpers.eagle3 import VOCABULARY, WIDTH, Layout, Tensors, layer_outputs, layer_shapes
from tools.demo_pair.train_eagle import estimates_of, save_head, unrolled

LAYOUT, LAYER = Layout(drafted=0), "layers.0"
SHAPES = {
    "embed_tokens.weight": (VOCABULARY, WIDTH),
    "fc.weight": (WIDTH, 2 * WIDTH),
    "fc.bias": (WIDTH,),
    **layer_shapes(LAYOUT, LAYER, WIDTH),
}


@pytest.fixture(scope="module")
def target() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config).double().eval()


def random_tensors(left_out: str = "") -> Tensors:
    generator = torch.Generator().manual_seed(1)
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64) / 4
        for name, shape in SHAPES.items()
        if name != left_out
    }


def write_checkpoint(folder: Path, tensors: Tensors, layout: Layout = LAYOUT, **config: object) -> Path:
    """Write a published checkpoint of EAGLE's first version."""
    return eagle3.write_checkpoint(
        folder, layout, tensors, **{"architectures": ["LlamaForCausalLM"], "head_dim": None} | config
    )


def by_hand(tensors: Tensors, tokens: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
    """The head's output (T, WIDTH) for a sequence from position 0, in plain torch; tokens (T,), features (T, WIDTH)."""
    x = torch.cat([tensors["embed_tokens.weight"][tokens], features], dim=-1) @ tensors["fc.weight"].T
    x = x + tensors.get("fc.bias", 0)
    return layer_outputs(tensors, LAYER, LAYOUT, x, x)


def random_inputs(length: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(VOCABULARY, (length,), generator=generator)
    return tokens, torch.randn(length, WIDTH, generator=generator, dtype=torch.float64)


def check_output(head: EagleHead, tensors: Tensors, target: LlamaForCausalLM) -> None:
    """A text in pieces has the outputs that plain torch gives for the whole."""
    tokens, features = random_inputs(23)
    drafter, outputs = EagleDrafter(head, CausalLM(target)), []
    drafter.cache.open(0)
    for part in (slice(0, 9), slice(9, 10), slice(10, 14), slice(14, 23)):
        drafter.features[0] = features[: part.stop]
        outputs.append(drafter.feed([0], tokens[part], [part.stop - part.start]))
        drafter.cache.lengths[0] = part.stop
    assert torch.allclose(torch.cat(outputs), by_hand(tensors, tokens, features), rtol=0, atol=1e-9)


QKV_BIASES = {
    f"layers.0.self_attn.{name}_proj.bias": torch.linspace(-1, 1, heads * LAYOUT.size, dtype=torch.float64)
    for name, heads in (("q", LAYOUT.heads), ("k", LAYOUT.kv_heads), ("v", LAYOUT.kv_heads))
}
OUTPUT_BIAS = {"layers.0.self_attn.o_proj.bias": torch.linspace(1, -1, WIDTH, dtype=torch.float64)}


@pytest.mark.parametrize(
    ("biases", "config"),
    [
        (QKV_BIASES, {}), (QKV_BIASES, {"qkv_bias": True}), (QKV_BIASES, {"qkv_bias": True, "attention_bias": True}),
        (QKV_BIASES | OUTPUT_BIAS, {"attention_bias": True}), (QKV_BIASES | OUTPUT_BIAS, {}), (OUTPUT_BIAS, {}),
        ({}, {}), ({}, {"bias": False}),
    ],
)  # fmt: skip
def test_biases_are_used_whatever_config_json_says(
    tmp_path: Path, target: LlamaForCausalLM, biases: Tensors, config: dict[str, object]
) -> None:
    tensors = random_tensors(left_out="fc.bias" if config.get("bias") is False else "") | biases
    table = {"layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}  # old checkpoints hold it; models compute it
    write_checkpoint(tmp_path, tensors | table, **config)
    check_output(load_head(tmp_path, target, torch.float64, "cpu"), tensors, target)


def test_a_head_drafts_by_its_own_lm_head(tmp_path: Path, target: LlamaForCausalLM) -> None:
    own = torch.randn(VOCABULARY, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(8))
    large = CausalLM(target)
    logits = {}
    for name, more in (("own", {"lm_head.weight": own}), ("the target's", {})):
        head = load_head(write_checkpoint(tmp_path / name, random_tensors() | more), target, torch.float64, "cpu")
        drafter = EagleDrafter(head, large)
        drafter.open(0, list(range(9)))
        drafter.read(0, hidden=random_inputs(8)[1])
        logits[name] = drafter.draft([0], [3], signals=True).logits[0]
        wanted = head.lm_head.weight if name == "own" else target.lm_head.weight
        with torch.inference_mode():
            assert torch.allclose(logits[name][-1], drafter.outputs[-1] @ wanted.T, rtol=0, atol=1e-12)
    assert torch.equal(head.embed_tokens.weight, random_tensors()["embed_tokens.weight"])
    assert not torch.allclose(logits["own"][0], logits["the target's"][0])


def test_what_training_unrolls_is_what_drafting_step_by_step_computes(tmp_path: Path, target: LlamaForCausalLM) -> None:
    head = load_head(write_checkpoint(tmp_path, random_tensors()), target, torch.float64, "cpu")
    tokens, features = (part[None] for part in random_inputs(20))
    with torch.inference_mode():
        estimates = list(unrolled(head, tokens, features, 4))
        for base in (0, 1, 9, 15):  # the last position with a known feature
            cache, known = DynamicCache(), features[:, : base + 1]
            for step in range(4):
                fed = slice(base + step + 2 - known.shape[1], base + step + 2)
                positions = torch.arange(fed.start - 1, fed.stop - 1)[None]
                known = estimates_of(head, tokens[:, fed], known, cache, positions)[:, -1:]
                assert torch.allclose(estimates[step][:, base : base + 1], known, rtol=0, atol=1e-12)


def test_a_saved_head_is_the_loaded_one_in_half_precision(tmp_path: Path, target: LlamaForCausalLM) -> None:
    tensors = random_tensors(left_out="embed_tokens.weight")
    head = load_head(write_checkpoint(tmp_path, tensors), target, torch.float64, "cpu")
    assert head.embed_tokens is target.get_input_embeddings()
    save_head(head, tmp_path / "saved")
    written = load_file(tmp_path / "saved" / "model.safetensors")
    assert written.keys() == tensors.keys()
    assert all(torch.equal(written[name], tensors[name].half()) for name in tensors)
    check_output(
        load_head(tmp_path / "saved", target, torch.float64, "cpu"),
        {name: tensor.half().double() for name, tensor in tensors.items()}
        | {"embed_tokens.weight": target.get_input_embeddings().weight},
        target,
    )


def test_a_folder_without_a_head_is_an_error(tmp_path: Path, target: LlamaForCausalLM) -> None:
    for config, message in (
        (None, r"no config\.json"),
        ('{"model_type": "llama"}', "no intermediate_size"),
        ('{"intermediate_size": 8, "num_attention_heads": 1}', r"expected model\.safetensors or pytorch_model\.bin"),
    ):
        if config:
            (tmp_path / "config.json").write_text(config)
        with pytest.raises(InputError, match=message):
            load_head(tmp_path, target, torch.float64, "cpu")


@pytest.mark.slow
def test_the_demo_heads_agreement_is_that_of_its_record() -> None:
    """On the committed evaluation prompts; the record's figures are from other held-out windows."""
    recorded = json.loads((FOLDER / "eagle" / "training.json").read_text())["held_out"]["top1_agreement"]
    target = load_model("demo", "target", device="cpu").model
    head = load_head(FOLDER / "eagle", target, torch.float32, "cpu")
    prompts = torch.tensor(read_prompts("evaluation")[:16])
    with torch.inference_mode():
        features = target.model(input_ids=prompts).last_hidden_state
        best = target.lm_head(features).argmax(-1)
        for step, estimates in enumerate(unrolled(head, prompts, features, 3), start=1):
            measured = (target.lm_head(estimates).argmax(-1) == best[:, step:]).float().mean().item()
            assert measured == pytest.approx(recorded[step - 1], rel=0.15)
