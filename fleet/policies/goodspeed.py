"""GoodSpeed's rules: estimated acceptance (3) and goodput (4), and the gradient schedule (5) under a token budget."""

import heapq
from collections.abc import Sequence
from typing import Annotated, ClassVar

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from specfleet.fleet.policies.allocate import Needs, SharedBudget
from specfleet.fleet.policies.outcome import Outcome

Share = Annotated[float, Meta(gt=0, le=1)]
Exponent = Annotated[float, Meta(ge=0, le=1)]
FIRST_ACCEPTANCE = 0.5  # alpha-hat(0)
FIRST_GOODPUT = 1.0  # X(0), in tokens a round


class Client(msgspec.Struct, frozen=True):
    """State of one draft server: alpha-hat, X in tokens a round, and t, its verifications."""

    acceptance: float
    goodput: float
    rounds: int = 0


class GoodSpeed(SharedBudget, frozen=True, tag="goodspeed", tag_field="policy", forbid_unknown_fields=True):
    """GoodSpeed: lengths by the gradient of the sum of the goodputs' logarithms, equation (5).

    Keys:
        eta (share): `eta`, weight of the newest verification in the estimated acceptance alpha-hat, equation (3).
        beta (share): `beta`, weight of the newest verification in the estimated goodput X, equation (4).
        eta_exponent (power): Of assumption 3: the weight of verification t is eta / t^exponent; at 0 it stays.
        beta_exponent (power): The same of beta.
    """

    eta: Share = 0.1
    beta: Share = 0.5
    eta_exponent: Exponent = 0.0
    beta_exponent: Exponent = 0.0

    needs: ClassVar[Needs] = "ratios"

    def start(self) -> Client:
        """Return the state of a new client."""
        return Client(FIRST_ACCEPTANCE, FIRST_GOODPUT)

    def learn(self, state: Client, drafted: int, outcome: Outcome) -> Client:
        """Smooth the outcome of a verification: equations (3) and (4).

        S_i = 0 leaves alpha-hat unchanged, and so does a late draft of which no token was compared.
        """
        t = state.rounds + 1
        eta = self.eta / t**self.eta_exponent if outcome.ratio or outcome.klds else 0.0
        beta = self.beta / t**self.beta_exponent
        realized = outcome.accepted + 1  # x_i(t): accepted tokens and the correction
        return Client(
            (1 - eta) * state.acceptance + eta * outcome.ratio, (1 - beta) * state.goodput + beta * realized, t
        )

    def lengths(self, states: Sequence[Client], rng: np.random.Generator) -> list[int]:
        """Solve (5): the lengths that maximise the sum of gradient times expected goodput, at most C in all."""
        weights = [state.goodput**-1 for state in states]
        return gradient_schedule(weights, [state.acceptance for state in states], self.budget)


def gradient_schedule(weights: Sequence[float], acceptances: Sequence[float], budget: int) -> list[int]:
    """Maximise sum w_i (1 - alpha_i^(S_i + 1)) / (1 - alpha_i) over integers S_i >= 0 with sum S_i <= C. Equation (5).

    Token S + 1 of client i adds w_i alpha_i^(S + 1), never more than the token before. Taking the largest gain C
    times is therefore exact. Tokens without gain are not allocated.
    """
    lengths = [0] * len(weights)
    gains = [(-weight * alpha, i) for i, (weight, alpha) in enumerate(zip(weights, acceptances, strict=True))]
    heapq.heapify(gains)
    for _ in range(budget):
        if not gains or gains[0][0] >= 0:
            break
        gain, i = gains[0]
        lengths[i] += 1
        heapq.heapreplace(gains, (gain * acceptances[i], i))
    return lengths


def utility(goodputs: Sequence[float] | NDArray[np.float64]) -> float:
    """U(x) = sum log x_i, of goodputs in tokens a round (problem (1))."""
    return float(np.log(goodputs).sum())
