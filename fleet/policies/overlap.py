"""Whether drafting goes on while a draft is verified (AMUSD), or waits for the outcome."""

from typing import Annotated

import msgspec
from msgspec import Meta


class InTurn(msgspec.Struct, frozen=True, tag="in-turn", tag_field="policy", forbid_unknown_fields=True):
    """Draft, then wait for the outcome: every system but AMUSD."""


class Ahead(msgspec.Struct, frozen=True, tag="ahead", tag_field="policy", forbid_unknown_fields=True):
    """Draft token by token without a pause; a verification takes a snapshot of the tail (AMUSD, algorithm 1).

    A mismatch rolls the drafter back to the target's own token, which begins a new epoch: whatever was drafted in the
    old one is refused as stale, on the way or in the making. After full acceptance the target's own token is
    compared with the next one of the tail; if they are the same the rest of the tail stands, else it is rolled back.
    A tail ends where its request does, since more of it has no use.
    The algorithm as printed commits only what lies before a mismatch, and makes no progress if that is the first token.

    Keys:
        least (tokens): Draft tokens that a verification waits for; the algorithm says 1, the authors' program 2.
        busy: Whether the target decodes a token by itself after a rollback instead of waiting, while the drafter makes
            up for it; so does the authors' program, which finds the old, longer tail in its way and then verifies
            nothing but the next token.
    """

    least: Annotated[int, Meta(ge=1, le=4096)] = 1
    busy: bool = False


Overlap = InTurn | Ahead
