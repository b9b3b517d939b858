"""Admission: whether a drafter accepts another session."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from specfleet.fleet.policies.own import with_own

Sessions = Annotated[int, Meta(ge=0, le=10**9)]


class Everyone(msgspec.Struct, frozen=True, tag="everyone", tag_field="policy", forbid_unknown_fields=True):
    """Admit every session."""

    def refusal(self, active_sessions: int) -> str | None:
        """Reason to refuse a session beyond `active_sessions`, or None."""
        return None


class AtMost(msgspec.Struct, frozen=True, tag="at-most", tag_field="policy", forbid_unknown_fields=True):
    """StarSD's admission rule (section 4.2): refuse sessions beyond a number, by default N_max of the fleet.

    Keys:
        sessions (sessions): Maximum number of sessions of a drafter; further targets decode alone. A list has a number
            for each target, with which that target is refused; the last is that of all further ones. Default: `N_max`
            of the scenario's times and acceptance, of unlike targets that of each.
    """

    sessions: Sessions | Annotated[tuple[Sessions, ...], Meta(min_length=1)] | None = None

    def refusal(self, active_sessions: int) -> str | None:
        """Reason to refuse a session beyond `active_sessions`, of any target, or None."""
        assert self.sessions is not None
        most = max(self.sessions) if isinstance(self.sessions, tuple) else self.sessions
        return None if active_sessions < most else f"the drafter already serves N_max = {most} sessions"

    def of(self, target: int) -> "AtMost":
        """Return the rule of one target, numbered from 0."""
        return AtMost(self.sessions[: target + 1][-1]) if isinstance(self.sessions, tuple) else self


class WithinMemory(msgspec.Struct, frozen=True, tag="within-memory", tag_field="policy", forbid_unknown_fields=True):
    """Refuse sessions with caches that do not fit into a drafter's memory (StarSD, appendix I).

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


def refusal_of(rule: Admission, active_sessions: int, target: int) -> str | None:
    """Return the reason to refuse a target's session beyond `active_sessions`, or None."""
    return (rule.of(target) if isinstance(rule, AtMost) else rule).refusal(active_sessions)


def N_max(
    S_s: float, Z_s: float, tokens_per_round: float, standalone_tokens_per_s: float, among: Sequence[float] = ()
) -> int:
    """Largest N at which a target is at least as fast as without the drafter; 0 if there is none.

    StarSD section 4.2, with T_gamma = max(N S, S + Z) from equations (8) to (10): O_i = tokens / T_gamma.

    - `among`: Z of each of the drafter's targets, in order, if they differ.
    """
    # A relative tolerance, so that a round equal to the limit up to rounding counts.
    slowest_round_s = tokens_per_round / standalone_tokens_per_s * (1 + 1e-12)
    if S_s + Z_s > slowest_round_s:
        return 0
    return max(1, most_within(S_s, slowest_round_s - S_s - Z_s, among or (Z_s,)))


def most_within(S_s: float, wait_s: float, returns_s: Sequence[float], busy: float = 1.0) -> int:
    """Return the largest N at which requests wait no longer at a drafter: sum of S / (S + Z_i + wait) <= `busy`.

    A target has a round every S + Z_i + wait, for its drafter serves in order of arrival, and each round takes a part S
    of the drafter's time. Of equal targets N S <= S + Z + wait, as in equations (8) to (10).

    - `returns_s`: Z_i of the targets in order; all further ones are like the last.
    - `busy`: share of the drafter's time.
    """
    share = 1.0
    for number, return_s in enumerate(returns_s):
        share = S_s / (S_s + return_s + wait_s)
        if share > busy:
            return number
        busy -= share
    return len(returns_s) + math.floor(busy / share)
