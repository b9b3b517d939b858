"""The analytic model of the star: StarSD's equations (5) to (12), in seconds and tokens.

Times are constant and all targets are equal, or differ in Z_i. N >= 1, S > 0, Z >= 0.

Unlike targets: the drafter serves in order of arrival, so that all wait alike in the mean, and target i has a round
every S + Z_i + T_wait. T_wait is 0 while these rounds leave the drafter time; else they fill it. With Z the mean over
rounds, equations (8) to (10) hold for such a fleet as a whole. Of equal targets all of this is exact. Of unlike ones
R_q = min(1 / S, sum of 1 / (S + Z_i)) is a bound, for their rounds collide.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from specfleet.fleet.policies.admit import N_max, most_within

Regime = Literal["under-loaded", "fully-loaded"]

ROUNDING = 1e-12  # relative difference up to which two times count as equal: 0.1 + 0.2 and 0.3 do


def is_fully_loaded(N: int, S_s: float, Z_s: float) -> bool:
    """Whether the drafter never waits for a target: Z <= (N - 1) S, up to rounding. Equation (7)."""
    return Z_s <= (N - 1) * S_s * (1 + ROUNDING)


def regime(N: int, S_s: float, Z_s: float) -> Regime:
    """Return the stage of section 4.2 for N targets. Equation (7) separates the two."""
    return "fully-loaded" if is_fully_loaded(N, S_s, Z_s) else "under-loaded"


def idle_s(N: int, S_s: float, Z_s: float) -> float:
    """T_idle = max(0, Z - (N - 1) S): the drafter's idle time an iteration. Equation (9)."""
    return max(0.0, Z_s - (N - 1) * S_s)


def iteration_s(N: int, S_s: float, Z_s: float) -> float:
    """T_gamma = N S + T_idle. Equations (8) and (10)."""
    return N * S_s + idle_s(N, S_s, Z_s)


def rounds_per_s_per_target(N: int, S_s: float, Z_s: float) -> float:
    """R_p = 1 / T_gamma: a target verifies once an iteration (appendix C.1)."""
    return 1 / iteration_s(N, S_s, Z_s)


def rounds_per_s(N: int, S_s: float, Z_s: float) -> float:
    """R_q = N / T_gamma: one draft per target and iteration. Appendix C.1."""
    return N / iteration_s(N, S_s, Z_s)


def plateau_ratio(S_s: float, Z_s: float) -> float:
    """Largest R_q over R_q with one target: (1 / S) / (1 / (S + Z)) = 1 + Z / S."""
    return 1 + Z_s / S_s


def load(N: int, S_s: float, Z_s: float) -> float:
    """Share of an iteration in which the drafter is busy: N S / T_gamma."""
    return N * S_s / iteration_s(N, S_s, Z_s)


def wait_s(N: int, S_s: float, Z_s: float) -> float:
    """Steady-state wait in the request buffer: T_gamma - S - Z, 0 while under-loaded. Section 4.2."""
    return max(0.0, N * S_s - (S_s + Z_s))


def throughput(N: int, S_s: float, Z_s: float, tokens_per_round: float) -> float:
    """O = N tokens / T_gamma, in tokens a second. Equation (11).

    The paper counts accepted draft tokens. Add one token per round, the bonus token, to count all output.
    """
    return tokens_per_round * rounds_per_s(N, S_s, Z_s)


def N_full(S_s: float, Z_s: float) -> int:
    """Smallest N for which equation (7) holds: ceil(Z / S) + 1. Equation (12)."""
    N = math.ceil(Z_s / S_s) + 1
    # Rounding may put the quotient just above an integer: 2.1 / 0.3 > 7.
    return N - 1 if is_fully_loaded(N - 1, S_s, Z_s) else N


def common_wait_s(S_s: float, returns_s: Sequence[float]) -> float:
    """T_wait of unlike targets, whose rounds share the drafter's time: sum of S / (S + Z_i + T_wait) = 1; 0 below that.

    The sum falls and is convex, so that Newton's steps from 0 rise to the root.
    """
    wait_s, step_s = 0.0, math.inf
    while step_s > ROUNDING * (S_s + wait_s):
        shares = [S_s / (S_s + Z_s + wait_s) for Z_s in returns_s]
        step_s = (sum(shares) - 1) / sum(share * share for share in shares) * S_s
        wait_s += max(step_s, 0.0)
    return wait_s


def mean_return_s(S_s: float, returns_s: Sequence[float]) -> float:
    """Z of a mean round of unlike targets: each has 1 / (S + Z_i + T_wait) rounds a second."""
    wait_s = common_wait_s(S_s, returns_s)
    rounds_per_s = [1 / (S_s + Z_s + wait_s) for Z_s in returns_s]
    return sum(rate * Z_s for rate, Z_s in zip(rounds_per_s, returns_s, strict=True)) / sum(rounds_per_s)


def N_full_of(S_s: float, returns_s: Sequence[float]) -> int:
    """Smallest number of unlike targets, in order, whose rounds fill the drafter's time: sum of S / (S + Z_i) >= 1.

    Further targets are like the last. Fewer always leave the drafter idle; of equal ones it is equation (12).
    """
    return most_within(S_s, 0.0, returns_s, busy=1 - ROUNDING) + 1


