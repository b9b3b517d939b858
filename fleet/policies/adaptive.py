"""Adaptive verification: of whole drafts, the tokens whose verification gives the most expected tokens a second.

vLLM's `enable_adaptive_verification` (vllm-project/vllm #47808). `goodput` chooses how many tokens to draft; this rule
chooses among tokens that are drafted.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta

from specfleet.fleet.policies.allocate import LengthAllocation, Needs
from specfleet.fleet.policies.goodput import RoundCosts, acceptances, best_slots
from specfleet.fleet.policies.outcome import Outcome

EDGES_NATS = (0.02, 0.1, 0.3, 0.7, 1.5)  # of classes of entropies; acceptance is estimated for each


class Tallies(msgspec.Struct, frozen=True):
    """State of a request: accepted and compared draft tokens by class, their position or that of their entropy.

    - `drawn`: classes of the newest draft's tokens.
    """

    accepted: tuple[int, ...]
    compared: tuple[int, ...]
    drawn: tuple[int, ...]


class Adaptive(LengthAllocation, frozen=True, tag="adaptive", tag_field="policy", forbid_unknown_fields=True):
    """Draft `depth` tokens for every request, and verify those that commit the most expected tokens a second.

    A token survives with the product of the acceptances up to its position. The tokens of all drafts in a step are
    sorted by survival, and the first B are verified: B has the largest ratio of expected tokens to the time of a round.
    Of the times by tokens the convex hull counts. Then whether a token is verified depends on no later one, and
    sampled text keeps its distribution.

    Keys:
        depth (tokens): The length of every draft.
        by: What acceptance is estimated by: the "position" in the draft, or the "entropy" of the distribution that the
            token is drawn from, which needs signals, and `drafters.place = "target"`.
        acceptance (probability): Acceptance of a token before any trial.
        trials (tokens): Weight of all requests' acceptance in that of one.
        costs: Times of rounds. Left out, those of the profile at the workload's middle context.
    """

    depth: Annotated[int, Meta(ge=1, le=64)]
    by: Literal["position", "entropy"] = "position"
    acceptance: Annotated[float, Meta(gt=0, lt=1)] = 0.7
    trials: Annotated[float, Meta(gt=0, le=1e9)] = 50.0
    costs: RoundCosts | None = None

    chooses: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.costs is not None and len(self.costs.draft_s[0]) <= self.depth:
            raise ValueError(f"adaptive: tables of costs have times of 0 to depth = {self.depth} tokens")

    @property
    def needs(self) -> Needs:
        """What the acceptance model must provide."""
        return "signals" if self.by == "entropy" else "lengths"

    @property
    def longest(self) -> int:
        """Maximum draft length."""
        return self.depth

    def start(self) -> Tallies:
        """Return the state of a new request."""
        nothing = (0,) * (self.depth if self.by == "position" else len(EDGES_NATS) + 1)
        return Tallies(nothing, nothing, tuple(range(self.depth)) if self.by == "position" else ())

    def drew(self, state: Tallies, entropies: Sequence[float]) -> Tallies:
        """Note the classes of a new draft's tokens."""
        if self.by == "position":
            return state
        return msgspec.structs.replace(state, drawn=tuple(np.searchsorted(EDGES_NATS, entropies).tolist()))

    def learn(self, state: Tallies, drafted: int, outcome: Outcome) -> Tallies:
        """Add the comparisons of a verification of `drafted` tokens, up to the first rejected one."""
        compared = added(state.compared, state.drawn[: min(outcome.accepted + 1, drafted)])
        return Tallies(added(state.accepted, state.drawn[: outcome.accepted]), compared, state.drawn)

    def verified(self, states: Sequence[Tallies], drafted: Sequence[int], rows: int) -> list[int]:
        """Return how many tokens of each draft are verified.

        - `drafted`: tokens of the draft of each state.
        - `rows`: requests that get a token in the step, those without a draft included.
        """
        assert self.costs is not None
        draft_s, verify_s = self.costs.of(rows)
        a_row, lengths = np.arange(sum(drafted) + 1) / rows, np.arange(self.depth + 1)
        round_s = draft_s[self.depth] + np.interp(a_row, lengths, convex(verify_s[: self.depth + 1]))
        if not round_s.any():  # of steps without a time
            return list(drafted)
        return best_slots(self.survival(states, drafted), round_s, rows)[1]

    def survival(self, states: Sequence[Tallies], drafted: Sequence[int]) -> np.ndarray:
        """Return the survival of each draft token, [row, position - 1]; 0 beyond a row's draft."""
        by_class = acceptances(states, self.acceptance, self.trials)
        classes = [(*state.drawn, *(0,) * self.depth)[: self.depth] for state in states]
        survival = np.cumprod(np.take_along_axis(by_class, np.array(classes), 1), 1)
        return np.where(np.arange(self.depth) < np.array(drafted)[:, None], survival, 0.0)


def added(counts: tuple[int, ...], classes: Sequence[int]) -> tuple[int, ...]:
    """Return counts with one more for each of `classes`."""
    return tuple((np.bincount(classes, minlength=len(counts)) + counts).tolist()) if classes else counts


def convex(times_s: np.ndarray) -> np.ndarray:
    """Return the largest convex curve that lies above no time."""
    kept = [0]
    for place in range(1, len(times_s)):
        while len(kept) > 1 and np.interp(kept[-1], (kept[-2], place), times_s[[kept[-2], place]]) <= times_s[kept[-1]]:
            kept.pop()
        kept.append(place)
    hull: np.ndarray = np.interp(np.arange(len(times_s)), kept, times_s[kept])
    return hull
