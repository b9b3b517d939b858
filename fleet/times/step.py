"""A step: what a device does without interruption for one session or a group of them."""

from typing import Literal

import msgspec

StepKind = Literal["prefill", "draft_prefill", "draft", "verify", "decode", "realign", "transfer", "warm_up", "route"]


class Member(msgspec.Struct, frozen=True, gc=False):
    """One session's share in a step, bound when the step starts: `tokens` new ones after `base` known ones.

    `behind`: own draft tokens that the drafter feeds before, because they passed verification before it fed them.
    """

    tag: int
    request: int
    epoch: int
    base: int
    tokens: int
    behind: int = 0


class Step(msgspec.Struct, frozen=True, gc=False):
    """What the device does without interruption for its members.

    `idle_gap_s`: how long the station had nothing to do before the group that this step belongs to;
    `warm_tokens`: warm-up tokens that ran since. Together they set how cold the device is (StarSD, section 5.3).
    `ballast`: finished rows that a fixed batch still carries. They cost time and yield nothing.
    """

    number: int
    kind: StepKind
    members: tuple[Member, ...]
    idle_gap_s: float = 0.0
    warm_tokens: int = 0
    ballast: int = 0
