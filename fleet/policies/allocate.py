"""How many tokens a session drafts next, its speculation length: the simple rules, and what all rules have in common.

The papers' own rules are beside this file: `goodspeed.py`, `dsde.py`.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Protocol

import msgspec
import numpy as np
from msgspec import Meta

from fleet.policies.outcome import Outcome

UNLIMITED = 1 << 30
HEURISTIC_FIRST = 5  # tokens of the first draft of a sequence; transformers begins at 20
Needs = Literal["lengths", "ratios", "signals"]
Length = Annotated[int, Meta(ge=0, le=4096)]


class Allocation(Protocol):
    """Speculation lengths for all open sessions at once, from the state that each of them has.

    A state is an immutable value that the policy makes, and that its owner keeps. `budget`: the sum of all lengths that
    may be out at a time; `longest`: the longest length that can come out. A rule that `watches` drafts may stop one
    after a token, from the entropy of its draft distribution. `needs`: what the acceptance model must know: lengths of
    rounds, the "ratios" min(1, p/q) of single tokens, or all their "signals".
    """

    @property
    def budget(self) -> int:
        """The sum of all lengths that may be out at a time."""

    @property
    def longest(self) -> int:
        """The longest length that can come out."""

    @property
    def watches(self) -> bool:
        """Whether it may stop a draft after a token."""

    @property
    def needs(self) -> Needs:
        """What the acceptance model must know."""

    def start(self) -> Any:
        """Return the state of a new session."""
        ...

    def learn(self, state: Any, drafted: int, outcome: Outcome) -> Any:
        """Return the state after a verification of `drafted` tokens."""
        ...

    def lengths(self, states: Sequence[Any], rng: np.random.Generator) -> list[int]:
        """Return one length a state."""
        ...

    def stops(self, state: Any, entropy: float) -> bool:
        """Whether to stop after a token of a draft distribution with that entropy, in nats."""
        ...


class Rule(msgspec.Struct, frozen=True):
    """What most allocations are like: no budget, and no look at single tokens."""

    @property
    def budget(self) -> int:
        """No limit."""
        return UNLIMITED

    @property
    def watches(self) -> bool:
        """Whether drafts are stopped token by token: no."""
        return False

    @property
    def needs(self) -> Needs:
        """What the acceptance model must know: lengths will do."""
        return "lengths"

    @property
    def fairness(self) -> float:
        """Which alpha-fair utility its goodputs are judged by: 1, the sum of logarithms."""
        return 1.0

    def stops(self, state: Any, entropy: float) -> bool:
        """Whether to stop after a token: never."""
        return False


class Memoryless(Rule, frozen=True):
    """An allocation that learns nothing."""

    def start(self) -> None:
        """Return the state of a new session: there is none."""

    def learn(self, state: None, drafted: int, outcome: Outcome) -> None:
        """Return the state after a verification: there is none."""


class Fixed(Memoryless, frozen=True, tag="fixed", tag_field="policy", forbid_unknown_fields=True):
    """The same depth d for every round, as in StarSD.

    Keys:
        depth (tokens): `d`, the length of every draft.
    """

    depth: Length

    @property
    def longest(self) -> int:
        """The longest draft that can come out."""
        return self.depth

    def lengths(self, states: Sequence[None], rng: np.random.Generator) -> list[int]:
        """Return one length a state."""
        return [self.depth] * len(states)


class Heuristic(Rule, frozen=True, tag="heuristic", tag_field="policy", forbid_unknown_fields=True):
    """Two tokens more after full acceptance, one less after a mismatch: the `heuristic` schedule of transformers.

    The state is the length itself.

    Keys:
        most (tokens): The longest draft, beyond which the length does not grow.
    """

    most: Annotated[int, Meta(ge=1, le=4096)] = 64

    @property
    def longest(self) -> int:
        """The longest draft that can come out."""
        return self.most

    def start(self) -> int:
        """Return the state of a new session."""
        return min(HEURISTIC_FIRST, self.most)

    def learn(self, state: int, drafted: int, outcome: Outcome) -> int:
        """Return the state after a verification of `drafted` tokens."""
        return min(state + 2, self.most) if outcome.accepted == drafted else max(1, state - 1)

    def lengths(self, states: Sequence[int], rng: np.random.Generator) -> list[int]:
        """Return one length a state."""
        return list(states)


class FixedShare(Memoryless, frozen=True, tag="fixed-share", tag_field="policy", forbid_unknown_fields=True):
    """GoodSpeed's baseline Fixed-S: S_i = C / N, the remainder spread over the first ones.

    Keys:
        budget (tokens): `C`, draft tokens that one verification takes in all.
    """

    budget: Length

    @property
    def longest(self) -> int:
        """The longest draft that can come out."""
        return self.budget

    def lengths(self, states: Sequence[None], rng: np.random.Generator) -> list[int]:
        """Return one length a state."""
        share, remainder = divmod(self.budget, max(len(states), 1))
        return [share + (place < remainder) for place in range(len(states))]


class RandomShare(Memoryless, frozen=True, tag="random-share", tag_field="policy", forbid_unknown_fields=True):
    """GoodSpeed's baseline Random-S: every token of the budget goes to a session chosen at random.

    The paper says that the lengths are random with a sum of at most C, and not how they are drawn.

    Keys:
        budget (tokens): `C`, draft tokens that one verification takes in all.
    """

    budget: Length

    @property
    def longest(self) -> int:
        """The longest draft that can come out."""
        return self.budget

    def lengths(self, states: Sequence[None], rng: np.random.Generator) -> list[int]:
        """Return one length a state."""
        N = len(states)
        return [int(length) for length in rng.multinomial(self.budget, [1 / N] * N)] if N else []
