"""Checkpoints of draft heads, EAGLE's and EAGLE-3's: config.json and tensors in the published layout.

Published files differ: some have an embedding or an LM head of their own, some put `model.` before every name, some are
in shards, and some heads have biases where their target has them. Present tensors are used, those that config.json
promises must be present, and an unused tensor is an error.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from specfleet.engine.decoding.checkpoints import TABLES, read_tensors, some_of
from specfleet.engine.decoding.eagle import AnyHead, Eagle3Head, EagleHead
from specfleet.engine.decoding.folders import explained
from specfleet.engine.decoding.llama import STATIC_ROPE
from specfleet.fleet.errors import InputError
from specfleet.fleet.inputs.text import read_json, shortened

Tensors = Mapping[str, torch.Tensor]
Content = Mapping[str, object]  # of a config.json

LAYERS_KEY = "eagle_aux_hidden_state_layer_ids"
MIN_LAYERS = 7  # of a target with three different default layers
EMBEDDING, LM_HEAD = "embed_tokens.weight", "lm_head.weight"  # tensors that may be the target's instead
DRAFT_IDS, IS_DRAFTED = "d2t", "t2d"  # maps between the draft vocabulary and the target's
NEEDED_KEYS = ("intermediate_size", "num_attention_heads")  # transformers would assume those of a 7B model


def load_head(folder: Path, target: nn.Module, dtype: torch.dtype, device: torch.device | str) -> AnyHead:
    """Load a published checkpoint for `target`, a causal language model; InputError if it does not fit."""
    content = read_head_config(folder)
    tensors, maps, make = _named_plainly(folder, read_tensors(folder)), {}, _empty_eagle
    if is_eagle3(content):
        maps = {name: tensors.pop(name) for name in (DRAFT_IDS, IS_DRAFTED) if name in tensors}
        tensors = {name.replace("layers.0.", "midlayer.", 1): tensor for name, tensor in tensors.items()}
        make = _empty_eagle3
    with explained(folder, "no draft head can be loaded from it"):
        with torch.device("meta"):  # weights come from the checkpoint only
            head = make(folder, content, tensors, target)
        _set_biases(head, tensors)
        _check(folder, tensors, own_tensors(head))
    # strict would require the target's tensors
    head.load_state_dict(
        {name: tensor.to(device, dtype) for name, tensor in tensors.items()}, strict=False, assign=True
    )
    if isinstance(head, Eagle3Head):
        if head.lm_head is None:
            tied = head.config.tie_word_embeddings
            head.lm_head = _tied(head.embed_tokens) if tied else target.get_output_embeddings()
        ids = _token_ids(folder, maps, head.lm_head.weight.shape[0], head.config.vocab_size)
        head.token_ids = None if ids is None else ids.to(device)
    # Computed, not loaded, and never in half precision.
    head.rotary_emb = LlamaRotaryEmbedding(config=head.config).to(device)
    return head.eval()


def own_tensors(head: AnyHead) -> dict[str, torch.Tensor]:
    """Return the tensors of a checkpoint of `head`: all of its weights but the target's."""
    borrowed = {EMBEDDING: not head.owns_embedding, LM_HEAD: not head.owns_lm_head}
    return {name: weight for name, weight in head.state_dict().items() if not borrowed.get(name, False)}


def read_head_config(folder: Path) -> dict[str, object]:
    """Read a head's config.json; InputError if there is none, or not that of a Llama-type head."""
    path = folder / "config.json"
    if not path.is_file():
        raise InputError(f"{folder}: no config.json; expected that of a Llama-type draft head")
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"{path}: needs a JSON object; holds {shortened(content)}")
    for key in NEEDED_KEYS:
        if key not in content:
            raise InputError(f"{path}: no {key}; expected that of the head's decoder layer")
    if content.get("hidden_act", "silu") != "silu":
        raise InputError(f"{path}: hidden_act = {content['hidden_act']!r}; allowed: 'silu'")
    if content.get("mlp_bias"):
        raise InputError(f"{path}: mlp_bias = {content['mlp_bias']}; allowed: false")
    return content


