"""Proof of model types: a tiny random model of each, compared with transformers' own computation.

Of every type that the engine admits, next-token probabilities are those of transformers however the text is fed, and
greedy texts are those of its `generate` in every mode. All other types are refused.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from transformers import LlamaConfig, PreTrainedModel, __version__
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import logging

from bench.decoding import rule_of
from bench.harness import Aim, Options, Report, Row, first_rows
from bench.speculative import decode_plain, decode_speculatively
from bench.tiny_models import KIN_NOISE, VARIANTS, VOCABULARY, disturb, network_of, tiny_config
from specfleet.engine.decoding.admitted import ADMITTED
from specfleet.engine.decoding.cache import shape_of
from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.eagle import EagleDrafter, EagleHead
from specfleet.engine.decoding.feed import Nodes
from specfleet.engine.decoding.models import CausalLM
from specfleet.engine.decoding.trees import make_tree
from specfleet.engine.decoding.verify import Target
from specfleet.engine.net.clock import now_s
from specfleet.engine.node.aligned import AlignedExecutor
from specfleet.engine.node.build import new_cache, new_streams, new_target
from specfleet.engine.node.node import Node
from specfleet.engine.node.serving import ServingExecutor
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.shapes import CHAIN, Shape, tree
from specfleet.fleet.records.recorder import RecordedStation
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import streams_of
from specfleet.fleet.stations.aligned import AlignedStation
from specfleet.fleet.stations.build import verifier_station

TOLERANCE = 1e-9  # of probabilities
TEXT = np.random.default_rng(5).integers(3, VOCABULARY, size=40).tolist()
BRANCHES = [0, 0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11]  # parents: a chain that is deeper than a window, and a sibling
SIBLING = 2
ROWS = 3  # texts of a batch
ALONE = 2  # texts of the other modes
NEW_TOKENS = 8
DEPTH = 4
SHAPES = {"chain": CHAIN, "tree": tree(2, 2, 1), "dynamic tree": Shape("dynamic", width=3, most=7)}
OWN = "own drafts accepted"
EAGLE_SHAPES = ("chain", "dynamic tree")
BATCHES = ("continuous", "EqSpec", "ExSpec", "rollback")  # in place, realigned, grouped by length, rolled back
MODES = [
    "plain", *SHAPES, *(f"EAGLE {name}" for name in EAGLE_SHAPES), OWN,
    *(f"batch, {rule}" for rule in BATCHES),
]  # fmt: skip

VARIANT_MODES = ("plain", "chain", "batch, EqSpec")  # of other configurations of a type that all modes were tried with

OPTIONS: Options = {
    "names": {"nargs": "*", "help": "types or variants; else all"},
}


def study(options: argparse.Namespace) -> Report:
    """Try the named types or all; list those that are admitted, with what was found, and those that are refused."""
    names = options.names or names_of()
    if unknown := sorted(set(names) - set(names_of())):
        raise InputError(f"transformers {__version__} knows no causal language model {', '.join(unknown)}")
    torch.set_num_threads(1)  # tiny models
    logging.set_verbosity_error()
    admitted = [name for name in names if name in ADMITTED or name in VARIANTS]
    rows = first_rows({name: partial(tried, name) for name in admitted})
    tables = {
        f"admitted, held against transformers {__version__}": rows,
        "refused": [{"type": name} for name in names if name not in admitted],
    }
    aims = [
        Aim("largest difference of probabilities", max((row["difference"] for row in rows), default=0), TOLERANCE),
        Aim("types with other texts than transformers'", sum(bool(row["other texts"]) for row in rows), 0),
    ]
    return Report(tables, aims)


def names_of() -> list[str]:
    """Return all types of the installed transformers, and the variants of admitted ones."""
    return [*sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES), *VARIANTS]


def tried(name: str) -> Row:
    """Try an admitted type in all modes, or a variant in some.

    Returns the largest difference of next-token probabilities, and the modes with texts other than transformers' own.
    """
    network = network_of(tiny_config(name))
    equal = modes_equal(network, VARIANT_MODES if name in VARIANTS else MODES)
    wrong = ", ".join(mode for mode, is_equal in equal.items() if not is_equal)
    return {"type": name, "difference": largest_difference(network), "modes": len(equal), "other texts": wrong}


class InFloat64(TorchFunctionMode):
    """Within it nothing is computed in single precision.

    transformers casts norms, softmax and rotary embeddings down to it, whatever the model is in; so a difference that
    is left is no rounding.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.float:
            return args[0].double()
        named = {name: _wide(value) for name, value in (kwargs or {}).items()}
        return func(*(_wide(value) for value in args), **named)


