"""Batch Speculative Decoding Done Right: what a round takes, what requests are like, and the runs that are simulated.

Times come from table 2, which prints the shares of one EqSpec round and the time of its verification. The rules are
`policies/aligned.py`.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from specfleet.experiments.reproduce.rows import Paper
from specfleet.experiments.reproduce.runs import means, simulated
from specfleet.fleet.acceptance.models import committed_closed_form, rate_of_mean
from specfleet.fleet.records.metrics.measure import combine, measure
from specfleet.fleet.records.metrics.tables import verifications_of
from specfleet.fleet.records.metrics.window import Metric
from specfleet.fleet.records.run import Run

PAPER = Paper("batch")
TABLE_2, OVERHEAD = PAPER["table_2"], PAPER["overhead"]
DEPTH = 5  # section 4.1
# The authors' program counts a draft without a mismatch as its first four tokens and the target's own: the fifth is
# made, verified, and made again.
KEPT = DEPTH - 1
TABLE_2_BATCH = 4  # not printed; the authors' program keeps a log of that run
AUTHORS_PROMPTS = 100  # of Spec-Bench, in the authors' example runs; W = 3 B
PROMPTS = 100  # that are simulated
PROMPT_TOKENS = {"low": 20, "high": 400}
SEEDS = 2
ROUNDS_OF_FIT = 4
# Calls of the authors' program in each layer of the target: for a row, and besides. A number that the host reads back
# from the GPU is three of them (take, copy, wait), a copy of a part of a row's keys or values three (from, to, copy).
CALLS_EQSPEC = (4 * 3 + 2 * 3, 8)  # where each row begins and ends, read back; new tensors
CALLS_EXSPEC = (2 * 3, 2)  # the host knows where; new tensors
CALLS_WRITE_BACK = 2 * 2  # a row's keys and values are split off and cut, in every round of ExSpec


class WorkloadFit(NamedTuple):
    """What table 2 says of the workload: acceptance, and the shortest and longest answer in tokens."""

    beta: float
    low: int
    high: int


def eqspec_times_ms() -> tuple[float, float, float]:
    """Return draft, verification and overhead of an EqSpec round, from table 2."""
    printed = TABLE_2["EqSpec"]
    round_ms = printed["verify_ms"] / printed["verify_share"]
    return printed["draft_share"] * round_ms, printed["verify_ms"], printed["overhead_share"] * round_ms


def overhead_ms() -> tuple[float, float]:
    """Return overhead at batch size 1 and what each further row adds, from section 4.3's share and table 2's at 4."""
    draft_ms, verify_ms, at_batch_ms = eqspec_times_ms()
    share = OVERHEAD["text of section 4.3 (about)"][1]
    at_one_ms = share / (1 - share) * (draft_ms + verify_ms)
    return at_one_ms, (at_batch_ms - at_one_ms) / (TABLE_2_BATCH - 1)


@cache
def fitted() -> WorkloadFit:
    """Return acceptance and spread of the answers behind the tokens a verification of both rows of table 2.

    ExSpec's batches are full until the prompts run out, and show the acceptance. EqSpec's carry finished rows along,
    and show how far answers spread. Each round of the fit simulates both, and corrects both.
    """
    printed = TABLE_2["EqSpec"]
    tokens = printed["tokens_per_s"] * printed["verifications"] * printed["verify_ms"] / printed["verify_share"] / 1000
    wanted = {method: tokens / TABLE_2[method]["verifications"] for method in TABLE_2}
    mean = tokens / AUTHORS_PROMPTS
    beta, half = 0.5, mean / 2
    for _ in range(ROUNDS_OF_FIT):
        fit = spread_evenly(beta, mean, half)
        ours = {}
        for method, rows in both(TABLE_2_BATCH).items():
            steps, _, committed = verifications(run_batch(rows, fit=fit))
            ours[method] = committed / steps
        beta = rate_of_mean(committed_closed_form(beta, KEPT) * wanted["ExSpec"] / ours["ExSpec"], KEPT)
        full, wanted_full = ours["EqSpec"] / ours["ExSpec"], wanted["EqSpec"] / wanted["ExSpec"]
        spread = half * (1 / wanted_full - 1) / max(1 / full - 1, 0.01)
        half = min(max(spread, 1.0), mean - 1)
    return spread_evenly(beta, mean, half)


def spread_evenly(beta: float, mean: float, half: float) -> WorkloadFit:
    """Return a fit with answers spread evenly around a mean."""
    return WorkloadFit(beta, max(round(mean - half), 1), round(mean + half))


def run_batch(
    rows: dict[str, Any], seed: int = 0, verify_ms: float | None = None, fit: WorkloadFit | None = None, **workload: Any
) -> Run:
    """Simulate an offline run on Spec-Bench, or another workload. `rows`: keys of the target, its rule for rows."""
    draft_ms, own_verify_ms, _ = eqspec_times_ms()
    fit = fit or fitted()
    policy = policy_of(rows)
    realign, written_row_ms = realign_ms(policy)
    scattered_row_ms = 0.0  # of each further row in a verification of ExSpec, with separate caches (end of section 4.3)
    if not verify_ms and policy == "same-length":
        scattered_row_ms = (TABLE_2["ExSpec"]["verify_ms"] - own_verify_ms) / (TABLE_2_BATCH - 1)
    mixed = {"low": fit.low, "high": fit.high}
    offline = {"requests": PROMPTS, "prompt_tokens": PROMPT_TOKENS, "new_tokens": mixed} | workload
    chosen = workload if "lengths" in workload else offline
    verify_s, further_row_s = (verify_ms or own_verify_ms) / 1000, (written_row_ms + scattered_row_ms) / 1000
    return simulated(
        name="batch", seed=seed, verifiers=rows, drafters={"depth": KEPT, "place": "target"},
        profile={
            "name": "batch-a100", "draft": {"base_s": draft_ms / 1000},
            "verify": {"base_s": verify_s + written_row_ms / 1000, "per_row_s": further_row_s},
            "realign": {"base_s": realign[0] / 1000, "per_row_s": realign[1] / 1000},
        },
        acceptance={"model": "geometric", "beta": fit.beta}, workload=chosen | {"streams": chosen["requests"]},
    )  # fmt: skip


def policy_of(rows: dict[str, Any]) -> str:
    """Return the name of the rule for aligned rows; empty for rows of their own lengths."""
    return str(rows.get("aligned", {}).get("policy", ""))


def realign_ms(policy: str) -> tuple[tuple[float, float], float]:
    """Return realignment at batch size 1, what a further row adds to it, and what ExSpec writes back for a row.

    EqSpec's is what the paper prints; ExSpec's is as much shorter as it makes fewer calls.
    """
    at_one_ms, a_row_ms = overhead_ms()
    if policy != "same-length":
        return (at_one_ms, a_row_ms), 0.0
    a_row, besides = (ours / theirs for ours, theirs in zip(CALLS_EXSPEC, CALLS_EQSPEC, strict=True))
    own_row_ms = a_row_ms * a_row
    return ((at_one_ms - a_row_ms) * besides + own_row_ms, own_row_ms), a_row_ms * CALLS_WRITE_BACK / CALLS_EQSPEC[0]


def verifications(run: Run) -> tuple[int, int, int]:
    """Return how many verifications a run has, their rows, and the tokens that they commit."""
    verified = verifications_of(run.columns())
    return len(np.unique(verified.step)), len(verified), int((verified.acceptance_length + 1).sum())


def overhead_of(policy: str, runs: list[Run]) -> float:
    """Return the share of time that is neither drafting nor verification: realignment, and what is written back."""
    counts = [verifications(run) for run in runs]
    written_ms = realign_ms(policy)[1] * float(np.mean([rows / steps for steps, rows, _ in counts]))
    ended_s = [float(run.table["time_s"].to_numpy()[-1]) for run in runs]
    per_s = float(np.mean([steps / time_s for (steps, *_), time_s in zip(counts, ended_s, strict=True)]))
    realigning = combine([measure(run) for run in runs])["realign_share"].value
    return realigning + written_ms / 1000 * per_s


def measured(rows: dict[str, Any], **more: Any) -> dict[str, Metric]:
    """Return the means of a rule's metrics over the seeds."""
    return means(SEEDS, lambda seed: run_batch(rows, seed, **more))


def eqspec(B: int, fixed: bool = True) -> dict[str, Any]:
    """Return EqSpec's rule, offline; with `fixed` false online."""
    return {"max_num_seqs": B, "aligned": {"policy": "realign", "fixed": fixed}}


def exspec(B: int, window: int | None = None) -> dict[str, Any]:
    """Return ExSpec's rule; W = 3 B by default."""
    return {"max_num_seqs": B, "aligned": {"policy": "same-length", "window": window or 3 * B}}


def both(B: int) -> dict[str, dict[str, Any]]:
    """Return the rules of both methods, offline."""
    return {"EqSpec": eqspec(B), "ExSpec": exspec(B)}