class Throughput(msgspec.Struct, frozen=True):
    """Tokens a second, with and without the bonus token of each round.

    Keys:
        with_bonus (tokens/s): All committed tokens, the bonus token of each round included.
        without_bonus (tokens/s): Accepted draft tokens only, as StarSD counts them. Equation (11).
    """

    with_bonus: float
    without_bonus: float


class TargetPrediction(msgspec.Struct, frozen=True):
    """What the equations say of a target, and of the equal ones after it.

    Keys:
        first (number): The first of these targets, counted from 1.
        Z_s: `Z_i`, return time of these targets.
        N_max (targets): Largest number of targets, in the fleet's order, at which these are at least as fast as without
            the drafter.
        rounds_per_s (rounds/s): Rounds of one of them in a second: 1 / (S + Z_i + T_wait).
        tokens_per_s (tokens/s): Tokens that one of them decodes in a second.
        standalone_tokens_per_s (tokens/s): The same without the drafter.
    """

    first: int
    Z_s: float
    N_max: int
    rounds_per_s: float
    tokens_per_s: float
    standalone_tokens_per_s: float


class StarPrediction(msgspec.Struct, frozen=True):
    """Results of the equations for one star with N targets.

    Keys:
        N_full (targets): `N_full`, smallest number of targets that keeps the drafter fully loaded: ceil(Z / S) + 1.
            Equation (12). Of unlike targets, in their order: sum of S / (S + Z_i) >= 1.
        N_max (targets): `N_max`, largest number of targets at which each is at least as fast as without the drafter:
            tokens a round / T_gamma is at least the standalone rate. 0 if there is none. Section 4.2.
        regime: Stage of section 4.2: "fully-loaded" if Z <= (N - 1) S, equation (7), else "under-loaded".
        N (targets): `N`, number of targets that the drafter serves.
        S_s: `S`, service time of the drafter: one draft step and its overhead. Equation (5).
        Z_s: `Z`, return time: from the end of a draft step to the target's next request, communication and
            verification. Z = t_c + t_v, equation (6). Of unlike targets the mean over rounds.
        iteration_s: `T_gamma`, time in which each target has one round: N S + T_idle = max(N S, S + Z). Equations (8)
            and (10).
        idle_s: `T_idle`, idle time of the drafter per iteration: max(0, Z - (N - 1) S). Equation (9).
        wait_s: `T_wait`, wait of a request in the drafter's buffer: max(0, (N - 1) S - Z). Section 4.2.
        load (share): Share of time in which the drafter is busy: N S / T_gamma.
        rounds_per_s (rounds/s): `R_q`, rounds drafted in a second: N / T_gamma. Appendix C.1.
        rounds_per_s_per_target (rounds/s): `R_p`, rounds per target in a second: 1 / T_gamma. Appendix C.1.
        acceptance_length (tokens/round): `E[l(d)]`, accepted draft tokens a round, without the bonus token.
        mean_acceptance_length (tokens/round): `E[l(d)] + 1`, with the bonus token, as engines count: "Mean acceptance
            length" of vLLM, "accept len" of SGLang.
        plateau_ratio (factor): Largest round rate over the round rate with one target: 1 + Z / S.
        throughput: `O`, tokens that all targets decode in a second. Equation (11).
        throughput_per_target: `O_i`, tokens that one target decodes in a second: O / N.
        targets: Unlike targets, range by range of equal ones; N, T_gamma and rates above are means over all of them.
    """

    N_full: int
    N_max: int
    regime: Regime
    N: int
    S_s: float
    Z_s: float
    iteration_s: float
    idle_s: float
    wait_s: float
    load: float
    rounds_per_s: float
    rounds_per_s_per_target: float
    acceptance_length: float
    mean_acceptance_length: float
    plateau_ratio: float
    throughput: Throughput
    throughput_per_target: Throughput
    targets: tuple[TargetPrediction, ...] = ()


def predict_star(
    N: int, S_s: float, Z_s: float, accepted_per_round: float, standalone_tokens_per_s: float
) -> StarPrediction:
    """Evaluate all equations for N targets. A round commits the accepted tokens and the bonus token."""
    committed = accepted_per_round + 1
    system = Throughput(throughput(N, S_s, Z_s, committed), throughput(N, S_s, Z_s, accepted_per_round))
    equations: tuple[Callable[[int, float, float], Any], ...] = (  # of the fields with their names
        regime, iteration_s, idle_s, wait_s, load, rounds_per_s, rounds_per_s_per_target,
    )  # fmt: skip
    return StarPrediction(
        S_s=S_s, Z_s=Z_s, N=N, N_full=N_full(S_s, Z_s), N_max=N_max(S_s, Z_s, committed, standalone_tokens_per_s),
        **{equation.__name__: equation(N, S_s, Z_s) for equation in equations}, acceptance_length=accepted_per_round,
        mean_acceptance_length=committed, plateau_ratio=plateau_ratio(S_s, Z_s), throughput=system,
        throughput_per_target=Throughput(system.with_bonus / N, system.without_bonus / N),
    )  # fmt: skip
