"""A step: uninterrupted work of a device for one session or a group of them."""

from typing import Literal

import msgspec

from specfleet.fleet.policies.order import StepKind as StepKind  # noqa: PLC0414  (others import it from here)


class Member(msgspec.Struct, frozen=True, gc=False):
    """One session's part of a step, bound when the step starts: `tokens` new ones after `base` committed ones.

    - `behind`: of a draft, tokens that the drafter feeds first: own ones that passed verification before it fed them,
      or those of the target's step on the same device. Of a verification, tokens that the text has passed since the
      draft was asked for.
    - `of_prompt`: of a draft on the target's device, whether those are of a prompt.
    - `kind`: of its part of a mixed step; empty in others. A chunk is a part of a prompt, before the last one.
    """

    tag: int
    request: int
    epoch: int
    base: int
    tokens: int
    behind: int = 0
    kind: StepKind | Literal[""] = ""
    of_prompt: bool = False


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

    def kind_of(self, member: Member) -> StepKind:
        """Return the kind of a member's part."""
        return member.kind or self.kind