def _wide(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


def largest_difference(network: PreTrainedModel) -> float:
    """Return the largest difference between probabilities of the engine and of transformers, over all ways to feed.

    At once; two rows in pieces of unequal length; a tree after a row; rows that are padded to a common end.
    """
    with InFloat64(), torch.inference_mode():
        theirs = network(input_ids=torch.tensor([TEXT])).logits[0].softmax(-1)
        model = CausalLM(deepcopy(network))
        pairs = [at_once(model), in_pieces(model), as_a_tree(model), padded(model)]
        return max(float((logits.softmax(-1) - theirs[places]).abs().max()) for logits, places in pairs)


Found = tuple[torch.Tensor, list[int]]
"""Logits (n, vocabulary) and which places of the text they are those after (n)."""


def at_once(model: CausalLM) -> Found:
    """Feed the text as a prompt."""
    cache = model.new_cache(1, 64)
    cache.open(0)
    return model.logits(model.prefill(cache, 0, TEXT)), list(range(len(TEXT)))


def in_pieces(model: CausalLM) -> Found:
    """Feed four tokens of one row beside two of another, both somewhere in the text."""
    cache = model.new_cache(2, 64)
    for row in (0, 1):
        cache.open(row)
        model.prefill(cache, row, TEXT[: 20 + row])
    places = [*range(20, 24), *range(21, 23)]
    return model.logits(model.feed(cache, [0, 1], torch.tensor([TEXT[i] for i in places]), [4, 2])), places


def as_a_tree(model: CausalLM) -> Found:
    """Feed what follows as a tree with a branch that is wrong."""
    cache = model.new_cache(1, 64)
    cache.open(0)
    model.prefill(cache, 0, TEXT[:20])
    tree = make_tree(torch.tensor([BRANCHES]), len(BRANCHES) - 1, 2)
    right = [node for node in range(len(BRANCHES) + 1) if node != SIBLING]
    places = list(range(20, 20 + len(right)))
    tokens = torch.zeros(len(BRANCHES) + 1, dtype=torch.long)
    tokens[right] = torch.tensor([TEXT[i] for i in places])
    logits = model.logits(model.feed(cache, [0], tokens, [len(tokens)], Nodes(0, tree.ancestors, tree.depths)))
    return logits[right], places


def padded(model: CausalLM) -> Found:
    """Feed three tokens each to rows that were padded to a common end."""
    cache = model.aligned_cache()
    for row, length in enumerate((30, 17)):
        cache.open(row)
        model.prefill(cache, row, TEXT[:length])
    cache.realign([0, 1])
    places = [*range(30, 33), *range(17, 20)]
    return model.logits(model.feed(cache, [0, 1], torch.tensor([TEXT[i] for i in places]), [3, 3])), places


def texts_of(network: PreTrainedModel) -> list[list[int]]:
    """Return what transformers decodes greedily after each prompt."""
    texts, length = [], {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS}
    for prompt in prompts():
        ids = torch.tensor([prompt])
        output = network.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, **length)
        texts.append(output[0, len(prompt) :].tolist())
    return texts


