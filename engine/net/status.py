"""The status of a node: a request of an accepted peer, and the answer in pages of bounded size."""

from typing import Annotated

import msgspec
from msgspec import Meta

ROWS = 32  # of a page: an envelope holds some fifty

Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
Seconds = Annotated[float, Meta(ge=0)] | None


class Ask(msgspec.Struct, tag="ask", frozen=True):
    """Request for the node's status. The answer has targets from number `first` on; some nodes do not answer."""

    first: Annotated[int, Meta(ge=0, lt=1 << 31)] = 0


class StatusRow(msgspec.Struct, frozen=True, array_like=True):
    """One target (from 0). Values are None where they are unknown.

    - `sessions`, `waiting`: open sessions, and requests in the buffer, now.
    - `rounds`: so far. `tokens_per_s`, `acceptance`: recent values.
    - Waits: percentiles of the last requests for a draft, in seconds.
    - Bytes: of frames to and from it since its first connection.
    - `heard_s`: age in seconds of its last frame; None while it is not connected.
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
    """Status of a node `time_s` seconds after its start: the node, and `rows` of its `targets` from `first` on.

    `load`: busy share of the last seconds; `draft_s`: mean time of a draft step in them.
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
