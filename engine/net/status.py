"""The status of a node: a question of an accepted peer, and an answer in pages of bounded size."""

from typing import Annotated

import msgspec
from msgspec import Meta

ROWS = 32  # of a page: an envelope holds some fifty

Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
Seconds = Annotated[float, Meta(ge=0)] | None


class Ask(msgspec.Struct, tag="ask", frozen=True):
    """How is the node doing? Answered with targets from number `first` on, or not at all."""

    first: Annotated[int, Meta(ge=0, lt=1 << 31)] = 0


class StatusRow(msgspec.Struct, frozen=True, array_like=True):
    """One target (from 0).

    `sessions`, `waiting`: open, and in the buffer, now. `rounds`: so far. `tokens_per_s`, `acceptance`: lately; the
    waits: percentiles of the last requests for a draft. Bytes: of frames to and from it since it was first connected.
    `heard_s`: seconds since it has said something; None while it is not connected. Others are None where nothing is
    known.
    """

    target: Count
    sessions: Count = 0
    waiting: Count = 0
    rounds: Count = 0
    tokens_per_s: float = 0.0
    acceptance: float | None = None
    wait_p50_s: Seconds = None
    wait_p90_s: Seconds = None
    received_bytes: Count = 0
    sent_bytes: Count = 0
    heard_s: Seconds = None


class Status(msgspec.Struct, tag="status", frozen=True):
    """How a node is doing, `time_s` after it began to serve: itself, and `rows` of its `targets` from `first` on.

    `load`: share of the last seconds in which it worked; `draft_s`: mean time of a draft step then.
    """

    node: Annotated[str, Meta(max_length=64)]
    scenario: Annotated[str, Meta(max_length=200)]
    time_s: float
    targets: Count
    sessions: Count = 0
    waiting: Count = 0
    rounds: Count = 0
    tokens_per_s: float = 0.0
    acceptance: float | None = None
    load: float | None = None
    draft_s: Seconds = None
    first: Count = 0
    rows: Annotated[tuple[StatusRow, ...], Meta(max_length=ROWS)] = ()
