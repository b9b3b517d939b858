"""Goodput-driven speculation (SmartSpec): the lengths that commit the most tokens a second at the present load."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from specfleet.fleet.policies.allocate import LengthAllocation
from specfleet.fleet.policies.outcome import Outcome

Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Count = Annotated[int, Meta(ge=1, le=10**9)]
Tables = Annotated[tuple[Annotated[tuple[Seconds, ...], Meta(min_length=1)], ...], Meta(min_length=1)]


class RoundCosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Times of a target's rounds by its rows, each with k draft tokens, k = 0, 1, ...

    Keys:
        rows (requests): Numbers of rows, rising. Between them times are linear.
        draft_s: Times of drafting k tokens a row; one table over k for each number of rows.
        verify_s: Times of the target's step with k drafts a row, likewise.
    """

    rows: Annotated[tuple[Count, ...], Meta(min_length=1)]
    draft_s: Tables
    verify_s: Tables

    def __post_init__(self) -> None:
        tables = [*self.draft_s, *self.verify_s]
        if not len(self.rows) == len(self.draft_s) == len(self.verify_s) or len(set(map(len, tables))) > 1:
            raise ValueError("costs: draft_s and verify_s have one table for each number of rows, of one length")
        if any(low >= high for low, high in pairwise(self.rows)):
            raise ValueError("costs: rows rises")

    def of(self, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the times in seconds of drafting and of verifying for so many rows, by k."""
        place = float(np.interp(rows, self.rows, np.arange(len(self.rows))))
        low, share = int(place), place % 1
        high = min(low + 1, len(self.rows) - 1)
        draft_s, verify_s = (
            (1 - share) * np.array(tables[low]) + share * np.array(tables[high])
            for tables in (self.draft_s, self.verify_s)
        )
        return draft_s, verify_s


class Trials(msgspec.Struct, frozen=True):
    """State of a request: accepted draft tokens, and those that were compared, the first rejected one included."""

    accepted: int = 0
    compared: int = 0


class Goodput(LengthAllocation, frozen=True, tag="goodput", tag_field="policy", forbid_unknown_fields=True):
    """The draft tokens, of all requests, that give the largest expected number of tokens a second if verified.

    A request's next token is accepted with probability a, and its j-th with a^j. Expected tokens of a round are one for
    each row and the sum of a^j; tokens are added in the order of a^j, for each number of passes of the drafter. With
    more load each token costs more, and lengths go down to 0. Requests that draft nothing teach nothing: where
    `acceptance` is too low, all stay at 0.

    Keys:
        most (tokens): The longest draft of a request.
        acceptance (probability): Acceptance of a token before any trial.
        trials (tokens): Weight of all requests' acceptance in that of one.
        costs: Times of rounds. Left out, those of the profile at the workload's middle context.
    """

    most: Annotated[int, Meta(ge=1, le=64)]
    acceptance: Annotated[float, Meta(gt=0, lt=1)] = 0.7
    trials: Annotated[float, Meta(gt=0, le=1e9)] = 50.0
    costs: RoundCosts | None = None

    def __post_init__(self) -> None:
        if self.costs is not None and len(self.costs.draft_s[0]) <= self.most:
            raise ValueError(f"goodput: tables of costs have times of 0 to most = {self.most} tokens")

    @property
    def longest(self) -> int:
        """Maximum draft length."""
        return self.most

    def start(self) -> Trials:
        """Return the state of a new request."""
        return Trials()

    def learn(self, state: Trials, drafted: int, outcome: Outcome) -> Trials:
        """Add a verification's comparisons."""
        return Trials(state.accepted + outcome.accepted, state.compared + min(outcome.accepted + 1, drafted))

    def lengths(self, states: Sequence[Trials], rng: np.random.Generator) -> list[int]:
        """Return one length for each state."""
        assert self.costs is not None
        if not states:
            return []
        most, rows, (draft_s, verify_s) = self.most, len(states), self.costs.of(len(states))
        reached = np.power.outer(
            acceptances(states, self.acceptance, self.trials), np.arange(1, most + 1)
        )  # [row, j - 1]: a^j
        best_s, best = (draft_s[0] + verify_s[0]) / rows, [0] * rows  # seconds a token
        for longest in range(1, most + 1):  # all rows draft in as many passes as the longest
            a_row = np.arange(rows * longest + 1) / rows
            round_s = draft_s[longest] + np.interp(a_row, np.arange(most + 1), verify_s[: most + 1])
            token_s, lengths = best_slots(reached[:, :longest], round_s, rows)
            if token_s < best_s:
                best_s, best = token_s, lengths
        return best


def acceptances(states: Sequence[Any], prior: float, trials: float) -> np.ndarray:
    """Return the acceptance of each request, perhaps by class: by its trials and, with a weight, those of all."""
    accepted = np.array([state.accepted for state in states], dtype=float)  # [row], or [row, class]
    compared = np.array([state.compared for state in states], dtype=float)
    of_all = (prior * trials + accepted.sum(0)) / (trials + compared.sum(0))
    return np.asarray((of_all * trials + accepted) / (trials + compared))


def best_slots(survival: np.ndarray, round_s: np.ndarray, rows: int) -> tuple[float, list[int]]:
    """Return the fewest seconds an expected token, and the length of each row's draft that gives them.

    - `survival`: of each draft token, [row, position - 1], falling; tokens are added in its order.
    - `round_s`: times in seconds of rounds with 0, 1, ... draft tokens.
    - `rows`: requests that get a token of the target itself.
    """
    order = np.argsort(-survival, axis=None, kind="stable")[: len(round_s) - 1]
    token_s = round_s / (rows + np.cumsum([0.0, *survival.ravel()[order]]))
    tokens = int(np.argmin(token_s))
    lengths = np.bincount(order[:tokens] // survival.shape[1], minlength=len(survival))
    return float(token_s[tokens]), [int(length) for length in lengths]