def read_taps(folder: Path, layers: int) -> tuple[int, ...]:
    """Return the layers of a target that the head in a folder reads as inputs; none for EAGLE's first version.

    `layers`: the target's number of layers.
    """
    content = read_head_config(folder)
    return tapped_layers(content, layers, folder / "config.json") if is_eagle3(content) else ()


def _named_plainly(folder: Path, tensors: Tensors) -> dict[str, torch.Tensor]:
    """Return tensors without a common prefix of their names, and without computed tables."""
    plain: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        short = name.removeprefix("model.")
        if short in plain:
            raise InputError(f"{folder}: tensor {short} is there twice, with the prefix 'model.' and without")
        if not short.endswith(TABLES):
            plain[short] = tensor
    return plain


def _config_of(folder: Path, content: Content, vocabulary: int, width: object) -> LlamaConfig:
    """Return the head's config with the target's vocabulary and this width; the tensors are checked later."""
    sizes = {"vocab_size": vocabulary, "num_hidden_layers": 1, "hidden_size": width}
    with explained(folder / "config.json", "not that of a Llama-type draft head"):
        config = LlamaConfig.from_dict({**content, **sizes})
    rope = config.rope_parameters["rope_type"]
    if rope not in STATIC_ROPE:
        raise InputError(
            f"{folder / 'config.json'}: rope_type = {rope!r}, which depends on the length of the text; allowed: "
            f"{', '.join(sorted(STATIC_ROPE))}"
        )
    return config


def _empty_eagle(folder: Path, content: Content, tensors: Tensors, target: nn.Module) -> AnyHead:
    embedding = target.get_input_embeddings()
    config = _config_of(folder, content, *embedding.weight.shape)
    return EagleHead(config, None if EMBEDDING in tensors else embedding, LM_HEAD in tensors)


def _empty_eagle3(folder: Path, content: Content, weights: Tensors, target: nn.Module) -> AnyHead:
    """Return a head with the sizes of config.json, which may be narrower or wider than the target."""
    embedding, path = target.get_input_embeddings(), folder / "config.json"
    vocabulary, width = embedding.weight.shape
    config = _config_of(folder, content, vocabulary, content.get("hidden_size", width))
    drafted = content.get("draft_vocab_size") or vocabulary
    if type(drafted) is not int or not 0 < drafted <= vocabulary:
        raise InputError(f"{path}: draft_vocab_size = {drafted!r}; allowed: 1 to the target's {vocabulary}")
    for name, less in ((EMBEDDING, None), (LM_HEAD, drafted < vocabulary)):
        if name not in weights and (config.hidden_size != width or less):
            raise InputError(
                f"{folder}: tensor {name} is missing, and the target's does not fit a head of {config.hidden_size} "
                f"numbers a token with a draft vocabulary of {drafted}"
            )
    taps = tapped_layers(content, int(target.config.num_hidden_layers), path)
    return Eagle3Head(
        config, taps, width, drafted if LM_HEAD in weights else 0, None if EMBEDDING in weights else embedding
    )


def _tied(embedding: nn.Module) -> nn.Linear:
    """Return an LM head that shares the weights of an embedding."""
    head = nn.Linear(1, 1, bias=False, device="meta")
    head.weight = embedding.weight
    return head


def _set_biases(head: AnyHead, tensors: Tensors) -> None:
    """Give projections a bias if config.json or the checkpoint has one: those of Qwen2's queries, keys and values have
    no key."""
    attention, config = head.decoder_layer.self_attn, head.config
    inner = ("q_proj", "k_proj", "v_proj")
    promised = bool(getattr(config, "qkv_bias", config.attention_bias))
    there = {name: f"{head.layer_name}.self_attn.{name}.bias" in tensors for name in (*inner, "o_proj")}
    wanted = dict.fromkeys(inner, promised or any(there[name] for name in inner))
    wanted["o_proj"] = there["o_proj"] or (config.attention_bias and not hasattr(config, "qkv_bias"))
    projections = {getattr(attention, name): biased for name, biased in wanted.items()}
    projections[head.fc] = head.fc.bias is not None or "fc.bias" in tensors
    for projection, biased in projections.items():
        bias = nn.Parameter(torch.empty(projection.out_features, device="meta")) if biased else None
        projection.register_parameter("bias", bias)


