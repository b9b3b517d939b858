"""Admission: whether a drafter accepts another session."""

import math
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from specfleet.fleet.policies.own import with_own


class Everyone(msgspec.Struct, frozen=True, tag="everyone", tag_field="policy", forbid_unknown_fields=True):
    """Admit every session."""

    def refusal(self, active_sessions: int) -> str | None:
        """Reason to refuse a session beyond `active_sessions`, or None."""
        return None


class AtMost(msgspec.Struct, frozen=True, tag="at-most", tag_field="policy", forbid_unknown_fields=True):
    """StarSD's admission rule (section 4.2): refuse sessions beyond a number, by default N_max of the fleet.

    Keys:
        sessions (sessions): Maximum number of sessions of a drafter; further targets decode alone. Default: `N_max` of
            the scenario's times and acceptance.
    """

    sessions: Annotated[int, Meta(ge=0, le=10**9)] | None = None

    def refusal(self, active_sessions: int) -> str | None:
        """Reason to refuse a session beyond `active_sessions`, or None."""
        assert self.sessions is not None
        if active_sessions < self.sessions:
            return None
        return f"the drafter already serves N_max = {self.sessions} sessions"


class WithinMemory(msgspec.Struct, frozen=True, tag="within-memory", tag_field="policy", forbid_unknown_fields=True):
    """Refuse sessions whose caches do not fit into a drafter's memory (StarSD, appendix I).

    Keys:
        kv_tokens (tokens): Room of a drafter's KV cache; targets of further sessions decode alone.
        row_tokens (tokens): Room of a session. Default: the workload's longest text, and the most that drafts add.
    """

    kv_tokens: Annotated[int, Meta(ge=0, le=10**12)]
    row_tokens: Annotated[int, Meta(ge=1, le=10**9)] | None = None

    def refusal(self, active_sessions: int) -> str | None:
        """Reason to refuse a session beyond `active_sessions`, or None."""
        assert self.row_tokens is not None
        if (active_sessions + 1) * self.row_tokens <= self.kv_tokens:
            return None
        return f"the drafter's cache of {self.kv_tokens} tokens has no room for a session of {self.row_tokens}"


if TYPE_CHECKING:
    Admission = Everyone | AtMost | WithinMemory
else:
    Admission = with_own("admit", Everyone, AtMost, WithinMemory)


def N_max(S_s: float, Z_s: float, tokens_per_round: float, standalone_tokens_per_s: float) -> int:
    """Largest N at which a target is at least as fast as without the drafter; 0 if there is none.

    StarSD section 4.2, with T_gamma = max(N S, S + Z) from equations (8) to (10): O_i = tokens / T_gamma.
    """
    # A relative tolerance, so that a round equal to the limit up to rounding counts.
    slowest_round_s = tokens_per_round / standalone_tokens_per_s * (1 + 1e-12)
    if S_s + Z_s > slowest_round_s:
        return 0
    return max(1, math.floor(slowest_round_s / S_s))
