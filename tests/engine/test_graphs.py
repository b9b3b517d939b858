"""Captured forward passes: the same numbers as eager ones, for all changes of rows and storage in between.

A CPU cannot capture, so a recorder replaces graphs: it traces a pass into its tensor operations, over the same tensors.
Like a CUDA graph it goes on reading and writing these after the cache has moved on.
"""

import gc
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.speculative import decode_plain, decode_speculatively
from bench.tiny_models import network_of, tiny_config
from specfleet.engine.decoding import graphs, llama
from specfleet.engine.decoding.cache import RowCache
from specfleet.engine.decoding.draft import Drafter
from specfleet.engine.decoding.eagle import EagleDrafter, EagleHead
from specfleet.engine.decoding.feed import Nodes
from specfleet.engine.decoding.graphs import Form, Graphs, Work, bucket, read_form
from specfleet.engine.decoding.models import CausalLM
from specfleet.engine.decoding.trees import make_tree
from specfleet.engine.decoding.verify import Target
from specfleet.fleet.policies.shapes import CHAIN, Shape, dynamic, tree
from tests.helpers.marks import slow
from tests.helpers.recorder import Reads, Recorder, run_again, taped

VOCABULARY = 40
TEXT = np.random.default_rng(1).integers(VOCABULARY, size=(6, 700))


