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
LARGE = 50.0  # logarithm beyond that of any goodput
HALVINGS = 100  # of the range of a level: down to the last digit


class Client(msgspec.Struct, frozen=True):
    """State of one draft server: alpha-hat, X in tokens a round, and t, its verifications."""

    acceptance: float
    goodput: float
    rounds: int = 0


class GoodSpeed(SharedBudget, frozen=True, tag="goodspeed", tag_field="policy", forbid_unknown_fields=True):
    """GoodSpeed: lengths by the gradient of a concave utility of the goodputs, equation (5).

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
        weights = [state.goodput**-self.alpha for state in states]
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


def utility(goodputs: Sequence[float] | NDArray[np.float64], alpha: float = 1.0) -> float:
    """U(x) of goodputs in tokens a round (problem (1)): sum log x_i, or sum x_i^(1 - alpha) / (1 - alpha)."""
    x = np.asarray(goodputs)
    return float(np.log(x).sum() if alpha == 1 else (x ** (1 - alpha) / (1 - alpha)).sum())


def best_goodput(acceptances: Sequence[float], budget: int, alpha: float = 1.0) -> list[float]:
    """x*, the solution of problem (1): goodputs in tokens a round that maximise the utility over the region (2).

    Its edge consists of time shares of schedules. Token k of a draft adds a^k to the goodput x without it. At the
    optimum, the marginal utility a^k / x^alpha has one value, exp(-level), for every token that is drafted in a share
    of the rounds, and all shares add up to the budget. At alpha = 0 the schedule of equal weights is best.
    """
    gains = np.minimum(acceptances, 1.0)[:, None] ** np.arange(1, budget + 1)
    if alpha == 0 or not gains.any():
        lengths = gradient_schedule([1.0] * len(gains), acceptances, budget)
        return [1 + float(of_client[:length].sum()) for of_client, length in zip(gains, lengths, strict=True)]
    without = 1 + np.cumsum(gains, axis=1) - gains
    logs = np.log(gains, out=np.full_like(gains, -np.inf), where=gains > 0)

    def gained(level: float) -> NDArray[np.float64]:
        return np.clip(np.exp(np.minimum((level + logs) / alpha, LARGE)) - without, 0.0, gains)

    low, high = -float(logs.max()), float((alpha * np.log(without + gains) - logs)[gains > 0].max())
    for _ in range(HALVINGS):
        level = (low + high) / 2
        drafted = np.divide(gained(level), gains, out=np.zeros_like(gains), where=gains > 0).sum()
        low, high = (level, high) if drafted < budget else (low, level)
    best: list[float] = (1 + gained(high).sum(axis=1)).tolist()
    return best
