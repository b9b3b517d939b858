"""Overlap: whether drafting continues during verification (AMUSD), or waits for the outcome."""

from typing import Annotated

import msgspec
from msgspec import Meta


class InTurn(msgspec.Struct, frozen=True, tag="in-turn", tag_field="policy", forbid_unknown_fields=True):
    """Draft, then wait for the outcome: every system but AMUSD."""


class Ahead(msgspec.Struct, frozen=True, tag="ahead", tag_field="policy", forbid_unknown_fields=True):
    """Draft token by token without a pause; a verification takes a snapshot of the tail (AMUSD, algorithm 1).

    A mismatch rolls the drafter back to the target's own token and begins a new epoch; drafts of the old epoch are
    refused as stale. After full acceptance, the target's own token is compared with the next one of the tail. If they
    are equal, the rest of the tail stays valid; else it is rolled back. A tail ends with its request.

    The algorithm as printed commits only the tokens before a mismatch, and makes no progress if that is the first
    token.

    Keys:
        least (tokens): Minimum draft tokens of a verification; 1 in the algorithm, 2 in the authors' program.
        busy: Whether the target decodes a token by itself after a rollback instead of waiting, while the drafter
            catches up. The authors' program does so: the old, longer tail makes it verify only the next token.
    """

    least: Annotated[int, Meta(ge=1, le=4096)] = 1
    busy: bool = False


Overlap = InTurn | Ahead
