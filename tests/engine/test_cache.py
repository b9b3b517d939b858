"""Slot-addressed rows: tokens of a row see the same as alone, for any behaviour of other rows."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from specfleet.engine.decoding.attention import ALIGNED, additive, grouped
from specfleet.engine.decoding.models import CausalLM, load_model
from specfleet.engine.decoding.slots import SlotCache
from tests.helpers.marks import slow

VOCABULARY = 40
TEXT = np.random.default_rng(1).integers(VOCABULARY, size=(6, 700))


@pytest.fixture(scope="module", params=["lean", slow("transformers")])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CausalLM:
    """An untrained model with grouped queries, by the lean forward pass and by transformers' own."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder: Path = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=48, intermediate_size=64, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=2, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return load_model(str(folder), "target", "float64", "cpu", lean=request.param == "lean")


def alone(model: CausalLM, tokens: Sequence[int]) -> torch.Tensor:
    """Logits of a text in a cache of its own: (tokens, vocabulary)."""
    cache = model.new_cache(1, len(tokens))
    cache.open(0)
    return model.logits(model.prefill(cache, 0, tokens))


def close(left: torch.Tensor, right: torch.Tensor) -> bool:
    # transformers computes norms in single precision for every model
    return torch.allclose(left, right, rtol=0, atol=1e-5)


def test_the_lean_pass_computes_what_transformers_computes(model: CausalLM) -> None:
    tokens = TEXT[0, :60].tolist()
    with torch.inference_mode():
        ours, model.config._attn_implementation = model.config._attn_implementation, "sdpa"
        theirs = model.model(input_ids=torch.tensor([tokens])).logits[0]
        model.config._attn_implementation = ours
    assert close(alone(model, tokens), theirs)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["open", "close", "feed", "reject"]),
            st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True),
            st.lists(st.integers(1, 7), min_size=4, max_size=4),
        ),
        min_size=4,
        max_size=25,
    )
)
@settings(max_examples=60)
def test_changing_rows_read_as_if_alone(model: CausalLM, actions: list[tuple[str, list[int], list[int]]]) -> None:
    cache = model.new_cache(2, 8)
    fed_last: dict[int, int] = {}  # speculated tokens of a row, committed only at its next pass
    for action, tags, counts in actions:
        opened = [tag for tag in tags if tag in cache.rows]
        if action == "open":
            for tag in set(tags) - set(opened):
                cache.open(tag)
        elif action == "close":
            for tag in opened:
                cache.close(tag)
                fed_last.pop(tag, None)
        elif opened:
            fed = counts[: len(opened)]
            cache.keep(opened, [list(range(fed_last.pop(tag, 0))) for tag in opened])
            begins = [cache.lengths[tag] for tag in opened]
            line = np.concatenate([TEXT[t, b : b + n] for t, b, n in zip(opened, begins, fed, strict=True)])
            logits = model.logits(model.feed(cache, opened, torch.tensor(line), fed))
            wanted = [alone(model, TEXT[t, : b + n].tolist())[b:] for t, b, n in zip(opened, begins, fed, strict=True)]
            assert close(logits, torch.cat(wanted))
            if action == "feed":
                fed_last.update(zip(opened, fed, strict=True))
        check(cache)


def test_a_new_row_takes_a_hole_and_nothing_moves(model: CausalLM) -> None:
    cache = model.new_cache(3, 16)
    for tag in range(3):
        cache.open(tag)
        model.prefill(cache, tag, TEXT[tag, :9].tolist())
    cache.close(1)
    cache.open(3)
    assert cache.rows == {0: 0, 3: 1, 2: 2}
    assert cache.in_order([2, 3, 0]) == [0, 3, 2]
    assert cache.rows_allocated == 3


def test_rows_beyond_the_capacity_double_it(model: CausalLM) -> None:
    cache, capacities = model.new_cache(1, 16), []
    for tag in range(5):
        cache.open(tag)
        capacities.append(cache.rows_allocated)
    assert capacities == [1, 2, 4, 4, 8]


@given(st.sets(st.integers(0, 6)))
def test_rows_of_a_pass_lie_side_by_side(model: CausalLM, left: set[int]) -> None:
    cache = model.new_cache(7, 8)
    for tag in range(7):
        cache.open(tag)
        model.prefill(cache, tag, TEXT[tag % len(TEXT), : tag + 1].tolist())
    for tag in sorted(left):
        cache.close(tag)
    remaining = [tag for tag in range(7) if tag not in left]
    assert len(cache.runs(cache.in_order(remaining))) <= 1
    check(cache)
    for tag in remaining:
        logits = model.logits(model.feed(cache, [tag], torch.tensor([1]), [1]))
        assert close(logits, alone(model, [*TEXT[tag % len(TEXT), : tag + 1].tolist(), 1])[-1:])


def test_aligned_batches_reuse_memory_without_reading_it(model: CausalLM) -> None:
    cache, rounds = model.aligned_cache(), 12
    lengths = {0: 9, 1: 30, 2: 17}
    for tag, length in lengths.items():
        cache.open(tag, 30)
        model.prefill(cache, tag, TEXT[tag, :length].tolist())
    memory = set()
    for number in range(rounds):
        cache.realign(list(lengths))
        memory.add(cache.storage.data_ptr())
        line = np.concatenate([TEXT[tag, length : length + 2] for tag, length in lengths.items()])
        logits = model.logits(model.feed(cache, list(lengths), torch.tensor(line), [2] * 3))
        wanted = [alone(model, TEXT[tag, : length + 2].tolist())[-2:] for tag, length in lengths.items()]
        assert close(logits, torch.cat(wanted))
        kept = {tag: 1 + (tag + number) % 2 for tag in lengths}  # rows accept unequally
        cache.keep(list(lengths), [range(kept[tag]) for tag in lengths])
        lengths = {tag: length + kept[tag] for tag, length in lengths.items()}
    assert len(memory) == 2
    held = {id(row.block): row.block.memory for row in cache.rows.values()}
    allocated = sum(memory.numel() for memory in [*held.values(), *cache.spare])
    assert allocated <= 4 * cache.shape.numbers * 3 * 128  # two batches, and the first blocks of rows


def check(cache: SlotCache) -> None:
    """Every tag maps to its row, and free rows are the holes between."""
    assert cache.rows == {tag: row for row, tag in enumerate(cache.tags) if tag is not None}
    assert sorted(cache.holes) == [row for row, tag in enumerate(cache.tags) if tag is None]
    assert cache.lengths.keys() == cache.rows.keys()
    assert 0 <= sum(cache.lengths.values()) <= cache.rows_allocated * cache.tokens_allocated


@pytest.mark.parametrize("width", [1, 7, 16, 33])
def test_an_additive_mask_equals_its_mask_and_is_aligned(width: int) -> None:
    generator = torch.Generator().manual_seed(width)
    queries, keys = (torch.randn(2, 3, n, 8, generator=generator, dtype=torch.float64) for n in (10, width))
    mask = torch.rand(2, 5, width, generator=generator) < 0.5
    mask[..., 0] = True
    added = grouped(mask, 2, queries.dtype)
    assert all(stride % ALIGNED == 0 for stride in added.stride()[:-1])
    wanted = scaled_dot_product_attention(queries, keys, keys, attn_mask=mask.repeat_interleave(2, 1)[:, None])
    assert torch.equal(scaled_dot_product_attention(queries, keys, keys, attn_mask=added), wanted)
    assert torch.equal(additive(mask, torch.float16) == 0, mask)
