"""torch's `varlen_attn` on any device and in any precision, with what flash attention asks of its arguments."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from specfleet.engine.decoding import models, pages

Fed = list[int]  # query tokens of each call


def varlen_reference(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor,
    max_q: int,
    max_k: int,
    *,
    window_size: tuple[int, int],
    enable_gqa: bool,
    seqused_k: torch.Tensor,
    block_table: torch.Tensor,
    num_splits: int | None,
    from_the_end: bool = True,
) -> torch.Tensor:
    """Attention over paged rows, without reading a number on the host: a graph may capture it.

    - `from_the_end`: the last query of a row sees its last place, as flash attention has it; else the first sees one.
    """
    N, heads, size = query.shape
    B, page_size = len(block_table), key.shape[1]
    assert window_size == (-1, 0)
    assert num_splits == (None if len(block_table) == 1 else 1), "split rows are wrong beyond the first"
    assert enable_gqa
    assert page_size % 256 == 0
    assert all(numbers.dtype == torch.int32 for numbers in (cu_seq_q, cu_seq_k, seqused_k, block_table))
    assert [len(cu_seq_q), len(cu_seq_k), len(seqused_k)] == [B + 1, B + 1, B]
    assert max_q <= N
    assert max_k <= block_table.shape[1] * page_size
    token = torch.arange(N, device=query.device)
    row = torch.searchsorted(cu_seq_q[1:].long(), token, right=True)
    place = token - cu_seq_q[row]
    last = place + (seqused_k - cu_seq_q.diff())[row] if from_the_end else place
    keys, values = (
        paged[block_table[row].long()].flatten(1, 2)[:, :max_k].repeat_interleave(heads // paged.shape[2], 2)
        for paged in (key, value)
    )
    scores = torch.einsum("nhd,nwhd->nhw", query, keys) * size**-0.5
    unseen = torch.arange(max_k, device=query.device) > last[:, None]
    return torch.einsum("nhw,nwhd->nhd", scores.masked_fill(unseen[:, None], -torch.inf).softmax(-1), values)


@contextmanager
def reading_pages() -> Iterator[Fed]:
    """Lets new caches be read as pages; yields the number of query tokens of each call of attention."""
    fed: Fed = []

    def counted(query: torch.Tensor, *arguments: object, **more: object) -> torch.Tensor:
        fed.append(len(query))
        return varlen_reference(query, *arguments, **more)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "kernel", lambda: counted)
        patch.setattr(models, "reads_pages", lambda *_: True)
        yield fed