def tiny(device: str = "cpu", layers: int = 2) -> CausalLM:
    """An untrained model with grouped queries."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(layers)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=48, intermediate_size=64, num_hidden_layers=layers, num_attention_heads=6,
        num_key_value_heads=2, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return CausalLM(LlamaForCausalLM(config).double().to(device))


@pytest.fixture(scope="module")
def model() -> CausalLM:
    return with_positions(tiny())


def with_positions(model: CausalLM) -> CausalLM:
    cache = model.new_cache(1, 300)
    cache.open(0)
    model.prefill(cache, 0, TEXT[0, :300].tolist())  # the table of positions is long enough after this
    return model


class Twins:
    """A model that captures and the same one that does not; both caches get the same calls."""

    def __init__(self, model: CausalLM, capture: Callable[[Work], Work], rows: int = 4, tokens: int = 64) -> None:
        self.model, self.graphs = model, Graphs(capture)
        self.caches = [model.new_cache(rows, tokens) for _ in range(2)]
        self.caches[0].leads = True
        with torch.inference_mode():
            self.caches[0].storage.fill_(1e3)  # unwritten places must not be read

    def both(self, tell: Callable[[RowCache], object]) -> None:
        for cache in self.caches:
            tell(cache)

    def feed(
        self, tags: Sequence[int], tokens: Sequence[int], counts: Sequence[int], nodes: Nodes | None = None
    ) -> None:
        line = torch.tensor(tokens, device=self.model.device)
        found = []
        for cache, captured in zip(self.caches, (self.graphs, None), strict=True):
            self.model.graphs = captured
            found.append(self.model.feed(cache, tags, line, counts, nodes))
        self.model.graphs = None
        # Equal up to the order of summation: the eager pass reads fewer places.
        assert torch.allclose(*found, rtol=0, atol=1e-12)

    def act(self, action: str, tags: Sequence[int], counts: Sequence[int], seed: int) -> None:
        opened = self.caches[0].in_order([tag for tag in tags if tag in self.caches[0].lengths])
        if action == "open":
            for tag in set(tags) - set(opened):
                self.both(lambda cache, tag=tag: cache.open(tag))
        elif action == "close":
            for tag in opened:
                self.both(lambda cache, tag=tag: cache.close(tag))
        elif opened:
            fed = counts[: len(opened)] if action == "ragged" else [counts[0]] * len(opened)
            rng = np.random.default_rng(seed)
            nodes, paths = None, [list(range(n)) for n in fed]
            if action == "tree":
                n = counts[0]
                fed = [n + 1] * len(opened)
                drafted = [[int(rng.integers(number)) for number in range(1, n + 1)] for _ in opened]
                grown = make_tree(torch.tensor(drafted, dtype=torch.long), n, n)
                nodes = Nodes(0, *(part.to(self.model.device) for part in (grown.ancestors, grown.depths)))
                paths = [[0, n] if line[n - 1] == 0 else [0] for line in drafted]
            self.feed(opened, rng.integers(VOCABULARY, size=sum(fed)).tolist(), fed, nodes)
            if action != "reject":
                self.both(lambda cache: cache.keep(opened, paths))


some_tags = st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True)
counts = st.lists(st.integers(1, 3), min_size=5, max_size=5)
names = st.sampled_from(["open", "close", "chain", "chain", "ragged", "reject", "tree", "tree"])
ACTIONS = st.lists(st.tuples(names, some_tags, counts, st.integers(0, 99)), min_size=15, max_size=40)
BEGIN = ("open", [0, 1], [1] * 5, 0)


@pytest.mark.parametrize(("kind", "examples"), [("llama", 20), slow("llama", 80), ("qwen3", 10)])
def test_captured_passes_compute_what_eager_ones_do(model: CausalLM, kind: str, examples: int) -> None:
    recorder = Recorder(taped)
    if kind != "llama":  # windows and norms of heads
        model = with_positions(CausalLM(network_of(tiny_config(kind))))

    @given(ACTIONS)
    @settings(max_examples=examples)
    def law(actions: list[tuple[str, list[int], list[int], int]]) -> None:
        twins = Twins(model, recorder)
        for action in (BEGIN, *actions):
            twins.act(*action)

    law()
    assert recorder.replayed > recorder.captured > 10  # else the law shows nothing


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a cuda device")
def test_cuda_graphs_compute_what_eager_passes_do() -> None:
    model, rng = tiny("cuda"), np.random.default_rng(5)
    twins = Twins(model, graphs.CudaCapture())
    twins.act(*BEGIN)
    for _ in range(300):
        action = str(
            rng.choice(["open", "close", "chain", "reject", "tree", "ragged"], p=[0.1, 0.05, 0.3, 0.2, 0.3, 0.05])
        )
        twins.act(action, rng.permutation(5)[: rng.integers(1, 5)].tolist(), rng.integers(1, 5, 5).tolist(), 1)
    assert len(twins.graphs)


def test_a_full_device_keeps_its_graphs(model: CausalLM) -> None:
    class Full(Recorder):
        def __call__(self, work: Work) -> Work:
            if self.captured == 2:
                work()  # a pass runs before it is captured
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().__call__(work)

    recorder = Full(taped)
    twins = Twins(model, recorder)
    twins.act(*BEGIN)
    for number in range(24):
        twins.act("chain", [0, 1], [1 + number % 4] * 5, number)
    assert recorder.captured == len(twins.graphs) == 2
    assert recorder.replayed > 2


@pytest.mark.parametrize("rows", [slow(1), 2, slow(4)])
def test_a_repeated_shape_is_captured_and_replayed(model: CausalLM, rows: int) -> None:
    recorder = Recorder(taped)
    twins = Twins(model, recorder, rows, 200)
    tags = list(range(rows))
    for tag in tags:
        twins.both(lambda cache, tag=tag: cache.open(tag))
    twins.feed(tags, TEXT[:rows, :9].flatten().tolist(), [9] * rows)
    twins.both(lambda cache: cache.keep(tags, [list(range(9))] * rows))
    for token in range(118):  # up to width 127
        twins.feed(tags, TEXT[:rows, token].tolist(), [1] * rows)
        twins.both(lambda cache: cache.keep(tags, [[0]] * rows))
    assert (recorder.captured, recorder.replayed) == (1, 117)
    for token in range(10):  # 128, and the next bucket
        twins.feed(tags, TEXT[:rows, token].tolist(), [1] * rows)
        twins.both(lambda cache: cache.keep(tags, [[0]] * rows))
    assert (recorder.captured, recorder.replayed) == (2, 126)


@pytest.mark.parametrize("is_tree", [False, True], ids=["chain", "tree"])
def test_inputs_of_a_graph_live_as_long_as_it(monkeypatch: pytest.MonkeyPatch, model: CausalLM, is_tree: bool) -> None:
    """A captured graph uses addresses and owns nothing; the captured work is dropped."""
    reads = []

    def capture(work: Work) -> Work:
        with Reads() as mode:
            output = work()
        reads.append(mode)
        return lambda: output

    grown = make_tree(torch.tensor([[0, 0]]), 1, 2)
    nodes = Nodes(0, grown.ancestors, grown.depths) if is_tree else None
    cache = model.new_cache(2, 64)
    monkeypatch.setattr(model, "graphs", Graphs(capture))
    for tag in (0, 1):
        cache.open(tag)
    for _ in range(3):
        model.feed(cache, [0, 1], torch.tensor([1, 2, 3, 4, 5, 6]), [3, 3], nodes)
    gc.collect()
    (mode,) = reads
    assert len(mode.found) > 10  # weights at least
    assert not any(storage.expired() for storage in mode.found.values())


def test_storage_that_grew_has_no_graphs_yet(model: CausalLM) -> None:
    recorder = Recorder(run_again)  # a trace would keep the old storage alive
    twins = Twins(model, recorder, 1, 16)
    twins.both(lambda cache: cache.open(0))
    for _ in range(3):
        twins.feed([0], [1, 2], [2])
    assert len(twins.graphs) == 1
    twins.both(lambda cache: cache.open(1))
    assert len(twins.graphs) == 0
    twins.feed([0], [1, 2], [2])
    assert recorder.captured == 1
    twins.feed([0], [1, 2], [2])
    assert recorder.captured == 2


def test_a_longer_table_of_positions_drops_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the model's, nor that of a head which shares its graphs; the older tables stay."""
    monkeypatch.setattr(llama, "POSITIONS", 64)
    large, reads = tiny(), Reads()

    def capture(work: Work) -> Work:
        with reads:
            output = work()
        return lambda: output

    twins = Twins(large, capture, 1, 400)
    head = EagleDrafter(EagleHead(large.config).double(), large)
    head.graphs = twins.graphs
    large.graphs = twins.graphs
    twins.both(lambda cache: cache.open(0))
    for _ in range(3):
        large.feed(twins.caches[0], [0], torch.tensor([3]), [1])
    large.feed(twins.caches[0], [0], torch.tensor(TEXT[0, :300]), [300])
    head.open(0, TEXT[0, :9].tolist())
    head.read(0, hidden=torch.zeros(8, 48, dtype=torch.double))
    gc.collect()
    assert len(twins.graphs) == 1
    assert not any(storage.expired() for storage in reads.found.values())


