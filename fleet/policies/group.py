"""Grouping: which waiting drafts share a step of a drafter."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from specfleet.fleet.policies.order import Work


class One(msgspec.Struct, frozen=True, tag="one", tag_field="policy", forbid_unknown_fields=True):
    """One session at a time, as in StarSD; the station's order says which."""


class AllWaiting(msgspec.Struct, frozen=True, tag="batch", tag_field="policy", forbid_unknown_fields=True):
    """All waiting work when the device is free, oldest first: work-conserving.

    Keys:
        most (sessions): Maximum number of sessions in a step.
    """

    most: Annotated[int, Meta(ge=1, le=1 << 30)] = 1 << 30

    def pick(self, waiting: Sequence[Work]) -> list[int]:
        """Return the indices of the work that shares the next step: all of the oldest work's kind."""
        alike = [index for index, work in enumerate(waiting) if work.kind == waiting[0].kind]
        return alike[: self.most]


DraftGroup = One | AllWaiting
