"""A step: uninterrupted work of a device for one session or a group of them."""

from typing import Literal

import msgspec

StepKind = Literal["prefill", "draft_prefill", "draft", "verify", "decode", "realign", "warm_up", "route"]


class Member(msgspec.Struct, frozen=True, gc=False):
    """One session's part of a step, bound when the step starts: `tokens` new ones after `base` committed ones.

    - `behind`: own draft tokens that the drafter feeds first, because they passed verification before it fed them.
    """

    tag: int
    request: int
    epoch: int
    base: int
    tokens: int
    behind: int = 0


class Step(msgspec.Struct, frozen=True, gc=False):
    """Uninterrupted work of a device for its members.

    - `idle_gap_s`: idle time of the station before this step's group.
    - `warm_tokens`: warm-up tokens since then. Both set the slowdown of the step (StarSD, section 5.3).
    - `ballast`: finished rows of a fixed batch, which cost time and yield nothing.
    """

    number: int
    kind: StepKind
    members: tuple[Member, ...]
    idle_gap_s: float = 0.0
    warm_tokens: int = 0
    ballast: int = 0