def test_the_number_of_graphs_stays_bounded(model: CausalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MAX_GRAPHS", 3)
    recorder = Recorder(run_again)
    twins = Twins(model, recorder, 1, 64)
    twins.both(lambda cache: cache.open(0))
    for count in (1, 2, 3, 4, 5):
        for _ in range(3):
            twins.feed([0], TEXT[0, :count].tolist(), [count])
            assert len(twins.graphs) <= 3
    assert recorder.captured == len(twins.graphs) == 3


class FakeGraph:
    """In place of torch's: counts those that are destroyed, and fails to be instantiated if told so."""

    destroyed = 0
    full = False

    def capture_begin(self, *_: object) -> None: ...

    def capture_end(self) -> None:
        if FakeGraph.full:
            raise RuntimeError("CUDA error: out of memory")

    def replay(self) -> None: ...

    def __del__(self) -> None:
        FakeGraph.destroyed += 1


def test_no_graph_is_destroyed_while_another_is_used(model: CausalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by growth of one of two storages nor by a full device, which ends captures and no run."""
    for name in ("Stream", "current_stream", "graph_pool_handle"):
        monkeypatch.setattr(torch.cuda, name, MagicMock())
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(FakeGraph, "destroyed", 0)
    monkeypatch.setattr(model, "graphs", Graphs(graphs.CudaCapture()))

    def feed(cache: RowCache, count: int) -> None:
        for _ in range(2):
            model.feed(cache, [0], torch.arange(count), [count])

    caches = [model.new_cache(1, 64) for _ in range(2)]
    for cache in caches:
        cache.open(0)
        feed(cache, 1)
    caches[0].open(1)  # the storage moves
    monkeypatch.setattr(FakeGraph, "full", True)
    feed(caches[1], 2)
    monkeypatch.setattr(FakeGraph, "full", False)
    feed(caches[1], 3)
    gc.collect()
    assert (FakeGraph.destroyed, len(model.graphs)) == (0, 1)
    caches[1].open(1)
    gc.collect()
    feed(caches[0], 1)
    gc.collect()
    assert (FakeGraph.destroyed, len(model.graphs)) == (3, 1)


def test_only_repeated_shapes_are_captured(model: CausalLM) -> None:
    """Neither aligned rows, which move, nor ragged ones or parts of prompts; a tree of one row is."""

    def form(counts: list[int], nodes: Nodes | None = None, aligned: bool = False) -> Form | None:
        cache = model.aligned_cache() if aligned else model.new_cache(2, 600)
        for tag in range(len(counts)):
            cache.open(tag, 600)
        return read_form(cache, cache.place(range(len(counts)), counts, nodes))

    grown = make_tree(torch.zeros(1, 40, dtype=torch.long), 1, 40)
    assert form([1, 1]) == Form(0, 2, 1, 128, is_chain=True)
    assert form([32]) == Form(0, 1, 32, 128, is_chain=True)
    assert form([41], Nodes(0, grown.ancestors, grown.depths)) == Form(0, 1, 41, 128, is_chain=False)
    assert form([1, 1], aligned=True) is form([1, 2]) is form([33]) is form([200, 200]) is None


@pytest.mark.parametrize(("shape", "depth"), [slow(CHAIN, 4), (tree(2, 1), 3), slow(dynamic(3, 8), 3)], ids=str)
def test_speculation_with_graphs_decodes_the_same_tokens(
    monkeypatch: pytest.MonkeyPatch, model: CausalLM, shape: Shape, depth: int
) -> None:
    small, recorder = tiny(layers=1), Recorder(taped)
    prompt = TEXT[0, :30].tolist()
    wanted = decode_plain(Target(model), prompt, 40)
    large_cache, small_cache = model.new_cache(1, 128), small.new_cache(1, 128)
    for each in (model, small):
        monkeypatch.setattr(each, "graphs", Graphs(recorder))
    for _ in range(2):
        found, _ = decode_speculatively(
            Target(model, cache=large_cache), Drafter(small, shape, cache=small_cache), prompt, 40, depth
        )
        assert found == wanted
    assert recorder.replayed > 20


@pytest.mark.parametrize(("shape", "depth"), [slow(CHAIN, 4), (tree(2, 1), 3), slow(dynamic(3, 8), 3)], ids=str)
def test_a_head_drafts_the_same_with_graphs(model: CausalLM, shape: Shape, depth: int) -> None:
    """Round after round beside a head that runs eagerly; inputs differ from round to round."""
    torch.manual_seed(7)
    head, recorder = EagleHead(model.config, model.model.get_input_embeddings()).double().eval(), Recorder(taped)
    eager, captured = (EagleDrafter(head, model, shape) for _ in range(2))
    captured.graphs = Graphs(recorder)
    rng = np.random.default_rng(9)
    for tag in (0, 1):
        prompt = TEXT[tag, : 20 + tag].tolist()
        for drafter in (eager, captured):
            drafter.open(tag, list(prompt), room=200)
            drafter.read(tag, hidden=torch.tensor(np.random.default_rng(tag).normal(size=(len(prompt) - 1, 48))))
    for _ in range(12):
        wanted, found = (drafter.draft([0, 1], [depth, depth]) for drafter in (eager, captured))
        assert found.tokens.tolist() == wanted.tokens.tolist()
        assert torch.allclose(captured.outputs, eager.outputs, rtol=0, atol=1e-12)
        for tag in (0, 1):
            path = [1] if rng.random() < 0.5 else []
            tokens = rng.integers(VOCABULARY, size=len(path) + 1).tolist()
            states = torch.tensor(rng.normal(size=(len(tokens), 48)))
            for drafter in (eager, captured):
                drafter.advance(tag, path, tokens, states)
    assert recorder.replayed > 2 * recorder.captured > 0


def test_buckets_are_at_most_a_quarter_too_wide() -> None:
    for width in range(1, 5000):
        assert width <= bucket(width) <= max(width + 127, 1.25 * width)
        assert bucket(bucket(width)) == bucket(width)
