"""StarSD's equations (5) and (8) to (10) on plain numbers, shared by the analytic model and the adaptive depth."""


def service_s(base_s: float, per_token_s: float, depth: int) -> float:
    """S(d) = a + b d. Equation (5) is the case a = 0; the fixed cost of a step is real."""
    return base_s + per_token_s * depth


def idle_s(N: int, S_s: float, Z_s: float) -> float:
    """T_idle = max(0, Z - (N - 1) S): the drafter's idle time an iteration. Equation (9)."""
    return max(0.0, Z_s - (N - 1) * S_s)


def iteration_s(N: int, S_s: float, Z_s: float) -> float:
    """T_gamma = N S + T_idle. Equations (8) and (10)."""
    return N * S_s + idle_s(N, S_s, Z_s)


def rounds_per_s_per_target(N: int, S_s: float, Z_s: float) -> float:
    """R_p = 1 / T_gamma: a target verifies once an iteration (appendix C.1)."""
    return 1 / iteration_s(N, S_s, Z_s)
