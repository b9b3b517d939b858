"""DSDE's rules: a speculation length for each sequence from the stability of KL(p||q), and the cap of a batch."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import ClassVar

import msgspec
import numpy as np

from specfleet.fleet.policies.allocate import LengthAllocation, Needs
from specfleet.fleet.policies.outcome import Outcome

SHORT_TOKENS = 10  # the short window of equation (4)
LONG_TOKENS = 30  # the long window of equation (4)
DECAY = 0.85  # delta: decay of a token's weight with each later token, equation (5)
SL_MIN = 2  # tokens of the shortest draft
EPSILON = 1e-6  # of equation (1)
# The paper prints none of these; they are defaults of the authors' program. Lengths are rounded up, as there.
SL_FIRST, SL_LONGEST = 5, 20  # tokens of the first draft, and of the longest
CALIBRATION_TOKENS = 30  # draft tokens until equation (1) sets SL_max
STILL, OF_STILL = 1e-6, 20.0  # a long-window variance that counts as 0, and the ratio (4) that stands for x / 0


class Stability(msgspec.Struct, frozen=True):
    """State of one sequence.

    - `klds`: divergences of its newest draft tokens, the newest last; `last`: their mean in the last step.
    - `longest`: SL_A,max, the most tokens accepted in a step of the calibration.
    - `length`: of the next draft during the calibration.
    - `sl_max`: SL_max; 0 during the calibration.
    """

    klds: tuple[float, ...] = ()
    last: float = 0.0
    longest: int = 0
    length: int = SL_FIRST
    sl_max: int = 0


class Dsde(LengthAllocation, frozen=True, tag="dsde", tag_field="policy", forbid_unknown_fields=True):
    """DSDE: a length for each sequence and step, longer while drafter and target agree steadily.

    Keys:
        cap: Whether the mean length of a batch caps all its lengths, equation (11).
    """

    cap: bool = True

    needs: ClassVar[Needs] = "signals"
    longest: ClassVar[int] = SL_LONGEST

    def start(self) -> Stability:
        """Return the state of a new sequence."""
        return Stability()

    def learn(self, state: Stability, drafted: int, outcome: Outcome) -> Stability:
        """Add a step's divergences; during the calibration also its accepted length, which may double the next."""
        if not outcome.klds:
            return state
        klds = (*state.klds, *outcome.klds)[-LONG_TOKENS:]
        state, before = msgspec.structs.replace(state, klds=klds, last=fmean(outcome.klds)), state
        if state.sl_max:
            return state
        if len(klds) >= CALIBRATION_TOKENS:
            return msgspec.structs.replace(state, sl_max=sl_max(before))
        length = min(2 * state.length, SL_LONGEST) if outcome.accepted >= state.length else state.length
        return msgspec.structs.replace(state, longest=max(state.longest, outcome.accepted), length=length)

    def lengths(self, states: Sequence[Stability], rng: np.random.Generator) -> list[int]:
        """Return one length for each sequence; the cap is of those that are calibrated."""
        lengths = [predicted(state) if state.sl_max else state.length for state in states]
        calibrated = [length for length, state in zip(lengths, states, strict=True) if state.sl_max]
        if not self.cap or not calibrated:
            return lengths
        most = math.ceil(fmean(calibrated))  # (11)
        return [min(length, most) if state.sl_max else length for length, state in zip(lengths, states, strict=True)]


def predicted(state: Stability) -> int:
    """SL-hat of equations (2) and (8)."""
    penalty = scale_factor(state.last) * wvir(state.klds)
    return max(SL_MIN, math.ceil((1 - penalty) * (state.sl_max - SL_MIN)) + SL_MIN)


def sl_max(state: Stability) -> int:
    """SL_A,max (1 + mean KLD / (peak KLD + epsilon)): equation (1), of a sequence at the end of its calibration."""
    surplus = fmean(state.klds) / (max(state.klds) + EPSILON) if state.klds else 0.0
    return min(max(round(state.longest * (1 + surplus)), SL_MIN), SL_LONGEST)


def wvir(klds: Sequence[float]) -> float:
    """Return Var_w of the short window over Var_w of the long window, equation (4)."""
    long = weighted_variance(klds[-LONG_TOKENS:], DECAY)
    return weighted_variance(klds[-SHORT_TOKENS:], DECAY) / long if long >= STILL else OF_STILL


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
