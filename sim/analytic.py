"""The analytic model of the star: StarSD's equations (5) to (12), on plain numbers in seconds and tokens."""

import math
from typing import Literal

import msgspec

from sim.mva import mean_value_analysis
from specfleet.policies.admit import N_max

Regime = Literal["under-loaded", "fully-loaded"]

ROUNDING = 1e-9  # Z / S this close above an integer is that integer


def service_s(base_s: float, per_token_s: float, depth: int) -> float:
    """S(d) = a + b d. Equation (5) is the case a = 0; the fixed cost of a step is real."""
    return base_s + per_token_s * depth


def return_s(communication_s: float, verify_s: float) -> float:
    """Z(d) = t_c + t_v. Equation (6)."""
    return communication_s + verify_s


def is_fully_loaded(N: int, S_s: float, Z_s: float) -> bool:
    """Z <= (N - 1) S: the drafter never waits for a target. Equation (7)."""
    return Z_s <= (N - 1) * S_s


def idle_s(N: int, S_s: float, Z_s: float) -> float:
    """T_idle = max(0, Z - (N - 1) S): the drafter's idle time an iteration. Equation (9)."""
    return max(0.0, Z_s - (N - 1) * S_s)


def iteration_s(N: int, S_s: float, Z_s: float) -> float:
    """T_gamma = N S + T_idle. Equations (8) and (10)."""
    return N * S_s + idle_s(N, S_s, Z_s)


def rounds_per_s(N: int, S_s: float, Z_s: float) -> float:
    """R_q = N / T_gamma: one draft a target and iteration (appendix C.1)."""
    return N / iteration_s(N, S_s, Z_s)


def load(N: int, S_s: float, Z_s: float) -> float:
    """Share of an iteration in which the drafter works: N S / T_gamma."""
    return N * S_s / iteration_s(N, S_s, Z_s)


def wait_s(N: int, S_s: float, Z_s: float) -> float:
    """Steady-state wait in the request buffer, T_gamma - S - Z; zero while under-loaded (section 4.2)."""
    return max(0.0, N * S_s - (S_s + Z_s))


def throughput(N: int, S_s: float, Z_s: float, tokens_per_round: float) -> float:
    """O = N tokens / T_gamma, in tokens a second. Equation (11) counts accepted draft tokens only."""
    return tokens_per_round * rounds_per_s(N, S_s, Z_s)


def N_full(S_s: float, Z_s: float) -> int:
    """The smallest N without idle gaps, ceil(Z / S) + 1. Equation (12)."""
    return math.ceil(Z_s / S_s * (1 - ROUNDING)) + 1


def round_rate_bounds(N: int, S_s: float, Z_s: float) -> tuple[float, float]:
    """Bounds of R_q for any service times with these means: N / (N S + Z) and min(N / (S + Z), 1 / S)."""
    return N / (N * S_s + Z_s), min(N / (S_s + Z_s), 1 / S_s)


class Throughput(msgspec.Struct, frozen=True):
    """Tokens a second: every committed token, and accepted draft tokens only (equation 11)."""

    with_bonus: float
    without_bonus: float


class Bounds(msgspec.Struct, frozen=True):
    """Asymptotic bounds of the round rate R_q, a second."""

    lower_rounds_per_s: float
    upper_rounds_per_s: float


class StarPrediction(msgspec.Struct, frozen=True):
    """What the equations say of one star. `exponential_rounds_per_s`: exact R_q if service and return were exponential."""

    S_s: float
    Z_s: float
    N: int
    N_full: int
    N_max: int
    regime: Regime
    iteration_s: float
    idle_s: float
    wait_s: float
    load: float
    rounds_per_s: float
    rounds_per_s_per_target: float
    plateau_ratio: float
    throughput: Throughput
    throughput_per_target: Throughput
    bounds: Bounds
    exponential_rounds_per_s: float


def predict_star(
    N: int, S_s: float, Z_s: float, accepted_per_round: float, standalone_tokens_per_s: float
) -> StarPrediction:
    """Evaluate all equations for N targets; a round commits the accepted tokens and the target's own one."""
    committed = accepted_per_round + 1
    system = Throughput(throughput(N, S_s, Z_s, committed), throughput(N, S_s, Z_s, accepted_per_round))
    return StarPrediction(
        S_s=S_s,
        Z_s=Z_s,
        N=N,
        N_full=N_full(S_s, Z_s),
        N_max=N_max(S_s, Z_s, committed, standalone_tokens_per_s),
        regime="fully-loaded" if is_fully_loaded(N, S_s, Z_s) else "under-loaded",
        iteration_s=iteration_s(N, S_s, Z_s),
        idle_s=idle_s(N, S_s, Z_s),
        wait_s=wait_s(N, S_s, Z_s),
        load=load(N, S_s, Z_s),
        rounds_per_s=rounds_per_s(N, S_s, Z_s),
        rounds_per_s_per_target=rounds_per_s(N, S_s, Z_s) / N,
        plateau_ratio=1 + Z_s / S_s,
        throughput=system,
        throughput_per_target=Throughput(system.with_bonus / N, system.without_bonus / N),
        bounds=Bounds(*round_rate_bounds(N, S_s, Z_s)),
        exponential_rounds_per_s=mean_value_analysis(N, [S_s], Z_s).throughput_per_s,
    )
