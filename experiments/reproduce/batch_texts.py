"""Texts of the engine's batches on the demo pair: as they are, and with what a batch must repair left out.

Rows of a rectangle that accept unequal drafts are unpadded and padded anew. Their keys must move with them, and
positions must count from a row's own first token (section 3.1 of Batch Speculative Decoding Done Right). Each faulty
cache here omits one of both, and nothing else differs.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import takewhile
from typing import Any

import torch

from specfleet.engine.decoding.aligned import AlignedCache
from specfleet.engine.decoding.feed import Feed, Nodes
from specfleet.engine.decoding.models import CausalLM, load_model
from specfleet.engine.launch.bodies import THREADS
from specfleet.engine.net.clock import now_s
from specfleet.engine.node.aligned import AlignedExecutor
from specfleet.engine.node.build import with_positions
from specfleet.engine.node.prompts import prompts_of
from specfleet.engine.node.real import verifier_node
from specfleet.engine.replayed.continuations import continue_greedily
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import streams_of

PRECISION = "float32"


class PositionsOfPlaces(AlignedCache):
    """Positions count from the rectangle's first place: cached keys keep the positions of an earlier padding."""

    def place(self, tags: Sequence[int], counts: Sequence[int], nodes: Nodes | None = None) -> Feed:
        """Return the feed with every row's padding in its positions."""
        self.realign(tags)
        feed = super().place(tags, counts, nodes)
        paddings = [self.rows[tag].padding for tag, count in zip(tags, counts, strict=True) for _ in range(count)]
        return replace(feed, mask=feed.visible, positions=feed.positions + torch.tensor(paddings))


class UnmovedKeys(AlignedCache):
    """Rows of a batch get a new padding, and their keys stay: masks hide keys of the text, and show those of others."""

    def _assemble(self, tags: Sequence[int], paddings: Sequence[int], width: int) -> None:
        for tag, padding in zip(tags, paddings, strict=True):
            row = self.rows[tag]
            if row.block.places.shape[2] > 1:  # in a batch already: a prompt is placed correctly
                row.padding = padding
        super()._assemble(tags, paddings, width)


CACHES: dict[str, type[AlignedCache]] = {"no position repair": PositionsOfPlaces, "no cache repair": UnmovedKeys}


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on as many threads as a node: on a busy host more wait for each other, many times as long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def scenario_of(rows: dict[str, Any], requests: int, new_tokens: int) -> Scenario:
    """Return a batch of the demo pair, on prompts of mixed length. `rows`: keys of the target, its rule for rows."""
    workload = {"requests": requests, "streams": requests, "prompt_tokens": {"low": 16, "high": 96}}
    return make_scenario({
        "name": "batch-table1", "precision": PRECISION, "drafters": {"depth": 5, "place": "target"},
        "verifiers": rows, "workload": workload | {"new_tokens": new_tokens},
    })  # fmt: skip


def load_target() -> CausalLM:
    """Return the demo pair's target on the CPU."""
    return load_model("demo", "target", PRECISION, "cpu")


def plain_texts(scenario: Scenario, model: CausalLM) -> dict[int, list[int]]:
    """Decode every request alone and without speculation; return the new tokens by request."""
    fleet = resolve(scenario)
    prompts, texts = prompts_of(fleet), dict[int, list[int]]()
    for request in (request for requests in streams_of(fleet).values() for request in requests):
        decoded = continue_greedily(model, [prompts[request.number][: request.prompt_tokens]], request.new_tokens)
        texts[request.number] = decoded["continuations"][0].tolist()
    return texts


def batch_texts(scenario: Scenario, model: CausalLM, cache: type[AlignedCache] | None = None) -> dict[int, list[int]]:
    """Decode the requests by the scenario's rule in the engine; `cache` replaces the target's."""
    fleet = with_positions(resolve(scenario))
    node = verifier_node(fleet, 0, prompts_of(fleet), {}, model=model)
    if cache is not None:
        executor = node.worker.executor
        assert isinstance(executor, AlignedExecutor)
        executor.target.cache = cache(model.shape, model.dtype, model.device)
    node.serve(now_s())
    return node.outputs


def matches(texts: dict[int, list[int]], wanted: dict[int, list[int]]) -> dict[str, float]:
    """Return the share of equal texts, "exact", and the mean share of tokens before a first difference, "partial"."""
    equal = [
        sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, wanted[number], strict=True))) / len(text)
        for number, text in texts.items()
    ]
    return {"exact": sum(share == 1 for share in equal) / len(equal), "partial": sum(equal) / len(equal)}
