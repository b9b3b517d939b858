"""Continuous batching: how many tokens of each request a target's next step processes, with a budget and a KV cache.

The rules are those of vLLM's scheduler (version 1). There are no phases: a row has known tokens, some of which are
computed, and every step closes the gap. A chunk of a prompt, plain decoding and a verification share one step.
"""

from collections.abc import Iterable, Sequence
from itertools import tee
from typing import Annotated

import msgspec
from msgspec import Meta

from specfleet.fleet.policies.blocks import UNLIMITED, CountedBlocks

Count = Annotated[int, Meta(ge=0, le=1 << 40)]
Some = Annotated[int, Meta(ge=1, le=1 << 40)]


class Row(msgspec.Struct, frozen=True, gc=False):
    """A request at its target.

    - `known`: tokens of its text so far, prompt and committed output.
    - `computed`: tokens of these in the KV cache.
    - `drafts`: draft tokens that wait for verification.
    - `blocks`: KV blocks that it has.
    - `sits_out`: whether it waits for a draft from elsewhere, and takes no part in the next step.
    """

    tag: int
    known: int
    computed: int = 0
    drafts: int = 0
    blocks: int = 0
    sits_out: bool = False


class Share(msgspec.Struct, frozen=True, gc=False):
    """A row's part of a step.

    - `computed`: its tokens in the KV cache before the step.
    - `tokens`: tokens that the step processes, `drafts` of them drafted.
    - `samples`: whether the step yields a token of the target: not for a chunk before a prompt's end.
    """

    tag: int
    computed: int
    tokens: int
    drafts: int
    samples: bool


class Schedule(msgspec.Struct, frozen=True):
    """A step, and the rows afterwards.

    - `shares`: of the rows in the step.
    - `running`: rows in order of admission, with their new blocks.
    - `admitted`: how many waiting rows run now, in order of arrival.
    - `preempted`: rows that lost their KV cache; the last of them waits before all others.
    """

    shares: tuple[Share, ...]
    running: tuple[Row, ...]
    admitted: int = 0
    preempted: tuple[Row, ...] = ()


