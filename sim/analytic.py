"""The analytic model of the star: StarSD's equations (5) to (12), in seconds and tokens.

Times are constant and all targets are equal. N >= 1, S > 0, Z >= 0.
"""

import math
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from specfleet.fleet.policies.admit import N_max

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


class Throughput(msgspec.Struct, frozen=True):
    """Tokens a second, with and without the bonus token of each round.

    Keys:
        with_bonus (tokens/s): All committed tokens, the bonus token of each round included.
        without_bonus (tokens/s): Accepted draft tokens only, as StarSD counts them. Equation (11).
    """

    with_bonus: float
    without_bonus: float


class StarPrediction(msgspec.Struct, frozen=True):
    """Results of the equations for one star with N targets.

    Keys:
        N_full (targets): `N_full`, smallest number of targets that keeps the drafter fully loaded: ceil(Z / S) + 1.
            Equation (12).
        N_max (targets): `N_max`, largest number of targets at which each is at least as fast as without the drafter:
            tokens a round / T_gamma is at least the standalone rate. 0 if there is none. Section 4.2.
        regime: Stage of section 4.2: "fully-loaded" if Z <= (N - 1) S, equation (7), else "under-loaded".
        N (targets): `N`, number of targets that the drafter serves.
        S_s: `S`, service time of the drafter: one draft step and its overhead. Equation (5).
        Z_s: `Z`, return time: from the end of a draft step to the target's next request, communication and
            verification. Z = t_c + t_v, equation (6).
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
