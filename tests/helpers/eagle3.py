"""Published checkpoints of EAGLE heads, EAGLE-3's of random layouts, and their results in plain torch and float64."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn.functional import silu

from specfleet.engine.decoding.checkpoints import FILES

VOCABULARY, WIDTH, LAYERS = 40, 32, 8  # of the target
EPSILON, THETA = 1e-5, 5e5
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Layout:
    """Differences of published EAGLE-3 checkpoints. `drafted`: tokens of the draft vocabulary, 0 for no key and map."""

    hidden: int = WIDTH
    heads: int = 4
    kv_heads: int = 2
    size: int = 8
    mlp: int = 48
    drafted: int = 25
    qkv_bias: bool = False
    output_bias: bool = False
    own_embedding: bool = False
    own_lm_head: bool = True
    before_residual: bool = False
    tied: bool = False
    ids: str = ""  # "outputs" or "inputs": how config.json numbers layers, if it does
    taps: tuple[int, ...] = (2, 4, 5)
    prefix: str = ""
    layer: str = "midlayer"
    file: str = "model.safetensors"
    shards: int = 1


def layout_of(seed: int) -> Layout:
    """Return a random layout."""
    rng = np.random.default_rng(seed)
    kv_heads = int(rng.choice([1, 2, 4]))
    hidden = int(rng.choice([WIDTH, 24, 48]))
    fits = hidden == WIDTH
    drafted = int(rng.choice([0, 10, 25, VOCABULARY]))
    ids = str(rng.choice(["", "outputs", "inputs"]))
    taps = (2, 4, 5) if not ids else tuple(sorted(rng.choice(np.arange(1, LAYERS), 3, replace=False).tolist()))
    whole = drafted in (0, VOCABULARY)
    return Layout(
        hidden, kv_heads * int(rng.choice([1, 2])), kv_heads, int(rng.choice([8, 16])), int(rng.choice([40, 64])),
        drafted, *(bool(rng.integers(2)) for _ in range(2)),
        own_embedding=not fits or bool(rng.integers(2)), own_lm_head=not (fits and whole) or bool(rng.integers(2)),
        before_residual=bool(rng.integers(2)), ids=ids, taps=taps, prefix=str(rng.choice(["", "model."])),
        layer=str(rng.choice(["midlayer", "layers.0"])), file=str(rng.choice(FILES)),
        shards=int(rng.choice([1, 3])),
    )  # fmt: skip


def layer_shapes(layout: Layout, layer: str, read: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a decoder layer's weights; its attention reads `read` numbers a token."""
    hidden, q, kv = layout.hidden, layout.heads * layout.size, layout.kv_heads * layout.size
    return {
        f"{layer}.self_attn.q_proj.weight": (q, read),
        f"{layer}.self_attn.k_proj.weight": (kv, read),
        f"{layer}.self_attn.v_proj.weight": (kv, read),
        f"{layer}.self_attn.o_proj.weight": (hidden, q),
        f"{layer}.mlp.gate_proj.weight": (layout.mlp, hidden),
        f"{layer}.mlp.up_proj.weight": (layout.mlp, hidden),
        f"{layer}.mlp.down_proj.weight": (hidden, layout.mlp),
        f"{layer}.post_attention_layernorm.weight": (hidden,),
    }


def random_tensors(layout: Layout) -> Tensors:
    """Return the tensors of an EAGLE-3 checkpoint, by their published names."""
    generator = torch.Generator().manual_seed(1)
    hidden, q, kv = layout.hidden, layout.heads * layout.size, layout.kv_heads * layout.size
    shapes = {"fc.weight": (hidden, len(layout.taps) * WIDTH), **layer_shapes(layout, "midlayer", 2 * hidden)}
    shapes |= dict.fromkeys(
        ("midlayer.hidden_norm.weight", "midlayer.input_layernorm.weight", "norm.weight"), (hidden,)
    )
    if layout.qkv_bias:
        shapes |= {f"midlayer.self_attn.{n}_proj.bias": (width,) for n, width in (("q", q), ("k", kv), ("v", kv))}
    if layout.output_bias:
        shapes["midlayer.self_attn.o_proj.bias"] = (hidden,)
    if layout.own_embedding:
        shapes["embed_tokens.weight"] = (VOCABULARY, hidden)
    if layout.own_lm_head:
        shapes["lm_head.weight"] = (layout.drafted or VOCABULARY, hidden)
    tensors = {
        name: torch.randn(shape, generator=generator, dtype=torch.float64) / 3 + ("norm" in name)
        for name, shape in shapes.items()
    }
    if layout.drafted:
        ids = torch.randperm(VOCABULARY, generator=generator)[: layout.drafted].sort().values
        tensors["d2t"] = ids - torch.arange(layout.drafted)
        tensors["t2d"] = torch.zeros(VOCABULARY, dtype=torch.bool).index_fill(0, ids, 1)
    return tensors


