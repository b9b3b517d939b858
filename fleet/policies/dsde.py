"""DSDE's rules: speculation lengths from the stability of KL(p||q), one a sequence, and the cap of a batch."""

import math
from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from fleet.policies.allocate import Needs, Rule
from fleet.policies.outcome import Outcome

Length = Annotated[int, Meta(ge=1, le=2048)]
EPSILON = 1e-6  # of equation (1)


class Stability(msgspec.Struct, frozen=True):
    """What is known of one sequence: mean divergences of its steps, newest last, and what calibration has seen.

    `longest`: SL_A,max, the most tokens accepted in a step; `kld_sum` over `tokens` and `kld_peak`: of single tokens.
    """

    klds: tuple[float, ...] = ()
    steps: int = 0
    longest: int = 0
    tokens: int = 0
    kld_sum: float = 0.0
    kld_peak: float = 0.0


class Dsde(Rule, frozen=True, tag="dsde", tag_field="policy", forbid_unknown_fields=True):
    """DSDE: a length for each sequence and step, longer where drafter and target have agreed steadily of late.

    The number and the length of the calibration steps are not printed in the paper.

    Keys:
        short (steps): The short window of equation (4).
        long (steps): The long window of equation (4).
        decay (share): `delta`, by how much a step's weight falls with each step after it, equation (5).
        least (tokens): `SL_min`, the shortest draft.
        calibration (steps): How many first steps of a sequence set SL_max by equation (1).
        first (tokens): Draft tokens in each of those steps.
        cap: Whether no length of a batch goes beyond the mean of all, equation (11).
    """

    short: Length = 10
    long: Length = 30
    decay: Annotated[float, Meta(gt=0, le=1)] = 0.85
    least: Length = 2
    calibration: Length = 4
    first: Length = 8
    cap: bool = True

    @property
    def needs(self) -> Needs:
        """What the acceptance model must know."""
        return "signals"

    @property
    def longest(self) -> int:
        """The longest draft that can come out: (1) at most doubles what was accepted of the first ones."""
        return max(2 * self.first, self.least)

    def start(self) -> Stability:
        """Return the state of a new sequence."""
        return Stability()

    def learn(self, state: Stability, drafted: int, outcome: Outcome) -> Stability:
        """Add a step's divergences to the history, and to the calibration while that lasts."""
        klds = (*state.klds, outcome.kld)[-self.long :]
        steps = state.steps + 1
        if steps > self.calibration:
            return msgspec.structs.replace(state, klds=klds, steps=steps)
        return Stability(
            klds,
            steps,
            max(state.longest, outcome.accepted),
            state.tokens + drafted,
            state.kld_sum + outcome.kld * drafted,
            max(state.kld_peak, outcome.kld_peak),
        )

    def lengths(self, states: Sequence[Stability], rng: np.random.Generator) -> list[int]:
        """Return one length a sequence."""
        predicted = [self.predicted(state) for state in states]
        if self.cap and predicted:
            limit = sum(predicted) / len(predicted)  # (11)
            predicted = [min(length, limit) for length in predicted]
        return [max(self.least, round(length)) for length in predicted]

    def predicted(self, state: Stability) -> float:
        """SL-hat of equations (2) and (8)."""
        if state.steps < self.calibration:
            return self.first
        spread = max(sl_max(state) - self.least, 0.0)
        penalty = scale_factor(state.klds[-1]) * self.wvir(state.klds)
        return (1 - penalty) * spread + self.least if penalty <= 1 else self.least

    def wvir(self, klds: Sequence[float]) -> float:
        """Return Var_w of the short window over that of the long one (4).

        Where nothing varies, 0 / 0, the paper says nothing: 1 then, neither calmer nor wilder than before, so that the
        scale factor alone decides. Rounding is no variation.
        """
        known = klds[-self.long :]
        long = weighted_variance(known, self.decay)
        if long <= (1e-12 * max(known, default=0.0)) ** 2:
            return 1.0
        return weighted_variance(klds[-self.short :], self.decay) / long


def sl_max(state: Stability) -> float:
    """SL_A,max (1 + mean KLD / (peak KLD + epsilon)): equation (1)."""
    mean = state.kld_sum / state.tokens if state.tokens else 0.0
    return state.longest * (1 + mean / (state.kld_peak + EPSILON))


def scale_factor(last_kld: float) -> float:
    """SF = exp(2 mean KLD of the last step) - 1: equation (3)."""
    return math.expm1(min(2 * last_kld, 50.0))


def weighted_variance(values: Sequence[float], decay: float) -> float:
    """Variance with weights decay^(i - 1), i = 1 for the newest: equations (5) to (7)."""
    if not values:
        return 0.0
    weights = [decay**age for age in range(len(values) - 1, -1, -1)]
    total = sum(weights)
    mean = sum(weight * value for weight, value in zip(weights, values, strict=True)) / total
    return sum(weight * (value - mean) ** 2 for weight, value in zip(weights, values, strict=True)) / total
