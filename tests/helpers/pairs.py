"""An untrained pair with heads, in a folder, and small fleets of it, for tests of the engine."""

from pathlib import Path

import numpy as np
import torch

from specfleet.engine.decoding.eagle import EagleHead
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.scenario import Scenario
from tests.helpers.eagle3 import Layout, random_tensors, write_checkpoint
from tools.demo_pair.train_eagle import save_head

VOCABULARY = 40
HEAD3 = Layout(heads=2, kv_heads=1, size=16, mlp=64, drafted=30, ids="inputs", taps=(0, 1, 2))
SHARPNESS = 30.0  # of all logits: untrained ones are flat, and rules that test the entropy would always stop
KIN_NOISE = 0.15  # of the kin's weights, in standard deviations of the target's
BESIDE: dict[str, object] = {"place": "target", "depth": 5}
REST = {"kind": "lookup", "least": 2, "drafter": "rest"}
DRAFTERS: dict[str, dict[str, object]] = {
    "tree": {"shape": {"kind": "tree", "branching": [3, 1]}},
    "dynamic tree": {"shape": {"kind": "dynamic", "width": 3, "most": 7}},
    "EAGLE": {"kind": "eagle", "model": "head"},
    "EAGLE tree": {"kind": "eagle", "model": "head", "shape": {"kind": "tree", "branching": [2, 2, 1]}},
    "EAGLE-3": {"kind": "eagle", "model": "head3"},
    "EAGLE-3 tree": {"kind": "eagle", "model": "head3", "shape": {"kind": "tree", "branching": [2, 2, 1]}},
    "block": {"kind": "block", "model": "kin"},
    "prompt lookup": {"kind": "lookup"},
    "suffix decoding": {"kind": "suffix"},
    "suffix, then EAGLE": BESIDE | {"kind": "eagle", "model": "head", "first": {"kind": "suffix", "least": 2}},
    "lookup, then block": BESIDE | {"kind": "block", "model": "kin", "first": REST},
}


def write_pair(folder: Path) -> Path:
    """Write an untrained pair with a small vocabulary, two EAGLE heads, and prompts; return the folder.

    Beside the drafter, which guesses badly, there is a `kin` of the target: its drafts are often accepted as a whole,
    in part, or not at all.
    """
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()

    for role, layers in (("target", 3), ("drafter", 1)):
        torch.manual_seed(layers)
        config = LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=layers,
            num_attention_heads=2, num_key_value_heads=1, bos_token_id=None, eos_token_id=None,
        )  # fmt: skip
        model = LlamaForCausalLM(config)
        model.lm_head.weight.data *= SHARPNESS
        model.save_pretrained(folder / role)
        if role == "target":
            save_head(EagleHead(config, model.get_input_embeddings()), folder / "head")
            write_checkpoint(folder / "head3", HEAD3, random_tensors(HEAD3))
            with torch.no_grad():
                for weight in model.parameters():
                    weight.add_(KIN_NOISE * weight.std() * torch.randn(weight.shape))
            model.config.pard_token = VOCABULARY - 1  # untrained: as a drafter of blocks it knows the first token alone
            model.save_pretrained(folder / "kin")
    rng = np.random.default_rng(0)
    for name, tokens in (("prompts", 20), ("long-prompts", 40)):
        lines = (f'{{"prompt_ids": {rng.integers(VOCABULARY, size=tokens).tolist()}}}' for _ in range(20))
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    return folder


def pair_scenario(tiny: Path, **tables: dict[str, object]) -> Scenario:
    """A scenario of the tiny pair in float64."""
    content: dict[str, dict[str, object]] = {
        "drafters": {"model": str(tiny / "drafter"), "depth": 4},
        "verifiers": {"model": str(tiny / "target"), "count": 2},
        "workload": {
            "prompts": str(tiny / "prompts.jsonl"), "prompt_tokens": 16, "new_tokens": 20, "requests": 6,
        },
    }  # fmt: skip
    for name, table in tables.items():
        content[name] = content.get(name, {}) | table
    if "allocate" in content["verifiers"]:
        content["drafters"].pop("depth", None)  # the rule has the lengths
    return make_scenario({"name": "tiny", "precision": "float64", **content})


def drafters_of(tiny: Path, kind: str) -> dict[str, object]:
    """The keys of `[drafters]` for a kind of draft; EAGLE heads are those beside the tiny pair."""
    drafters = DRAFTERS[kind]
    return drafters | {"model": str(tiny / str(drafters["model"]))} if "model" in drafters else drafters