def write_checkpoint(folder: Path, layout: Layout, tensors: Tensors, **config: object) -> Path:
    """Write a published checkpoint, with unused keys."""
    folder.mkdir(exist_ok=True)
    content: dict[str, object] = {
        "architectures": ["LlamaForCausalLMEagle3"], "bos_token_id": 1, "hidden_act": "silu",
        "hidden_size": layout.hidden, "intermediate_size": layout.mlp, "model_type": "llama", "head_dim": layout.size,
        "num_attention_heads": layout.heads, "num_key_value_heads": layout.kv_heads, "num_hidden_layers": 1,
        "rms_norm_eps": EPSILON, "rope_theta": THETA, "rope_scaling": None, "max_position_embeddings": 2048,
        "tie_word_embeddings": layout.tied, "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": VOCABULARY,
    }  # fmt: skip
    if layout.drafted:
        content["draft_vocab_size"] = layout.drafted
    if layout.before_residual:
        content["norm_before_residual"] = True
    if layout.ids == "inputs":
        content["eagle_aux_hidden_state_layer_ids"] = list(layout.taps)
    if layout.ids == "outputs":
        outputs = [number - 1 for number in layout.taps]
        content["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": outputs, "use_aux_hidden_state": True}
    (folder / "config.json").write_text(json.dumps(content | config))
    named = {}
    for name, tensor in tensors.items():
        prefix = "" if name in ("d2t", "t2d", "lm_head.weight") else layout.prefix
        named[prefix + name.replace("midlayer", layout.layer)] = tensor
    write_weights(folder, named, layout.file, layout.shards)
    return folder


def write_weights(folder: Path, tensors: Tensors, file: str = "model.safetensors", shards: int = 1) -> None:
    """Write tensors into a file, or into several with an index."""
    write = save_file if file.endswith("safetensors") else torch.save
    if shards == 1:
        write(tensors, folder / file)
        return
    stem, suffix = file.split(".")
    where = {name: f"{stem}-{1 + n % shards:05}-of-{shards:05}.{suffix}" for n, name in enumerate(tensors)}
    for shard in set(where.values()):
        write({name: tensor for name, tensor in tensors.items() if where[name] == shard}, folder / shard)
    (folder / f"{file}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))


class Reference:
    """The head of a checkpoint, as the paper describes it; without caches, with loops."""

    def __init__(self, layout: Layout, tensors: Tensors, target: torch.nn.Module) -> None:
        self.layout = layout
        lent = {"embed_tokens": target.get_input_embeddings(), "lm_head": target.get_output_embeddings()}
        self.w = {f"{name}.weight": layer.weight.detach() for name, layer in lent.items()} | tensors
        self.target = target

    def logits(self, committed: list[int], drafted: list[int]) -> torch.Tensor:
        """Logits (VOCABULARY,) after the committed tokens and a drafted path."""
        states = self.target.model(torch.tensor([committed]), output_hidden_states=True).hidden_states
        read = torch.cat([states[layer][0, :-1] for layer in self.layout.taps], -1)
        features = list(read @ self.w["fc.weight"].T)
        for known in range(len(drafted) + 1):
            outputs = self.outputs([*committed[1:], *drafted[:known]], torch.stack(features))
            features.append(outputs[-1])
        logits = norm(features[-1], self.w["norm.weight"]) @ self.w["lm_head.weight"].T
        if "d2t" not in self.w:
            return logits
        everything = torch.full((VOCABULARY,), -torch.inf, dtype=torch.float64)
        for number, offset in enumerate(self.w["d2t"].tolist()):
            everything[number + offset] = logits[number]
        return everything

    def outputs(self, tokens: list[int], features: torch.Tensor) -> torch.Tensor:
        """Outputs (T, hidden) of the layer for tokens (T,) and the features one place before them (T, hidden)."""
        embedded = norm(self.w["embed_tokens.weight"][tokens], self.w["midlayer.input_layernorm.weight"])
        normed = norm(features, self.w["midlayer.hidden_norm.weight"])
        stream = normed if self.layout.before_residual else features
        return layer_outputs(self.w, "midlayer", self.layout, torch.cat([embedded, normed], -1), stream)


def layer_outputs(w: Tensors, layer: str, layout: Layout, read: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
    """Outputs (T, hidden) of a decoder layer; its attention reads (T, numbers), and adds to `stream` (T, hidden)."""

    def projected(x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ w[f"{layer}.{name}.weight"].T + w.get(f"{layer}.{name}.bias", 0)

    q, k, v = (projected(read, f"self_attn.{name}_proj").view(len(read), -1, layout.size) for name in "qkv")
    q, k = (torch.stack([rotated(heads, t) for t, heads in enumerate(part)]) for part in (q, k))
    rows = []
    for t in range(len(read)):
        heads = []
        for head in range(layout.heads):
            shared = head * layout.kv_heads // layout.heads
            scores = k[: t + 1, shared] @ q[t, head] / layout.size**0.5
            heads.append(scores.softmax(0) @ v[: t + 1, shared])
        rows.append(torch.cat(heads))
    stream = stream + projected(torch.stack(rows), "self_attn.o_proj")
    inner = norm(stream, w[f"{layer}.post_attention_layernorm.weight"])
    return stream + projected(
        silu(projected(inner, "mlp.gate_proj")) * projected(inner, "mlp.up_proj"), "mlp.down_proj"
    )


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Root mean square norm."""
    return x / (x.pow(2).mean(-1, keepdim=True) + EPSILON).sqrt() * weight


def rotated(x: torch.Tensor, position: int) -> torch.Tensor:
    """Rotate (heads, size) pairwise; Llama models compute angles in float32, whatever their precision."""
    size = x.shape[-1]
    speeds = 1 / THETA ** (torch.arange(0, size, 2, dtype=torch.float32) / size)
    angles = torch.tensor(float(position), dtype=torch.float32) * speeds
    cos, sin = angles.cos().double(), angles.sin().double()
    one, other = x.chunk(2, -1)
    return torch.cat([one * cos - other * sin, other * cos + one * sin], -1)
