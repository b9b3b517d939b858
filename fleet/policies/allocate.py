"""Speculation length: how many tokens a session drafts next. Simple rules, and the base of all rules.

The papers' own rules are in `goodspeed.py` and `dsde.py`.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta

from specfleet.fleet.policies.outcome import Outcome

UNLIMITED = 1 << 30
Needs = Literal["lengths", "ratios", "signals"]
Length = Annotated[int, Meta(ge=0, le=4096)]


class LengthAllocation(msgspec.Struct, frozen=True):
    """Speculation lengths of all open sessions at once, from each session's state.

    A state is an immutable value that the policy creates and its caller keeps.

    - `watches`: whether it may stop a draft after any token.
    - `needs`: what the acceptance model must provide: "lengths" of rounds, token "ratios" min(1, p/q), or "signals".
    - `by_client`: whether states belong to clients, which send one request after another and share a budget, and not
      to single requests.
    - `sees_queue`: whether `lengths` also gets `waiting`: requests that wait for the target or for a drafter elsewhere.
    - `chooses`: whether it chooses the tokens of drafts that a step verifies, by `verified`.
    """

    sees_queue: ClassVar[bool] = False
    watches: ClassVar[bool] = False
    by_client: ClassVar[bool] = False
    chooses: ClassVar[bool] = False

    @property
    def needs(self) -> Needs:
        """What the acceptance model must provide."""
        return "lengths"

    @property
    def budget(self) -> int:
        """Maximum sum of all lengths in flight: no limit."""
        return UNLIMITED

    @property
    def longest(self) -> int:
        """Maximum draft length."""
        raise NotImplementedError

    def start(self) -> Any:
        """Return the state of a new session: none for rules that do not learn."""
        return None

    def learn(self, state: Any, drafted: int, outcome: Outcome) -> Any:
        """Return the state after a verification of `drafted` tokens."""
        return state

    def lengths(self, states: Sequence[Any], rng: np.random.Generator) -> list[int]:
        """Return one length for each state: the maximum."""
        return [self.longest] * len(states)

    def stops(self, state: Any, entropy: float) -> bool:
        """Return whether to stop after a token with that entropy, in nats: never."""
        return False

    def drew(self, state: Any, entropies: Sequence[float]) -> Any:
        """Return the state after a draft on the target's device, whose tokens have those entropies, in nats."""
        return state

    def verified(self, states: Sequence[Any], drafted: Sequence[int], rows: int) -> list[int]:
        """Return how many tokens of each draft a step of so many rows verifies: all."""
        return list(drafted)


class Fixed(LengthAllocation, frozen=True, tag="fixed", tag_field="policy", forbid_unknown_fields=True):
    """The same depth d for every round, as in StarSD.

    Keys:
        depth (tokens): `d`, the length of every draft.
    """

    depth: Length

    @property
    def longest(self) -> int:
        """Maximum draft length."""
        return self.depth


class SharedBudget(LengthAllocation, frozen=True):
    """Rules that share a budget.

    Keys:
        budget (tokens): `C`, draft tokens of one verification in all.
        alpha (power): Exponent of the utility that the metrics have, and that GoodSpeed maximises: the sum of
            x^(1 - alpha) / (1 - alpha) over goodputs x. 1 is the sum of their logarithms, 0 that of the goodputs.
    """

    budget: Length
    alpha: Annotated[float, Meta(ge=0, le=16)] = 1.0

    by_client: ClassVar[bool] = True

    @property
    def longest(self) -> int:
        """Maximum draft length."""
        return self.budget


class BlindShare(SharedBudget, frozen=True):
    """Rules that share a budget among all clients, whether they have a request or not.

    Keys:
        clients (clients): `N`. 0 is the target's streams if it runs all at once, else the requests that it runs.
    """

    clients: Annotated[int, Meta(ge=0, le=10**5)] = 0


class FixedShare(BlindShare, frozen=True, tag="fixed-share", tag_field="policy", forbid_unknown_fields=True):
    """GoodSpeed's baseline Fixed-S: S_i = C / N for ever; the first clients get the remainder."""

    def lengths(self, states: Sequence[None], rng: np.random.Generator) -> list[int]:
        """Return one length for each state."""
        share, remainder = divmod(self.budget, max(self.clients, len(states), 1))
        return [share + (place < remainder) for place in range(len(states))]


class RandomShare(BlindShare, frozen=True, tag="random-share", tag_field="policy", forbid_unknown_fields=True):
    """GoodSpeed's baseline Random-S: every token of the budget goes to a client chosen at random.

    The paper specifies random lengths with a sum of at most C, but not their distribution.
    """

    def lengths(self, states: Sequence[None], rng: np.random.Generator) -> list[int]:
        """Return one length for each state."""
        N = max(self.clients, len(states))
        return [int(length) for length in rng.multinomial(self.budget, [1 / N] * N)[: len(states)]] if N else []
