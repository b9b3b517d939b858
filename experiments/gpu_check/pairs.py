"""The models that are checked: the demo pair, and models of real shapes whose weights are random."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from engine.decoding.draft import Drafter
from engine.decoding.eagle import EagleDrafter, EagleHead
from engine.decoding.eagle_files import load_head
from engine.decoding.lookup import LookupDrafter
from engine.decoding.models import DEMO_PAIR, PRECISIONS, CausalLM, load_model
from engine.demo_pair.corpus import read_prompts
from experiments.gpu_check.place import Place
from fleet.policies.shapes import dynamic, tree

SMALL_TREE, DYNAMIC = tree(3, 1), dynamic(3, 10)
SHAPES = {
    "7B": {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
           "intermediate_size": 11008, "vocab_size": 32000},
    "1B": {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
           "intermediate_size": 8192, "vocab_size": 32000},
    "tiny": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
             "intermediate_size": 48, "vocab_size": 512},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pair:
    """A target with what drafts for it: a small model, an EAGLE head, or both."""

    target: CausalLM
    small: CausalLM | None
    head: EagleHead | None

    @property
    def models(self) -> list[CausalLM]:
        """The models that have graphs; a head's go with its target's."""
        return [self.target] if self.small is None else [self.target, self.small]

    def drafters(self) -> dict[str, Callable[[], Drafter | LookupDrafter]]:
        """All ways to draft for the target, by name; each makes a drafter with a cache of its own."""
        target, small, head = self.target, self.small, self.head
        ways: dict[str, Callable[[], Drafter | LookupDrafter]] = {"prompt lookup": lambda: LookupDrafter(target.device)}
        if small is not None:
            ways |= {
                "chain": lambda: Drafter(small),
                "tree": lambda: Drafter(small, SMALL_TREE, "without-replacement"),
                "dynamic tree": lambda: Drafter(small, DYNAMIC, "match"),
            }
        if head is not None:
            ways |= {
                "EAGLE chain": lambda: EagleDrafter(head, target),
                "EAGLE dynamic tree": lambda: EagleDrafter(head, target, DYNAMIC, "match"),
            }
        return ways


def demo_pair(place: Place, precision: str) -> Pair:
    """Return the demo pair, with its head if there is one; tiny: untrained models with the same vocabulary."""
    if place.tiny:
        target, small = (random_model(place, "tiny", precision, seed) for seed in (1, 2))
        return Pair(target, small, random_head(target))
    device = str(place.device)
    target, small = (load_model("demo", role, precision, device) for role in ("target", "drafter"))
    folder = DEMO_PAIR / "eagle"
    head = load_head(folder, target.model, target.dtype, target.device) if folder.is_dir() else None
    return Pair(target, small, head)


def demo_prompts(count: int, shortest: int = 64, step: int = 13) -> list[list[int]]:
    """Return prompts of the demo pair, of eight lengths that are `step` apart."""
    prompts = read_prompts("evaluation")
    return [prompts[number % len(prompts)][: shortest + step * (number % 8)] for number in range(count)]


def random_model(place: Place, shape: str, precision: str, seed: int = 0) -> CausalLM:
    """Make a LLaMA of that shape on the device itself, weights from a normal distribution with deviation 0.02."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        **SHAPES[shape], max_position_embeddings=8192, initializer_range=0.02, bos_token_id=None, eos_token_id=None
    )
    with place.device:
        model = AutoModelForCausalLM.from_config(config, dtype=PRECISIONS[precision])
    return CausalLM(model)


def random_head(target: CausalLM) -> EagleHead:
    """Make an EAGLE head of the target's width; timing does not depend on what it guesses."""
    config = LlamaConfig(**target.config.to_dict() | {"num_hidden_layers": 1, "layer_types": None})
    with target.device:
        head = EagleHead(config, target.model.get_input_embeddings())
    for part in (head.fc, head.layers):  # what it computes with; tables of positions stay precise
        part.to(target.dtype)
        for weights in part.parameters():
            if weights.dim() > 1:
                torch.nn.init.normal_(weights, std=0.02)
    return head.eval()
