"""Exact results that only tests need: AMUSD as a Markov chain, the star with exponential services."""

import msgspec


class AheadPrediction(msgspec.Struct, frozen=True):
    """Long-run means of one session. `committed`: tokens a verification, the bonus token included."""

    tokens_per_s: float
    verifications_per_s: float
    committed: float


def drafting_ahead(
    draft_s: float, verify_s: float, beta: float, least: int = 1, precision: float = 1e-12
) -> AheadPrediction:
    """Solve AMUSD's algorithm 1 with constant times, for one session without links.

    1. A verification starts in state (n, phase): n draft tokens, and the drafter `phase` seconds into the next one.
    2. During it, m = floor((phase + v) / t) more tokens are drafted.
    3. With probability beta^n all n pass; with beta^(n+1) the bonus token also matches, and the tail stays if m > 0.
    4. Otherwise the drafter finishes its stale token and drafts `least` new ones: state (least, 0), a renewal.

    By the renewal-reward theorem the rates are those of one cycle. Branches less likely than `precision` are dropped.
    """
    cycle_s = tokens = verifications = 0.0
    branches: list[tuple[float, int, float]] = [(1.0, least, 0.0)]
    while branches:
        likely, n, phase_s = branches.pop()
        m = int((phase_s + verify_s) / draft_s)
        phase_s = phase_s + verify_s - m * draft_s
        all_pass = beta**n
        stands = all_pass * (beta if m else 0.0)  # the bonus token matches the tail
        verifications += likely
        # accepted tokens, at most n, and the bonus token
        tokens += likely * (sum(beta**j for j in range(1, n + 1)) + 1)
        cycle_s += likely * verify_s
        cycle_s += likely * (1 - stands) * (draft_s - phase_s + least * draft_s)
        tail, chance = m - 1, likely * stands
        if chance <= precision:
            continue
        if tail >= least:
            branches.append((chance, tail, phase_s))
        else:  # the tail is long enough at the end of a draft step
            cycle_s += chance * (draft_s - phase_s + (least - tail - 1) * draft_s)
            branches.append((chance, least, 0.0))
    return AheadPrediction(tokens / cycle_s, verifications / cycle_s, tokens / verifications)


def exponential_round_rate(N: int, S_s: float, Z_s: float) -> float:
    """R_q for exponential service times and any return times, by mean value analysis (Reiser and Lavenberg 1980)."""
    round_rate = queue_length = 0.0
    for targets in range(1, N + 1):
        residence_s = S_s * (1 + queue_length)
        round_rate = targets / (Z_s + residence_s)
        queue_length = round_rate * residence_s
    return round_rate
