"""Attention that reads rows in place: a row of a slot cache is one page of torch's attention of unequal lengths.

It needs no mask and no filling up. It is flash attention, so it takes chains alone, in half precision, on cuda.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from typing import NamedTuple

import torch
from torch.nn import functional

from specfleet.engine.decoding.feed import Feed
from specfleet.engine.decoding.placing import placed

PAGE = 256  # places; flash attention takes pages of a multiple of it
CLOSE = 0.05  # between outputs of a size near 1, in half precision and in float32


class Packed(NamedTuple):
    """The N new tokens of B rows, without filling up; all tensors are int32, as flash attention takes them.

    - `starts` (B + 1,): where the tokens of each row begin and end.
    - `used` (B,): places of each row up to its last new token.
    - `pages` (B, 1): the rows in the cache.
    - `most`, `width`: tokens and places of a row, at most.
    """

    starts: torch.Tensor
    used: torch.Tensor
    pages: torch.Tensor
    most: int
    width: int


def pack_rows(feeds: Sequence[Feed]) -> Packed | None:
    """Return the rows of a pass as pages; None if a token sees something else than its row up to itself."""
    if any(feed.mask is not None for feed in feeds):
        return None
    device = feeds[0].slots.device
    counts = [count for feed in feeds for count in feed.row_counts]
    rows = [row for feed in feeds for row in range(feed.rows.start, feed.rows.stop)]
    if len(feeds) == 1 and feeds[0].counts is None:  # a graph may capture this: it copies nothing from the host
        starts = torch.arange(0, sum(counts) + 1, counts[0], dtype=torch.int32, device=device)
        pages = torch.arange(rows[0], rows[-1] + 1, dtype=torch.int32, device=device)
    else:
        both = placed([0, *accumulate(counts), *rows], device, torch.int32)
        starts, pages = both[: len(rows) + 1], both[len(rows) + 1 :]
    positions = torch.cat([feed.positions for feed in feeds]) if len(feeds) > 1 else feeds[0].positions
    used = (positions[starts[1:] - 1] + 1).int()
    return Packed(starts, used, pages[:, None], max(counts), max(feed.width for feed in feeds))


def whole_pages(places: int) -> int:
    """Return the places of a row with at least so many, as whole pages."""
    return -(-places // PAGE) * PAGE


def attend_pages(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, packed: Packed) -> torch.Tensor:
    """Attend with queries (N, heads, size) over pages (rows, places, kv heads, size); return (N, heads, size)."""
    starts = packed.starts  # also as those of keys, which flash attention wants to have and does not read
    # Parts of split rows are put together for the first row alone (torch 2.13, issue 194167 of pytorch).
    splits = None if len(packed.pages) == 1 else 1
    return kernel()(
        query, keys, values, starts, starts, packed.most, packed.width,
        window_size=(-1, 0), enable_gqa=True, seqused_k=packed.used, block_table=packed.pages, num_splits=splits,
    )  # fmt: skip


def kernel() -> Callable[..., torch.Tensor]:
    """Return torch's attention of unequal lengths; ImportError where torch has none."""
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415  (it imports torch's compiler, which takes 1.4 s)

    return varlen_attn  # type: ignore[no-any-return]


def reads_pages(device: torch.device, dtype: torch.dtype, size: int) -> bool:
    """Whether attention reads pages, else it has masks; `bench steps` measures both. `size`: numbers of a head."""
    return device.type == "cuda" and not find_fault(device, dtype, size)


@cache
@torch.inference_mode()
def find_fault(device: torch.device, dtype: torch.dtype, size: int) -> str:
    """Say why attention over pages does not run here or computes other than a mask does; empty if it is right.

    Versions of torch, devices and builds differ; two rows, of 700 and 7 places, show it, and the first alone, split.
    """
    numbers = torch.Generator(device).manual_seed(0)
    query, keys, values = (
        torch.randn(dimensions, generator=numbers, device=device).to(dtype)
        for dimensions in ((4, 4, size), (3, 3 * PAGE, 2, size), (3, 3 * PAGE, 2, size))
    )
    counts, used, rows = (3, 1), (700, 7), (2, 0)
    starts, ends, pages = (placed(values, device, torch.int32) for values in ((0, 3, 4), used, rows))
    both = Packed(starts, ends, pages[:, None], max(counts), max(used))
    alone = both._replace(starts=starts[:2], used=ends[:1], pages=both.pages[:1])
    try:
        outputs = torch.cat([attend_pages(query, keys, values, both), attend_pages(query[:3], keys, values, alone)])
    except (ImportError, RuntimeError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
    wanted = []
    for part, row, count, end in zip(query.split(counts), rows, counts, used, strict=True):
        mask = torch.ones(count, end, dtype=torch.bool, device=device).tril(end - count)
        parts = (part, keys[row, :end], values[row, :end])
        of_row = functional.scaled_dot_product_attention(
            *(part.float().transpose(0, 1) for part in parts), attn_mask=mask, enable_gqa=True
        )
        wanted.append(of_row.transpose(0, 1))
    apart = float((outputs.float() - torch.cat([*wanted, wanted[0]])).abs().max())
    return "" if apart < CLOSE else f"outputs are up to {apart:.2g} off"
