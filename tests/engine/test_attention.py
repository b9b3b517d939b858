"""Attention over rows: equal descriptions of a mask give equal results."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from engine.decoding.attention import ALIGNED, additive, grouped


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
