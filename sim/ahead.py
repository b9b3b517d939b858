"""Drafting ahead (AMUSD) with constant times, solved exactly: a Markov chain over the tail and the drafter's phase."""

import msgspec


class AheadPrediction(msgspec.Struct, frozen=True):
    """Long-run means of one session. `committed`: tokens a verification, the target's own included."""

    tokens_per_s: float
    verifications_per_s: float
    committed: float


def drafting_ahead(
    draft_s: float, verify_s: float, beta: float, least: int = 1, precision: float = 1e-12
) -> AheadPrediction:
    """Solve AMUSD's algorithm 1, with the correction committed, for one session without links.

    A verification begins in state (n, phase): n draft tokens in its snapshot, and the drafter `phase` seconds into the
    next one. While it runs, m = floor((phase + v) / t) more are drafted. With probability beta^n all pass, and with
    beta^(n+1) the target's own token is the next of the tail, too, if there is one: then the rest stands. Else a new
    epoch begins; the drafter finishes its stale token and drafts `least` new ones. That is the state (least, 0), where
    the chain began: it renews itself there, and by the renewal-reward theorem its rates are those of one cycle.
    Branches less likely than `precision` are left out. Raises ValueError for beta = 1, where nothing ever renews.
    """
    if not 0 <= beta < 1:
        raise ValueError(f"beta must be at least 0 and less than 1, got {beta}")
    cycle_s = tokens = verifications = 0.0
    branches: list[tuple[float, int, float]] = [(1.0, least, 0.0)]
    while branches:
        likely, n, phase_s = branches.pop()
        m = int((phase_s + verify_s) / draft_s)
        phase_s = phase_s + verify_s - m * draft_s
        all_pass = beta**n
        stands = all_pass * (beta if m else 0.0)  # the own token is the next of the tail, where there is one
        verifications += likely
        # Accepted tokens, capped at n, and the target's own.
        tokens += likely * (sum(beta**j for j in range(1, n + 1)) + 1)
        cycle_s += likely * verify_s
        cycle_s += likely * (1 - stands) * (draft_s - phase_s + least * draft_s)
        tail, chance = m - 1, likely * stands
        if chance <= precision:
            continue
        if tail >= least:
            branches.append((chance, tail, phase_s))
        else:  # wait until the tail is long enough, which is at the end of a draft step
            cycle_s += chance * (draft_s - phase_s + (least - tail - 1) * draft_s)
            branches.append((chance, least, 0.0))
    return AheadPrediction(tokens / cycle_s, verifications / cycle_s, tokens / verifications)
