"""Names at a hub, published precisions, modules for multi-token prediction, and positions of estimated models."""

import json
from pathlib import Path
from typing import Any

import pytest

import specfleet
from specfleet.fleet.data.shipped import shipped_models
from specfleet.fleet.errors import ContextError, InputError
from specfleet.fleet.hardware.passes import Placed
from specfleet.fleet.hardware.positions import positions_in
from specfleet.fleet.hardware.profile import beside, placed_of
from specfleet.fleet.hardware.shape import MAX_LAYERS, mtp_of
from specfleet.fleet.hardware.shipped import shape_of

CONFIG = shipped_models()["qwen3-8b"]
AWQ = {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}


@pytest.mark.parametrize(
    ("name", "shipped", "positions"),
    [
        ("Qwen/Qwen3-32B", "qwen3-32b", 40960),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b", 131072),
        ("meta-llama/Meta-Llama-3-8B", "llama-3-8b", 8192),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b", 4096),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b", 32768),
        ("google/gemma-3-27b-it", "gemma-3-27b", 131072),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b", 32768),
        ("RedHatAI/Qwen3-32B-speculator.eagle3", "eagle3-qwen3-32b", 0),
    ],
)
def test_names_at_a_hub_are_those_of_shipped_shapes(name: str, shipped: str, positions: int) -> None:
    found, own = shape_of(name), shape_of(shipped)
    assert (found.parameters(), found.head, found.positions) == (own.parameters(), own.head, positions)


@pytest.mark.parametrize(
    ("place", "precision"),
    [("Qwen/Qwen3-32B-AWQ@h100", "int4"), ("Qwen/Qwen3-32B-FP8@h100", "fp8"), ("Qwen/Qwen3-32B@h100", "bf16"),
     ("Qwen/Qwen3-32B-FP8@h100:fp8", "fp8"), ("deepseek-ai/DeepSeek-V3@16xh100", "fp8"),
     ("Qwen/Qwen3-32B-FP8@a100-80gb", "w8a16")],
)  # fmt: skip
def test_a_checkpoint_has_its_published_precision(place: str, precision: str) -> None:
    placed = placed_of(place)
    assert placed.precision == precision
    assert ("as published" in placed.named) == (precision != "bf16" and ":" not in place)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("Qwen/Qwen3-32B-AWQ@h100:fp8", "has its weights in int4 .*servers do not make fp8 of it"),
        ("Qwen/Qwen3-32B-GGUF@h100", "does not ship, .*nearest: qwen3-32b"),
    ],
)
def test_another_precision_than_the_checkpoints_is_refused(name: str, line: str) -> None:
    with pytest.raises(InputError, match=line):
        placed_of(name)


def folder(path: Path, **keys: Any) -> str:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(CONFIG | keys))
    return str(path)


def test_a_place_names_parts_in_16_bits(tmp_path: Path) -> None:
    kept = {"quantization_config": AWQ["quantization_config"] | {"modules_to_not_convert": ["mlp"]}}
    assert "int4, mlp-bf16 as published" in placed_of(f"{folder(tmp_path, **kept)}@h100").named


def test_a_drafter_has_its_checkpoints_precision(tmp_path: Path) -> None:
    target: Placed = placed_of("qwen3-32b@h100:fp8")
    drafter = shape_of(folder(tmp_path / "small", **AWQ))
    assert beside(target, drafter).precision == "int4"
    assert beside(placed_of("qwen3-8b@a100-80gb"), shape_of("Qwen/Qwen3-8B-FP8")).precision == "w8a16"


def test_a_targets_own_module_is_the_published_head() -> None:
    assert mtp_of(shape_of("deepseek-v3")).parameters() == shape_of("deepseek-mtp").parameters()
    assert mtp_of(shape_of("qwen3.5-122b-a10b")).layers == 1
    with pytest.raises(InputError, match="llama-3-8b has no module for multi-token prediction"):
        mtp_of(shape_of("llama-3-8b"))


@pytest.mark.parametrize(
    ("rope", "positions"),
    [
        ({}, 1000),
        ({"rope_scaling": {"type": "linear", "factor": 4}}, 4000),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, 2000),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 500}}, 2000),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 100}}, 1000),
        ({"rope_scaling": {"type": "longrope", "long_factor": [1.0], "short_factor": [1.0]}}, 1000),
        ({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8}, "sliding_attention": {}}}, 8000),
    ],
)
def test_scaled_positions_are_vllms(rope: dict[str, Any], positions: int) -> None:
    assert positions_in({"max_position_embeddings": 1000} | rope, "llama", "here") == positions
    with pytest.raises(InputError, match=r"here: rope_scaling\.rope_type = 'spiral'; allowed: default"):
        positions_in({"max_position_embeddings": 1000, "rope_scaling": {"rope_type": "spiral"}}, "llama", "here")


@pytest.mark.parametrize(
    ("target", "draft", "prompt"), [("llama-3-8b", None, 8192), ("llama-3.1-8b", "eagle3-llama-3.1-8b", 2040)]
)
def test_texts_beyond_the_positions_of_a_model_are_refused(target: str, draft: str | None, prompt: int) -> None:
    profile = specfleet.estimate(f"{target}@h100", draft and f"{draft}@h100")
    keys = {"profile": profile, "workload.new_tokens": 8, "workload.prompt_tokens": prompt, "workload.requests": 2}
    with pytest.raises(ContextError, match=rf"^{draft or target} has \d+ positions .* {prompt + 8} tokens, with a dra"):
        specfleet.simulate("star", keys)
    specfleet.simulate("star", keys | {"workload.prompt_tokens": prompt - 16})


def test_more_layers_than_any_model_has_are_refused(tmp_path: Path) -> None:
    assert shape_of(folder(tmp_path / "deep", num_hidden_layers=MAX_LAYERS)).layers == MAX_LAYERS
    with pytest.raises(InputError, match=f"num_hidden_layers = 1000000; needs a whole number from 1 to {MAX_LAYERS}"):
        shape_of(folder(tmp_path / "deeper", num_hidden_layers=10**6))