def modes_equal(network: PreTrainedModel, modes: Sequence[str] = MODES) -> dict[str, bool]:
    """Return by mode whether all texts are those of transformers.

    Drafters are a kin of the target, which guesses in part, and an untrained EAGLE head, which hardly ever does.
    """
    wanted = texts_of(network)
    target = CausalLM(deepcopy(network))
    kin = CausalLM(disturb(deepcopy(network), KIN_NOISE, 2))
    equal = {}
    for mode in modes:
        if mode == OWN:
            equal[mode] = accepts_its_own(target)
        else:
            texts = texts_in(mode, target, kin)
            equal[mode] = texts == wanted[: len(texts)]
    return equal


def texts_in(mode: str, target: CausalLM, kin: CausalLM) -> list[list[int]]:
    """Return the texts of a mode after the first prompts."""
    kind, _, name = mode.partition(", ")
    if kind == "batch":
        return batched(target, kin, name)
    if mode == "plain":
        return [decode_plain(Target(target), prompt, NEW_TOKENS) for prompt in prompts()[:ALONE]]
    shape = SHAPES[mode.removeprefix("EAGLE ")]

    def drafter() -> Drafter:
        if not mode.startswith("EAGLE"):
            return Drafter(kin, shape)
        head = untrained_eagle_head(target)
        return EagleDrafter(head, target, shape, cache=target.new_cache(shape=shape_of(head.config)))

    return [
        decode_speculatively(Target(target), drafter(), prompt, NEW_TOKENS, DEPTH)[0] for prompt in prompts()[:ALONE]
    ]


def accepts_its_own(target: CausalLM) -> bool:
    """Whether a target accepts all drafts of its own; a drafter's cache that is wrong would harm only that."""
    new_tokens = 2 * (DEPTH + 1) + 1  # the prefill's own, and two rounds
    accepted = decode_speculatively(Target(target), Drafter(target), prompts()[0], new_tokens, DEPTH)[1]
    return accepted == [DEPTH, DEPTH]


def untrained_eagle_head(target: CausalLM) -> EagleHead:
    """Return an untrained EAGLE head that fits a target."""
    embedding = target.model.get_input_embeddings()
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=embedding.weight.shape[1], intermediate_size=48, num_attention_heads=4,
        num_key_value_heads=2, num_hidden_layers=1,
    )  # fmt: skip
    torch.manual_seed(3)
    return EagleHead(config, embedding).to(target.dtype).eval()


def fleet_of(rule: str) -> Fleet:
    """Return a fleet of batches of two rows by a rule, with as many requests as there are prompts."""
    lengths = {"requests": ROWS, "streams": ROWS, "prompt_tokens": {"low": 5, "high": 12}, "new_tokens": NEW_TOKENS}
    tables = {"drafters": {"depth": DEPTH, "place": "target"}, "verifiers": rule_of(rule, 2), "workload": lengths}
    return resolve(make_scenario({"name": "zoo", **tables}))


@cache
def prompts() -> list[list[int]]:
    """Return the prompts, as long as the requests of the batches have them."""
    rng = np.random.default_rng(0)
    requests = [request for own in streams_of(fleet_of("continuous")).values() for request in own]
    requests.sort(key=lambda request: request.number)
    return [rng.integers(3, VOCABULARY, size=request.prompt_tokens).tolist() for request in requests]


def batched(target: CausalLM, kin: CausalLM, rule: str) -> list[list[int]]:
    """Return the texts after all prompts, decoded in batches by a rule."""
    fleet = fleet_of(rule)
    station = verifier_station(fleet, 0)
    models = (
        Drafter(kin, cache=new_cache(kin, fleet.verifiers.aligned is not None, (2, 64))),
        new_target(fleet, target),
        new_streams(fleet, prompts()),
    )
    executor = (
        AlignedExecutor(*models, station.rule) if isinstance(station, AlignedStation) else ServingExecutor(*models)
    )
    Node(fleet, RecordedStation(station, "real"), executor, requests=streams_of(fleet)).serve(now_s())
    return [executor.outputs[number] for number in range(ROWS)]
