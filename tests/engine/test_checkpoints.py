"""Weights on disk: whole checkpoints load in any layout; missing and surplus tensors are named."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from specfleet.engine.decoding.checkpoints import FILES
from specfleet.engine.decoding.folders import DEMO_PAIR
from specfleet.engine.decoding.models import load_model
from specfleet.engine.node.build import with_positions
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.reading import scenario_of
from specfleet.fleet.scenario.resolve import resolve
from tests.helpers.eagle3 import write_weights
from tests.helpers.marks import slow

Tensors = dict[str, torch.Tensor]
KINDS = ["llama", "llama, tied", "llama, biased", "qwen2", "gpt2"]


def model_of(kind: str) -> torch.nn.Module:
    torch.manual_seed(5)
    ends = {"bos_token_id": None, "eos_token_id": None}
    if kind == "gpt2":
        return GPT2LMHeadModel(GPT2Config(vocab_size=30, n_embd=16, n_layer=2, n_head=2, n_positions=64, **ends))
    sizes = {
        "vocab_size": 30, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, **ends,
    }  # fmt: skip
    if kind == "qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**sizes, tie_word_embeddings=True))
    return LlamaForCausalLM(
        LlamaConfig(
            **sizes, tie_word_embeddings="tied" in kind, attention_bias="biased" in kind, mlp_bias="biased" in kind
        )
    )


def write(folder: Path, model: torch.nn.Module, tensors: Tensors, file: str = FILES[0], shards: int = 1) -> str:
    folder.mkdir(exist_ok=True)
    model.config.save_pretrained(folder)
    write_weights(folder, tensors, file, shards)
    return str(folder)


def tensors_of(model: torch.nn.Module) -> Tensors:
    """The tensors of a model's checkpoint: a tied head is the embedding."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight")
    return state


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("shards", [1, 3])
def test_a_whole_checkpoint_loads_however_it_is_cut(tmp_path: Path, kind: str, file: str, shards: int) -> None:
    model = model_of(kind)
    loaded = load_model(write(tmp_path, model, tensors_of(model), file, shards), "target", "float32", "cpu")
    found = loaded.model.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, *(slow(seed) for seed in range(1, 6))])
def test_every_tensor_that_is_missing_is_named(tmp_path: Path, kind: str, seed: int) -> None:
    rng, model = np.random.default_rng(seed), model_of(kind)
    tensors = tensors_of(model)
    gone = rng.choice(sorted(tensors), size=1 + seed % 3, replace=False).tolist()
    for name in gone:
        del tensors[name]
    folder = write(tmp_path, model, tensors, shards=1 + 2 * (seed % 2))
    with pytest.raises(InputError, match="weights are missing") as caught:
        load_model(folder, "target", "float32", "cpu")
    assert all(name.removeprefix("transformer.") in str(caught.value) for name in gone)
    assert str(caught.value).startswith(folder)


LEFT_OVER = [
    "model.layers.2.mlp.up_proj.weight", "model.layers.0.self_attn.o_proj.bias", "lm_head.bias",
    "model.layers.1.self_attn.q_norm.weight", "model.layers.0.mlp.up_proj.weight_scale", "model.embed_positions.weight",
]  # fmt: skip


@pytest.mark.parametrize("name", LEFT_OVER)
def test_a_surplus_tensor_is_an_error(tmp_path: Path, name: str) -> None:
    model = model_of("llama")
    folder = write(tmp_path, model, tensors_of(model) | {name: torch.ones(3)})
    with pytest.raises(InputError, match=rf"type 'llama' .* would leave out: {name}"):
        load_model(folder, "target", "float32", "cpu")


def test_tables_that_old_checkpoints_hold_are_no_weights(tmp_path: Path) -> None:
    for kind, name in (
        ("llama", "model.layers.0.self_attn.rotary_emb.inv_freq"),
        ("gpt2", "transformer.h.0.attn.bias"),
    ):
        model = model_of(kind)
        folder = write(tmp_path / kind, model, tensors_of(model) | {name: torch.ones(2)})
        load_model(folder, "target", "float32", "cpu")


def test_an_lm_head_beside_a_tied_embedding_is_used(tmp_path: Path) -> None:
    model = model_of("llama, tied")
    own = torch.randn(30, 16)
    for head in (own, model.model.embed_tokens.weight.detach().clone()):
        folder = write(tmp_path, model, tensors_of(model) | {"lm_head.weight": head})
        assert torch.equal(load_model(folder, "target", "float32", "cpu").head.weight, head)


SHARD, INDEX = "model-0000{}-of-00003.safetensors", "model.safetensors.index.json"
SPOILT: dict[str, tuple[str, int, Callable[[Path], object], str]] = {  # file, shards, change, error
    "no weights": (
        FILES[0], 1, lambda folder: (folder / FILES[0]).unlink(),
        r"no weights; expected model\.safetensors or pytorch_model\.bin, or their shards",
    ),
    "another shape": (
        FILES[0], 1, lambda folder: write(folder, LLAMA, tensors_of(LLAMA) | {"model.norm.weight": torch.ones(15)}),
        r"tensor model\.norm\.weight has shape \(15,\); config\.json asks for \(16,\)",
    ),
    "no shard": (
        FILES[0], 3, lambda folder: (folder / SHARD.format(2)).unlink(),
        r"index\.json: the shard model-00002-of-00003\.safetensors is not there",
    ),
    "a shard of other tensors": (
        FILES[0], 3, lambda folder: shutil.copy(folder / SHARD.format(1), folder / SHARD.format(2)),
        "weights are missing",
    ),
    "half a file": (
        FILES[0], 1, lambda folder: os.truncate(folder / FILES[0], 500), "no causal language model can be loaded"
    ),
    "half a pickle": (
        FILES[1], 1, lambda folder: os.truncate(folder / FILES[1], 300), "no causal language model can be loaded"
    ),
    "an index of nothing": (FILES[0], 3, lambda folder: (folder / INDEX).write_text("[]"), "not an index of shards"),
    "no known type": (
        FILES[0], 1, lambda folder: (folder / "config.json").write_text('{"model_type": "nobodys"}'),
        "not the configuration of a model",
    ),
}  # fmt: skip
LLAMA = model_of("llama")


@pytest.mark.parametrize("name", SPOILT)
def test_an_incomplete_model_folder_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    file, shards, spoil, message = SPOILT[name]
    folder = write(tmp_path / "model", LLAMA, tensors_of(LLAMA), file, shards)
    spoil(Path(folder))
    with pytest.raises(InputError, match=message) as caught:
        load_model(folder, "target", "float32", "cpu")
    assert folder in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "line"),
    [({"num_hidden_layers": 10**6}, "num_hidden_layers = 1000000; allowed: up to 1000"),
     ({"max_position_embeddings": 40}, "target has 40 positions .* answer has 60 tokens"),
     ({"max_position_embeddings": 20, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "target has 40 pos")],
)  # fmt: skip
def test_what_no_model_is_or_reads_is_refused_before_loading(tmp_path: Path, keys: dict[str, Any], line: str) -> None:
    folder = tmp_path / "target"
    folder.mkdir()
    config = json.loads((DEMO_PAIR / "target" / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | keys))  # it has no weights
    workload = {"workload.prompt_tokens": 50, "workload.new_tokens": 10}
    with pytest.raises(InputError, match=line):
        with_positions(resolve(scenario_of("star", {"verifiers.model": str(folder)} | workload)))
    with pytest.raises(
        InputError, match="num_hidden_layers = 1000000" if "num_hidden_layers" in keys else "no weights"
    ):
        load_model(str(folder), "target")
