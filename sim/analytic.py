"""The analytic model of the star: StarSD's equations (5) to (12), in seconds and tokens.

Times are constant and all targets are equal. N >= 1, S > 0, Z >= 0. Unlike targets collide at the drafter even where it
has time, and no equation has their waits: they are played round by round, and what the equations say of means holds.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from heapq import heapreplace
from typing import Any, Literal

import msgspec
import numpy as np

from specfleet.fleet.policies.admit import N_max, most_within

Regime = Literal["under-loaded", "fully-loaded"]

PLAYED = 20_000  # rounds of a star of unlike targets, and 10 for each target
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


def N_full(S_s: float, Z_s: float) -> int:
    """Smallest N for which equation (7) holds: ceil(Z / S) + 1. Equation (12)."""
    N = math.ceil(Z_s / S_s) + 1
    # Rounding may put the quotient just above an integer: 2.1 / 0.3 > 7.
    return N - 1 if is_fully_loaded(N - 1, S_s, Z_s) else N


def play(S_s: float, returns_s: Sequence[float]) -> tuple[float, list[float]]:
    """Play a star with constant times in order of arrival, all targets ready at first; measure its second half.

    Return rounds a second in all, R_q, and of each target, which has one every S + Z_i and its mean wait.
    """
    N = len(returns_s)
    rounds = PLAYED + 10 * N
    waiting, free_s = [(0.0, target) for target in range(N)], 0.0
    began_s, wait_s, of = np.zeros(rounds), np.zeros(rounds), np.zeros(rounds, dtype=np.int64)
    for number in range(rounds):
        ready_s, target = waiting[0]
        begin_s = max(ready_s, free_s)
        began_s[number], wait_s[number], of[number] = begin_s, begin_s - ready_s, target
        free_s = begin_s + S_s
        heapreplace(waiting, (free_s + returns_s[target], target))
    half = slice(rounds // 2, None)
    counts = np.maximum(np.bincount(of[half], minlength=N), 1)
    cycles_s = S_s + np.array(returns_s) + np.bincount(of[half], wait_s[half], N) / counts
    R_q = (rounds - rounds // 2 - 1) / float(began_s[-1] - began_s[rounds // 2])
    return R_q, (1 / cycles_s).tolist()


def is_busy(R_q: float, S_s: float) -> bool:
    """Whether the drafter is always busy: R_q S = 1, up to rounding."""
    return R_q * S_s > 1 - 1e-9


def N_full_of(S_s: float, returns_s: Sequence[float]) -> int:
    """Smallest number of unlike targets, in order, with which the drafter is always busy, as played.

    It lies between sum of S / (S + Z_i) >= 1, below which they cannot fill the drafter's time, and equation (12) with
    the longest return, which holds for tens of thousands. Targets beyond `returns_s` are like the last.
    """

    def is_full(N: int) -> bool:
        return is_busy(play(S_s, [*returns_s, *[returns_s[-1]] * N][:N])[0], S_s)

    least, most = most_within(S_s, 0.0, returns_s, busy=1 - ROUNDING) + 1, N_full(S_s, max(returns_s))
    return most if most > PLAYED else least + bisect_left(range(least, most), True, key=is_full)


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
            the drafter, if all targets wait alike.
        rounds_per_s (rounds/s): Rounds of one of them in a second, as played.
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
            Equation (12). Of unlike targets in their order, as played; further ones are like the last.
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
        acceptance_length (tokens/verification): `E[l(d)]`, accepted draft tokens, without the bonus token.
        mean_acceptance_length (tokens/verification): `E[l(d)] + 1`, with the bonus token, as engines count:
            "Mean acceptance length" of vLLM, "accept len" of SGLang.
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
    N: int, S_s: float, Z_s: float, accepted_per_round: float, standalone_tokens_per_s: float, played: float = 0.0
) -> StarPrediction:
    """Evaluate all equations for N targets. A round commits the accepted tokens and the bonus token.

    - `played`: R_q of unlike targets, with Z the mean over rounds.
    """
    committed = accepted_per_round + 1
    equations: tuple[Callable[[int, float, float], Any], ...] = (  # of the fields with their names
        regime, iteration_s, idle_s, wait_s, load, rounds_per_s, rounds_per_s_per_target,
    )  # fmt: skip
    results = {equation.__name__: equation(N, S_s, Z_s) for equation in equations}
    if played:
        T_s, is_full = N / played, is_busy(played, S_s)
        stage = "fully-loaded" if is_full else "under-loaded"
        idle_wait_s = 0.0 if is_full else T_s - N * S_s, T_s - S_s - Z_s
        results = dict(zip(results, (stage, T_s, *idle_wait_s, played * S_s, played, 1 / T_s), strict=True))
    R_q = results["rounds_per_s"]
    system = Throughput(committed * R_q, accepted_per_round * R_q)
    return StarPrediction(
        S_s=S_s, Z_s=Z_s, N=N, N_full=N_full(S_s, Z_s), N_max=N_max(S_s, Z_s, committed, standalone_tokens_per_s),
        **results, acceptance_length=accepted_per_round, mean_acceptance_length=committed,
        plateau_ratio=plateau_ratio(S_s, Z_s), throughput=system,
        throughput_per_target=Throughput(system.with_bonus / N, system.without_bonus / N),
    )  # fmt: skip
