"""DSDE's rules: a speculation length for each sequence from the stability of KL(p||q), and the cap of a batch."""

import math
from collections.abc import Sequence
from typing import ClassVar

import msgspec
import numpy as np

from fleet.policies.allocate import LengthAllocation, Needs
from fleet.policies.outcome import Outcome

SHORT_STEPS = 10  # the short window of equation (4)
LONG_STEPS = 30  # the long window of equation (4)
DECAY = 0.85  # delta: decay of a step's weight with each later step, equation (5)
SL_MIN = 2  # tokens of the shortest draft
EPSILON = 1e-6  # of equation (1)
# The paper does not print these two: the number of first steps that set SL_max by equation (1), and their depth.
CALIBRATION_STEPS = 4
CALIBRATION_TOKENS = 8


class Stability(msgspec.Struct, frozen=True):
    """State of one sequence: mean divergences of its steps, newest last, and calibration sums.

    - `longest`: SL_A,max, the most tokens accepted in a step.
    - `kld_sum`: sum over `tokens` tokens. `kld_peak`: maximum over single tokens.
    """

    klds: tuple[float, ...] = ()
    steps: int = 0
    longest: int = 0
    tokens: int = 0
    kld_sum: float = 0.0
    kld_peak: float = 0.0


class Dsde(LengthAllocation, frozen=True, tag="dsde", tag_field="policy", forbid_unknown_fields=True):
    """DSDE: a length for each sequence and step, longer while drafter and target agree steadily.

    Keys:
        cap: Whether the mean length of a batch caps all its lengths, equation (11).
    """

    cap: bool = True

    needs: ClassVar[Needs] = "signals"

    @property
    def longest(self) -> int:
        """Maximum draft length: (1) at most doubles the accepted length of the first drafts."""
        return 2 * CALIBRATION_TOKENS

    def start(self) -> Stability:
        """Return the state of a new sequence."""
        return Stability()

    def learn(self, state: Stability, drafted: int, outcome: Outcome) -> Stability:
        """Add a step's divergences to the history, and to the calibration during the first steps."""
        klds = (*state.klds, outcome.kld)[-LONG_STEPS:]
        steps = state.steps + 1
        if steps > CALIBRATION_STEPS:
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
        """Return one length for each sequence."""
        predicted = [self.predicted(state) for state in states]
        if self.cap and predicted:
            limit = sum(predicted) / len(predicted)  # (11)
            predicted = [min(length, limit) for length in predicted]
        return [max(SL_MIN, round(length)) for length in predicted]

    def predicted(self, state: Stability) -> float:
        """SL-hat of equations (2) and (8)."""
        if state.steps < CALIBRATION_STEPS:
            return CALIBRATION_TOKENS
        spread = max(sl_max(state) - SL_MIN, 0.0)
        penalty = scale_factor(state.klds[-1]) * wvir(state.klds)
        return (1 - penalty) * spread + SL_MIN if penalty <= 1 else SL_MIN


def sl_max(state: Stability) -> float:
    """SL_A,max (1 + mean KLD / (peak KLD + epsilon)): equation (1)."""
    mean = state.kld_sum / state.tokens if state.tokens else 0.0
    return state.longest * (1 + mean / (state.kld_peak + EPSILON))


def wvir(klds: Sequence[float]) -> float:
    """Return Var_w of the short window over Var_w of the long window, equation (4).

    The paper does not define 0 / 0, where nothing varies: 1 here, so that the scale factor alone decides. Rounding
    errors do not count as variation.
    """
    recent = klds[-LONG_STEPS:]
    long = weighted_variance(recent, DECAY)
    if long <= (1e-12 * max(recent, default=0.0)) ** 2:
        return 1.0
    return weighted_variance(klds[-SHORT_STEPS:], DECAY) / long


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