class ContinuousBatching(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All running requests share each step; prompts are prefilled in chunks beside them.

    Keys:
        max_num_seqs (rows): Most running requests, as vLLM's.
        max_num_batched_tokens (tokens): Most tokens of a step, drafts included, as vLLM's.
        kv_blocks (blocks): Blocks of the KV cache; 0 for no limit.
        block_size (tokens): Tokens of a block.
        lookahead (tokens): Places that a row keeps beyond its step, for the KV cache of drafts: the depth for heads
            and small models on the target's device, 0 for prompt lookup and drafters elsewhere.
        slots (tokens): Tokens that each row of a step costs more: 1 for a small model on the target's device, the depth
            for a drafter of blocks there.
        prefill_first: Whether a step reads prompts alone while there are any that fit, and decodes otherwise: as
            SGLang's scheduler does.
    """

    max_num_seqs: Some
    max_num_batched_tokens: Some
    kv_blocks: Count = 0
    block_size: Some = 16
    lookahead: Count = 0
    slots: Count = 0
    prefill_first: bool = False

    def schedule(self, running: Sequence[Row], waiting: Iterable[Row], blocks: CountedBlocks | None = None) -> Schedule:
        """Return the next step: of prompts alone, if they come first and there are any, or of all rows.

        Of the waiting rows it looks only at those that it admits, and at the next one. `blocks`: with contents, of a
        prefix cache; they change with the step.
        """
        if blocks is None:
            blocks = CountedBlocks(self.kv_blocks - sum(row.blocks for row in running) if self.kv_blocks else UNLIMITED)
        if self.prefill_first:
            waiting, first = tee(waiting)
            prompts = self._schedule(running, first, blocks, prompts_alone=True)
            if prompts.shares:
                return prompts
            if prompts.preempted:  # no row is admitted in this step
                others = self._schedule(prompts.running, (), blocks)
                return Schedule(others.shares, others.running, 0, prompts.preempted + others.preempted)
        return self._schedule(running, waiting, blocks)

    def _schedule(
        self, running: Sequence[Row], waiting: Iterable[Row], blocks: CountedBlocks, prompts_alone: bool = False
    ) -> Schedule:
        """Return a step of all rows, or of those whose text is not computed.

        Running rows come first, in order of admission; a short budget cuts a row's last drafts, and they are lost.
        A row without any budget keeps its drafts.
        If the blocks of a row do not suffice, the row that was admitted last loses all of its blocks and waits before
        all others, to be computed again. Waiting rows are admitted in order of arrival, unless a row was preempted in
        this step: each if its known text fits into the free blocks, and its part of the step with its lookahead, too.
        What a prefix cache has of the text is not computed, and takes free blocks only if no other row uses them.
        """
        left, rows = self.max_num_batched_tokens, list(running)
        shares: list[Share] = []
        preempted: list[Row] = []
        place = 0
        while place < len(rows):
            row = rows[place]
            decodes = row.known - row.computed == 1 and row.computed > 0
            share = None if prompts_alone and decodes else _share(row, left - self.slots)
            if share is None:
                place += 1
                continue
            needed = self._blocks(row.computed + share.tokens + self.lookahead)
            while needed - row.blocks > blocks.free and place < len(rows):
                lost = rows.pop()
                blocks.give_back(lost.tag, lost.blocks)
                preempted.append(Row(lost.tag, lost.known))  # prompt and output have to be computed again
            if place == len(rows):  # the row itself was preempted
                break
            blocks.take(row.tag, max(needed - row.blocks, 0))
            blocks.fill(row.tag, min(row.computed + share.tokens, row.known))
            rows[place] = msgspec.structs.replace(row, blocks=max(needed, row.blocks), drafts=share.drafts)
            shares.append(share)
            left -= share.tokens + self.slots
            place += 1
        admitted = 0
        for row in () if preempted else waiting:
            if len(rows) == self.max_num_seqs or left <= self.slots:
                break
            found = blocks.find(row.tag, row.known)
            if found:
                row = msgspec.structs.replace(row, computed=len(found) * self.block_size)  # noqa: PLW2901
            share = _share(row, left - self.slots)
            if share is None:
                break
            needed = self._blocks(row.computed + share.tokens + self.lookahead)
            if max(needed, self._blocks(row.known)) - len(found) + blocks.unused(found) > blocks.free:
                break
            blocks.take(row.tag, needed - len(found), found)
            blocks.fill(row.tag, min(row.computed + share.tokens, row.known))
            rows.append(msgspec.structs.replace(row, blocks=needed))
            shares.append(share)
            left -= share.tokens + self.slots
            admitted += 1
        return Schedule(tuple(shares), tuple(rows), admitted, tuple(preempted))

    def fits(self, tokens: int) -> bool:
        """Return whether a text of so many tokens, alone in the cache, could be decoded to its end."""
        return not self.kv_blocks or self._blocks(tokens + self.lookahead) <= self.kv_blocks

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_size)


def after_step(row: Row, share: Share, accepted: int = 0) -> Row:
    """Return a running row after its step.

    - `accepted`: accepted drafts of the share; rejected ones leave the cache without freeing a block.
    """
    if not 0 <= accepted <= share.drafts:
        raise ValueError(f"row {row.tag}: {accepted} of {share.drafts} drafts accepted")
    computed = share.computed + share.tokens - share.drafts + accepted
    known = row.known + (accepted + 1 if share.samples else 0)
    return msgspec.structs.replace(row, known=known, computed=computed, drafts=0)


def _share(row: Row, budget: int) -> Share | None:
    """Return a row's part of a step with so many tokens left; None if it has none."""
    pending = row.known - row.computed
    tokens = min(pending + row.drafts, budget)
    if row.sits_out or tokens <= 0:
        return None
    return Share(row.tag, row.computed, tokens, max(tokens - pending, 0), tokens >= pending)
