"""Greedy texts: the engine's in every mode against those of transformers' own `generate`."""

from collections.abc import Sequence
from copy import deepcopy
from functools import cache

import numpy as np
import torch
from transformers import LlamaConfig, PreTrainedModel

from engine.decoding.decode import decode_plain, decode_speculatively
from engine.decoding.draft import Drafter
from engine.decoding.eagle import EagleDrafter, EagleHead, head_shape
from engine.decoding.models import CausalLM
from engine.decoding.verify import Target
from engine.node.batch import drive
from engine.node.batch_executor import BatchExecutor
from engine.node.build import new_streams, new_target
from experiments.batch_rules import rule_of
from experiments.zoo.species import KIN_NOISE, VOCABULARY, disturb
from fleet.policies.shapes import CHAIN, Shape, tree
from fleet.scenario.reading import make_scenario
from fleet.scenario.settle import settle
from fleet.scenario.settled import Fleet
from fleet.scenario.workload import streams_of
from fleet.stations.build import batch_station

ROWS = 3  # texts of a batch
ALONE = 2  # texts of the other modes
NEW_TOKENS = 8
DEPTH = 4
SHAPES = {"chain": CHAIN, "tree": tree(2, 2, 1), "dynamic tree": Shape("dynamic", width=3, most=7)}
OWN = "own drafts accepted"
EAGLE_SHAPES = ("chain", "dynamic tree")
BATCHES = ("slots", "EqSpec", "ExSpec", "rollback")  # addressed in place, realigned, grouped by length, rolled back
MODES = [
    "plain", *SHAPES, *(f"EAGLE {name}" for name in EAGLE_SHAPES), OWN,
    *(f"batch, {rule}" for rule in BATCHES),
]  # fmt: skip


def texts_of(network: PreTrainedModel) -> list[list[int]]:
    """Return what transformers says greedily after each prompt."""
    texts = []
    for prompt in prompts():
        ids = torch.tensor([prompt])
        said = network.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=NEW_TOKENS,
            min_new_tokens=NEW_TOKENS,
            do_sample=False,
        )
        texts.append(said[0, len(prompt) :].tolist())
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
            texts = said(mode, target, kin)
            equal[mode] = texts == wanted[: len(texts)]
    return equal


def said(mode: str, target: CausalLM, kin: CausalLM) -> list[list[int]]:
    """Return the texts that a mode says after the first prompts."""
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
        return EagleDrafter(head, target, shape, cache=target.new_cache(shape=head_shape(head)))

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
    lengths = {"requests": ROWS, "prompt_tokens": {"low": 5, "high": 12}, "new_tokens": NEW_TOKENS}
    content = {"name": "zoo", "drafters": {"depth": DEPTH}, "batch": {"rule": rule_of(rule, 2)}, "workload": lengths}
    return settle(make_scenario(content))


@cache
def prompts() -> list[list[int]]:
    """Return the prompts, as long as the requests of the batches have them."""
    rng = np.random.default_rng(0)
    requests = [request for own in streams_of(fleet_of("slots")).values() for request in own]
    requests.sort(key=lambda request: request.number)
    return [rng.integers(3, VOCABULARY, size=request.prompt_tokens).tolist() for request in requests]


def batched(target: CausalLM, kin: CausalLM, rule: str) -> list[list[int]]:
    """Return the texts after all prompts, decoded in batches by a rule."""
    fleet = fleet_of(rule)
    station = batch_station(fleet)
    drafter = Drafter(kin, cache=kin.aligned_cache() if station.rule.aligns else None)
    verifier = new_target(fleet, target, station.rule)
    executor = BatchExecutor(drafter, verifier, new_streams(fleet, prompts()), station.rule)
    drive(fleet, station, executor, target.device)
    return [executor.outputs[number] for number in range(ROWS)]