def _token_ids(folder: Path, maps: Tensors, drafted: int, vocabulary: int) -> torch.Tensor | None:
    """Return the target's ids of the draft vocabulary (drafted,); None if they are 0, 1, ... themselves."""
    if DRAFT_IDS not in maps:
        if drafted < vocabulary:
            raise InputError(f"{folder}: tensor d2t is missing; it maps {drafted} drafted tokens to the target's")
        return None
    offsets = maps[DRAFT_IDS]
    if offsets.shape != (drafted,) or offsets.dtype.is_floating_point or offsets.dtype == torch.bool:
        raise InputError(f"{folder}: tensor d2t has shape {tuple(offsets.shape)}; expected {drafted} whole numbers")
    ids = offsets.long() + torch.arange(drafted)
    if ids.min() < 0 or ids.max() >= vocabulary or len(ids.unique()) < drafted:
        raise InputError(
            f"{folder}: tensor d2t maps to tokens {int(ids.min())} to {int(ids.max())}; allowed: different ones from 0 "
            f"to {vocabulary - 1}"
        )
    if IS_DRAFTED in maps and not torch.equal(maps[IS_DRAFTED].flatten().nonzero()[:, 0], ids.sort().values):
        raise InputError(f"{folder}: tensors d2t and t2d do not agree on which tokens are drafted")
    return None if drafted == vocabulary and torch.equal(ids, torch.arange(drafted)) else ids


def _check(folder: Path, tensors: Tensors, expected: Tensors) -> None:
    """Raise InputError for tensors that are missing, unknown or of another shape."""
    if missing := expected.keys() - tensors.keys():
        name = min(missing)
        raise InputError(
            f"{folder}: tensor {some_of(missing)} is missing; expected one of shape {tuple(expected[name].shape)}"
        )
    for name, wanted in expected.items():
        if tensors[name].shape != wanted.shape:
            shapes = tuple(tensors[name].shape), tuple(wanted.shape)
            raise InputError(f"{folder}: tensor {name} has shape {shapes[0]}; expected {shapes[1]} for this target")
    if unknown := tensors.keys() - expected.keys():
        raise InputError(f"{folder}: tensor {some_of(unknown)} is unknown; expected only {', '.join(expected)}")


def is_eagle3(content: Content) -> bool:
    """Whether a head's config.json is that of an EAGLE-3 head."""
    architectures = content.get("architectures")
    named = isinstance(architectures, list) and any("eagle3" in str(name).lower() for name in architectures)
    return named or "draft_vocab_size" in content


def tapped_layers(content: Content, layers: int, source: object) -> tuple[int, ...]:
    """Return the layers of a target that a head with this config.json reads as inputs; `layers`: the target's number.

    The default is the third, the middle and the third last. `eagle_config` numbers the layers with the outputs to read
    (SpecForge, SGLang); a key of the same name at the top those with the inputs (vLLM). InputError names `source`.
    """
    nested = content.get("eagle_config")
    nested = nested if isinstance(nested, dict) else {}
    if nested.get("use_aux_hidden_state", True) is not True:
        raise InputError(f"{source}: use_aux_hidden_state = false, but an EAGLE-3 head reads hidden states of layers")
    if nested.get(LAYERS_KEY) is not None:
        shift, numbers = 1, nested[LAYERS_KEY]
    elif content.get(LAYERS_KEY) is not None:
        shift, numbers = 0, content[LAYERS_KEY]
    elif layers < MIN_LAYERS:
        raise InputError(
            f"{source}: a target of {layers} layers has no three layers that are usually read; name them by "
            f"eagle_config.{LAYERS_KEY}"
        )
    else:
        return 2, layers // 2, layers - 3
    if not isinstance(numbers, list) or not numbers or not all(type(number) is int for number in numbers):
        raise InputError(f"{source}: {LAYERS_KEY} = {numbers!r}; allowed: a list of numbers of layers")
    taps = sorted({number + shift for number in numbers})
    if len(taps) < len(numbers) or taps[0] < 0 or taps[-1] >= layers:
        raise InputError(
            f"{source}: {LAYERS_KEY} = {numbers}; allowed: distinct ones from {-shift} to {layers - 1 - shift}, for "
            f"the target has {layers} layers"
        )
    return tuple(taps)
