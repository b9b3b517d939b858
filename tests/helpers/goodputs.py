"""The gap of a run with granted lengths to the best utility of GoodSpeed's problem (1)."""

import numpy as np

from fleet.records.columns import Table
from fleet.records.metrics.findings import findings_of
from fleet.records.metrics.goodput import best_goodput, utility
from fleet.records.metrics.grouped import Groups
from fleet.records.metrics.measure import window_of
from fleet.records.run import Run


def utility_gap(run: Run) -> float:
    """Return U(x*) - U(x) of a run with one verifier, for clients with constant acceptance at the measured rates."""
    findings = findings_of(run)
    rule, verified = findings.fleet.verifiers.allocate, findings.verified
    assert rule is not None
    assert verified is not None
    verified = verified.where(window_of(findings).inside(verified.verified_s))
    best = best_goodput(acceptance_rates(verified), rule.budget)
    mean = Groups(verified.tag).means(verified.acceptance_length) + 1
    return utility(best) - utility(mean)


def acceptance_rates(verified: Table) -> list[float]:
    """Return each client's mean acceptance ratio of drafted tokens; without ratios, the share of accepted ones."""
    clients = Groups(verified.tag)
    drafted, passed = clients.sums(verified.draft_tokens), clients.sums(verified.acceptance_length)
    tested = clients.sums(np.minimum(verified.draft_tokens, verified.acceptance_length + 1))
    ratios = clients.sums(verified.ratio * verified.draft_tokens)
    rates = np.where(ratios > 0, ratios / np.maximum(drafted, 1), passed / np.maximum(tested, 1))
    return [float(rate) for rate in rates]
