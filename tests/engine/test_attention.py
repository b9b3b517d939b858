"""Attention over rows: equal descriptions of a mask give equal results."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch.nn.functional import scaled_dot_product_attention

from engine.decoding.attention import ALIGNED, additive, attend, attend_causally, grouped
from engine.decoding.feed import Nodes, feed_of


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


@pytest.mark.parametrize("heads", [2, 6])
def test_first_tokens_attend_causally_without_a_mask(heads: int) -> None:
    generator = torch.Generator().manual_seed(heads)
    queries = torch.randn(9, heads, 8, generator=generator, dtype=torch.float64)
    keys, values = (torch.randn(1, 2, 9, 8, generator=generator, dtype=torch.float64) for _ in range(2))
    feed = feed_of(slice(0, 1), [0], [9], None, 32, torch.arange(32))
    assert feed.is_beginning
    wanted = attend(queries, keys, values, feed, grouped(feed.visible, heads // 2, queries.dtype))
    assert torch.allclose(attend_causally(queries, keys, values), wanted, rtol=0, atol=1e-12)


def test_only_several_first_tokens_of_one_row_are_its_beginning() -> None:
    numbers, one, two = torch.arange(64), slice(1, 2), slice(0, 2)
    assert feed_of(one, [0], [3], None, 32, numbers).is_beginning
    assert not feed_of(one, [1], [3], None, 32, numbers).is_beginning
    assert not feed_of(one, [0], [1], None, 32, numbers).is_beginning
    assert not feed_of(one, [0], [3], Nodes(2), 32, numbers).is_beginning
    assert not feed_of(two, [0, 0], [3, 3], None, 32, numbers).is_beginning
    assert not feed_of(one, [0], [3], None, 32, numbers, [2]).is_beginning
    attended, depths = torch.ones(1, 3, 3, dtype=torch.bool).tril(), torch.arange(3)[None]
    assert not feed_of(one, [0], [3], Nodes(0, attended, depths), 32, numbers).is_beginning
