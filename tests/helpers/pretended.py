"""A pretended accelerator: its tensors have shapes and no content, so nothing can be read from them.

As a program it runs the engine's drafting and verification there and prints the copies to the host by operation.
Tensors of two devices do not mix, and any dependence on content except by `tolist` is an error.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
from transformers import LlamaConfig, LlamaForCausalLM

from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.eagle import Eagle3Head, EagleDrafter, EagleHead
from specfleet.engine.decoding.graphs import Graphs
from specfleet.engine.decoding.models import CausalLM
from specfleet.engine.decoding.rules import Rule
from specfleet.engine.decoding.sampling import Sampling
from specfleet.engine.decoding.verify import Target, Verdict
from specfleet.fleet.policies.shapes import CHAIN, Shape, dynamic, tree

T = TypeVar("T")
NAME = "pretended"
CONFIG = LlamaConfig(
    vocab_size=40, hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=6,
    num_key_value_heads=2,
)  # fmt: skip
CASES: list[tuple[Shape, Rule]] = [(CHAIN, "rejection"), (tree(2, 1), "without-replacement"), (dynamic(3, 8), "match")]
DEPTH = 3
TAPS, DRAFTED = (0, 1), 25  # of the EAGLE-3 head: its tapped layers, and its draft vocabulary


class Pretended(FakeTensorMode):
    """torch's own fakes, for a device that no build of torch has."""

    avoid_device_init = True


class Host:
    """Counts copies of tensors to the host; all of them read zeros."""

    copies = 0

    def tolist(self, tensor: torch.Tensor) -> object:
        self.copies += tensor.device.type == NAME
        return np.zeros(tensor.shape, int).tolist()

    def during(self, work: Callable[[], T]) -> tuple[T, int]:
        before = self.copies
        return work(), self.copies - before


def moved(module: torch.nn.Module) -> torch.nn.Module:
    """Replace all weights by pretended ones in half precision, without content."""
    for part in module.modules():
        for name, weight in part._parameters.items():
            if weight is not None and weight.device.type != NAME:
                there = torch.empty(weight.shape, dtype=torch.bfloat16, device=NAME)
                part._parameters[name] = torch.nn.Parameter(there)
        for name, buffer in part._buffers.items():
            if buffer is not None and buffer.device.type != NAME:
                part._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype, device=NAME)
    return module


def copies(host: Host, model: CausalLM, drafter: Drafter, sampling: Sampling) -> dict[str, list[int]]:
    """Copies to the host of two rounds of three rows with texts and drafts of different length, by operation."""
    taps = drafter.head.taps if isinstance(drafter, EagleDrafter) else ()
    target, tags, depths = Target(model, drafter.rule, taps=taps), [0, 1, 2], [DEPTH, DEPTH - 1, DEPTH]
    for tag in tags:
        target.open(tag, list(range(5 + tag)), sampling)
        first = target.prefill(tag)
        drafter.open(tag, [*range(5 + tag), first.token], sampling)
        drafter.read(tag, hidden=first.hidden)

    def advance(verdicts: Sequence[Verdict]) -> None:
        for tag, verdict in zip(tags, verdicts, strict=True):
            drafter.advance(
                tag, verdict.path, verdict.tokens, verdict.committed_hidden if drafter.reads_hidden else None
            )

    counts: dict[str, list[int]] = {"draft": [], "verify": [], "advance": []}
    for _ in range(2):
        drafts, drafting = host.during(partial(drafter.draft, tags, depths))
        assert {drafts.tokens.device.type, model.device.type} == {NAME}
        verdicts, verifying = host.during(partial(target.verify, tags, drafts))
        _, advancing = host.during(partial(advance, verdicts))
        for name, number in zip(counts, (drafting, verifying, advancing), strict=True):
            counts[name].append(number)
    return counts


def main() -> None:
    """Print the copies of all cases as JSON."""
    host, by_case = Host(), {}
    _setup_privateuseone_for_python_backend(NAME)
    plain, head = LlamaForCausalLM(CONFIG), EagleHead(CONFIG)
    head3 = Eagle3Head(CONFIG, TAPS, CONFIG.hidden_size, DRAFTED)
    FakeTensor.tolist = lambda tensor: host.tolist(tensor)  # noqa: PLW0108  (bound to the tensor, not to the host)
    with Pretended():
        model, head, head3 = CausalLM(moved(plain)), moved(head), moved(head3)
        head3.token_ids = torch.arange(DRAFTED, device=NAME)
        for graphs in (None, Graphs(lambda work: work)):
            model.graphs = graphs
            for shape, rule in CASES:
                for temperature in (0.0, 1.0):
                    for name, drafter in (
                        ("model", Drafter(model, shape, rule)), ("eagle", EagleDrafter(head, model, shape, rule)),
                        ("eagle3", EagleDrafter(head3, model, shape, rule)),
                    ):  # fmt: skip
                        case = f"{name}, {shape.kind}, T={temperature}, {'eager' if graphs is None else 'graphs'}"
                        by_case[case] = copies(host, model, drafter, Sampling(temperature))
    print(json.dumps(by_case))  # noqa: T201  (for the test that runs this)


if __name__ == "__main__":
    main()
