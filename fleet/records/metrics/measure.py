"""Metrics from records: pure functions of the event table, the same for both worlds.

The window of a run begins at `measure.warm_up_share` of the time until its first target is done, and ends there.
Steps count at their end, requests at their completion. Symbols and equations are StarSD's. Intervals are 95 %: within
one run from ten equal batches of the window, if it is long enough and stationary (`window.py`, `steady.py`); over
several seeds by replications (`combine`).
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from specfleet.fleet.errors import InputError
from specfleet.fleet.records.columns import Column, Integers, Table
from specfleet.fleet.records.metrics.devices import busy_s, cost, counters, energy, loads
from specfleet.fleet.records.metrics.findings import Findings, findings_of
from specfleet.fleet.records.metrics.grouped import Floats, Groups, at, find
from specfleet.fleet.records.metrics.intervals import NO_INTERVAL, student_t_interval
from specfleet.fleet.records.metrics.outages import outage_metrics, without_steady_state
from specfleet.fleet.records.metrics.overload import Overload, overload_of, streams_per_s
from specfleet.fleet.records.metrics.service import fair_goodput, meets, speedup
from specfleet.fleet.records.metrics.steady import relaxation_s
from specfleet.fleet.records.metrics.tables import at_drafter, received_of, requests_of
from specfleet.fleet.records.metrics.window import Metric, Window, possible, without_intervals
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.resolved import Fleet

if TYPE_CHECKING:
    import pandas as pd  # only for frames

OF_ANSWERS = (
    "throughput", "throughput_per_target", "requests", "carried_requests_per_s", "offered_requests_per_s", "ttft_s",
    "tpot_s", "latency_s", "goodput_requests_per_s", "slo_attainment", "cost_per_million_tokens",
)  # fmt: skip
"""Metrics that need no steps."""

BATCHES = 10  # equal batches of the window; their means give the 95 % intervals


def measure(run: Run | Findings) -> dict[str, Metric]:
    """Return all metrics of a run by name, from its records or findings; metrics without data are left out.

    Raises InputError if the window has no committed token.
    """
    return assess(run)[0]


def assess(run: Run | Findings) -> tuple[dict[str, Metric], Overload | None]:
    """Return the metrics of a run, as `measure`, and the overload verdict if arrivals exceed its capacity."""
    findings = findings_of(run) if isinstance(run, Run) else run
    metrics, overload = _metrics(findings), overload_of(findings)
    if isinstance(run, Run) and not run.header.steps:
        metrics = {name: metric for name, metric in metrics.items() if name in OF_ANSWERS}
    if isinstance(run, Run) and run.header.world == "engine" and not run.header.fleet.basis.startswith("measured"):
        metrics.pop("speedup", None)  # another machine's plain step
    return metrics if overload is None else without_intervals(metrics, math.inf), overload


def _metrics(findings: Findings) -> dict[str, Metric]:
    fleet, rows, commits = findings.fleet, findings.rows, findings.commits
    targets = fleet.verifiers.count
    window = window_of(findings)
    relaxing_s = relaxation_s(findings, window)  # 0 where nothing varies
    window = msgspec.structs.replace(window, relaxations=window.length_s / relaxing_s if relaxing_s else math.inf)
    tokens = window.sums(commits.time_s, commits.committed)  # O with the bonus tokens, and O_i
    metrics = {
        "throughput": window.rate(tokens, "tokens/s"),
        "throughput_per_target": window.rate(tokens / targets, "tokens/s"),
    }
    if findings.rounds is not None and findings.verified is not None:
        rounds, verified = findings.rounds, findings.verified
        metrics |= _acceptance(window, verified)
        if fleet.in_turn:
            metrics |= _times_of_rounds(window, rounds)
        metrics |= _load(window, findings, rounds)
        if fleet.verifiers.allocate is not None:
            metrics |= fair_goodput(window, fleet, verified)
    if not _asks(fleet):
        metrics |= _batching(window, findings.steps, commits)
    metrics |= _hits(window, findings)
    if fleet.verifiers.prefill:
        metrics["kv_transfer_s"] = _kv_transfer_s(window, rows, commits)
    if fleet.verifiers.patience.patience_s:
        metrics |= outage_metrics(window, rows, commits, findings.requests)
    metrics |= energy(window, findings, tokens) | counters(window, findings.devices, tokens)
    metrics |= cost(window, fleet, tokens) | loads(window, findings)
    metrics |= _latencies(window, findings)
    metrics |= speedup(fleet, _middle(findings.requests), _targets(window, findings), metrics)
    known = {name: metric for name, metric in metrics.items() if not math.isnan(metric.value)}
    if not without_steady_state(fleet.faults):
        return known
    return without_intervals(known, 1.0)


def measure_targets(run: Run) -> "pd.DataFrame":
    """Return one row for each target: tag, throughput O_i in tokens a second, requests, and with a drafter rounds.

    The request columns are the mean ttft_s and the percentiles tpot_p50_s and tpot_p99_s, in seconds; NaN without a
    complete request. The round columns are rounds_per_s (R_p), the means wait_s and return_s in seconds, and
    acceptance_length in draft tokens a verification (NaN without one). Drafting ahead and batches have no wait_s and
    return_s. Raises InputError as `measure`.
    """
    findings = findings_of(run)
    fleet, window = findings.fleet, window_of(findings)
    places = fleet.verifiers.count

    def by_target(rows: Table, ended_s: Floats, **values: Column) -> Any:
        """Values of the rows that end in the window."""
        chosen = Table.of(target=rows.tag % places, **values).where(window.inside(ended_s))
        return chosen.frame().groupby("target")

    commits, done = findings.commits, findings.requests.where(findings.requests.finished)
    committed = by_target(commits, commits.time_s, tokens=commits.committed).tokens.sum()
    ttft_s = done.first_s - done.joined_s + fleet.request_s
    requests = by_target(done, done.last_s, ttft_s=ttft_s, tpot_s=tpot_of(done))
    columns = {
        "throughput": committed / window.length_s,
        "ttft_s": requests.ttft_s.mean(),
        "tpot_p50_s": requests.tpot_s.quantile(0.5),
        "tpot_p99_s": requests.tpot_s.quantile(0.99),
    }
    if findings.rounds is not None:
        rounds = findings.rounds
        names = (*(("wait_s", "return_s") if fleet.in_turn and _asks(fleet) else ()), "acceptance_length")
        of_rounds = by_target(rounds, rounds.verified_s, **{name: getattr(rounds, name) for name in names})
        columns |= {"rounds_per_s": of_rounds.size() / window.length_s} | dict(of_rounds.mean())
    targets = Table.of(tag=np.arange(places)).frame().assign(**columns)
    return targets.fillna({"throughput": 0.0, "rounds_per_s": 0.0})


def _asks(fleet: Fleet) -> bool:
    """Return whether targets ask stations of their own for drafts, or decode alone; else they draft themselves."""
    return fleet.verifiers.drafts is None


def tpot_of(requests: Table) -> Floats:
    """Return the mean time of each token after the first, request by request; NaN for a single token."""
    tokens = requests.tokens
    tpot_s: Floats = (requests.last_s - requests.first_s) / np.where(tokens > 1, tokens - 1, np.nan)
    return tpot_s


def combine(runs: Sequence[Mapping[str, Metric]]) -> dict[str, Metric]:
    """Combine replications: the mean over runs, with a Student t interval, of the metrics that all runs have.

    Runs too short for an interval share the same bias, so more of them do not help: there is no interval over
    replications either if the median run is too short.
    """
    return {name: _combined([run[name] for run in runs]) for name in runs[0] if all(name in run for run in runs)}


def _combined(metrics: Sequence[Metric]) -> Metric:
    values = [metric.value for metric in metrics]
    times_longer = float(np.median([metric.times_longer for metric in metrics]))
    drifting = sum(metric.drifting for metric in metrics) > len(metrics) / 2
    # A parameter after a unit's comma, such as the busiest station, may differ between runs.
    unit = Counter(metric.unit for metric in metrics).most_common(1)[0][0]
    percentiles = combine([metric.percentiles for metric in metrics])
    mean = float(np.mean(values))
    interval = student_t_interval(values) if times_longer == 1 else NO_INTERVAL
    ends = possible(interval, mean, values, unit)
    return msgspec.structs.replace(Metric(mean, *ends, unit, times_longer, drifting), **percentiles)


def window_of(findings: Findings) -> Window:
    """Return the measurement window of a run; InputError if it has no committed token.

    In a closed loop it ends when the first stream has finished its last request. Warm-up is a share of the time until
    then, so that a slow stream cannot push it beyond the end. If every request is its own stream, it ends with the
    run.
    """
    fleet, commits, end_s = findings.fleet, findings.commits, findings.end_s
    warm_up = fleet.measure.warm_up_share
    window = Window(np.linspace(warm_up * end_s, end_s, BATCHES + 1))
    if not window.inside(commits.time_s).any():
        raise InputError(
            f"scenario {fleet.name!r}: no token was committed in the part of the run that counts; raise "
            f"workload.requests = {fleet.workload.requests} or lower measure.warm_up_share = {warm_up}"
        )
    return window


def _load(window: Window, findings: Findings, rounds: Table) -> dict[str, Metric]:
    """The round rates R_q and R_p (appendix C.1), and the load of the drafters."""
    drafters = findings.fleet.drafters.stations or findings.fleet.verifiers.servers
    counted = rounds.verify_s if findings.fleet.in_turn else rounds.acceptance_length
    verified = window.counts(rounds.verified_s, counted) / findings.fleet.verifiers.count
    return {
        "rounds_per_s": window.rate(window.counts(rounds.drafted_s, rounds.draft_tokens), "rounds/s"),
        "rounds_per_s_per_target": window.rate(verified, "rounds/s"),
        "load": window.rate(busy_s(window, findings.draft_steps) / drafters, "share of time"),
    }


def _times_of_rounds(window: Window, rounds: Table) -> dict[str, Metric]:
    """S, T_wait, and the idle gap (table 1); Z = t_c + t_v, equation (6): t_c is without the draft's time there."""
    return {
        "service_s": window.mean(rounds.drafted_s, rounds.service_s, "s"),
        "wait_s": window.spread(rounds.drafted_s, rounds.wait_s, "s"),
        "idle_gap_s": window.mean(rounds.drafted_s, rounds.idle_gap_s, "s"),
        "draft_tokens": window.mean(rounds.drafted_s, rounds.draft_tokens, "tokens/round"),
        "return_s": window.mean(rounds.drafted_s, rounds.return_s, "s"),
        "communication_s": window.mean(rounds.drafted_s, rounds.communication_s, "s"),
        "verify_s": window.mean(rounds.verified_s, rounds.verify_s, "s"),
        "round_s": window.spread(rounds.drafted_s, rounds.round_s, "s"),
    }


def _acceptance(window: Window, verified: Table) -> dict[str, Metric]:
    """Accepted draft tokens of a verification, the same with the target's own token as vLLM counts, and their share."""
    time_s, lengths = verified.verified_s, verified.acceptance_length
    accepted, count = window.sums(time_s, lengths), window.counts(time_s, lengths)
    return {
        "acceptance_length": window.ratio(accepted, count, "tokens/verification"),
        "mean_acceptance_length": window.ratio(accepted + count, count, "tokens/verification"),
        "acceptance_rate": window.ratio(accepted, window.sums(time_s, verified.draft_tokens), "share"),
    }


def _latencies(window: Window, findings: Findings) -> dict[str, Metric]:
    """Requests that arrive and that complete in the window, with TTFT, TPOT and latency.

    A count of ends over the window's length would have half a request too many, because the window ends with one. Where
    requests follow each other, they are carried as often as the streams' cycles that end inside say; else a request is
    carried in parts, with its tokens: of one that the window's edge cuts, the part inside counts.
    """
    fleet, metrics = findings.fleet, _offered(findings)
    done = findings.requests if "ttft_s" in findings.requests.names else _done(findings)
    if not window.counts(done.last_s, done.latency_s).any():
        return metrics

    def carried(good: bool) -> Metric:
        name = "good" if good else "all"
        cycles_s = window.sums(done.last_s, done.cycle_s)
        if cycles_s.any():
            ends = window.sums(done.last_s, getattr(done, f"{name}_cycles"))
            return window.ratio(fleet.streams * ends, cycles_s, "requests/s")
        return window.rate(_carried(window, findings.commits, done, good), "requests/s")

    metrics["requests"] = Metric(float(window.counts(done.last_s, done.latency_s).sum()), unit="requests")
    metrics["carried_requests_per_s"] = carried(False)
    if fleet.drafters.count:
        metrics["refused"] = window.count(done.last_s[done.refused], "requests")
    metrics |= {
        name: window.spread(done.last_s, getattr(done, name), "s") for name in ("ttft_s", "tpot_s", "latency_s")
    }
    if fleet.slo is None:
        return metrics
    return metrics | {
        "goodput_requests_per_s": carried(True),
        "slo_attainment": window.mean(done.last_s, done.good, "share of requests"),
    }


def _done(findings: Findings) -> Table:
    """Return the complete requests in the order of their ends.

    - `ttft_s`, `tpot_s`, `latency_s`: see the glossary; `good`: 1 for those that meet their goals.
    - `cycle_s`: time from the end of a stream's request to that of its next, in seconds. It is 0 where requests arrive
      by themselves, and for a stream's first, which began with those of all streams.
    - `all_cycles`, `good_cycles`: 1 for the requests that have a cycle.
    """
    fleet, done = findings.fleet, findings.requests.where(findings.requests.finished)
    done = done.where(np.argsort(done.last_s, kind="stable"))
    before, ended_s = Groups(done.tag).before(), done.last_s
    begun_s = np.where(before >= 0, ended_s[before], done.joined_s if fleet.streams == 1 else np.nan)
    cycle_s = np.nan_to_num(ended_s - begun_s) if fleet.streams else np.zeros(len(done))
    cycles = (~np.isnan(begun_s)).astype(float) * (fleet.streams > 0)
    asked_s = done.joined_s - fleet.request_s
    times_s = {"ttft": done.first_s - asked_s, "tpot": tpot_of(done), "latency": ended_s - asked_s}
    good = np.ones(len(done)) if fleet.slo is None else meets(fleet.slo, times_s).astype(float)
    named = {f"{name}_s": values_s for name, values_s in times_s.items()}
    return done.plus(**named, good=good, cycle_s=cycle_s, all_cycles=cycles, good_cycles=cycles * good)


def _carried(window: Window, commits: Table, done: Table, good: bool) -> Floats:
    """Return the requests that each batch carried, by the parts of their tokens; if `good`, of those that met their
    goals, which count at their ends where commits are summed."""
    if "carried" in commits.names:
        return window.sums(done.last_s, done.good) if good else window.sums(commits.time_s, commits.carried)
    shares = np.append((done.good if good else np.ones(len(done))) / done.tokens, 0.0)  # 0: it did not complete
    of = find((commits.tag, commits.request), (done.tag, done.request))
    return window.sums(commits.time_s, commits.committed * shares[of])


def _hits(window: Window, findings: Findings) -> dict[str, Metric]:
    fleet, rows, shares = findings.fleet, findings.rows, {}
    if fleet.verifiers.prefix_cache:
        shares["prefix_hit_share"] = _prompts(rows) if findings.prompts is None else findings.prompts
    if fleet.drafters.prefix_cache:
        shares["drafter_prefix_hit_share"] = _opened(rows.where(at_drafter(rows)))

    def share(texts: Table) -> Metric:
        hits, asked = (window.sums(texts.time_s, values) for values in (texts.hits, texts.tokens))
        return window.ratio(hits, asked, "share of tokens")

    return {name: share(texts) for name, texts in shares.items()}


def _prompts(rows: Table) -> Table:
    """Return the prompts as their first steps begin, which do not compute the cached tokens."""
    begun, joins = rows.of_event("start"), rows.of_event("join")
    begun = begun.where(begun.kind.among("prefill", "chunk") & ~at_drafter(begun))
    first = begun.where(requests_of(begun).is_first)
    tokens = at(joins.tokens, find((first.tag, first.request), (joins.tag, joins.request)))
    return Table.of(time_s=first.time_s, hits=first.base, tokens=tokens)


def _opened(rows: Table) -> Table:
    """Return the texts as drafters begin them, with a prefill of what they do not find, or with a draft."""
    opened, begun = rows.where(rows.event.among("draft-request") & rows.flag), rows.where(rows.event.among("start"))
    begun = begun.where(begun.kind.among("prefill", "draft"))
    begun = begun.where(Groups(begun.tag, begun.request, begun.epoch).is_first)
    keys = [(rows.tag, rows.request, rows.epoch) for rows in (begun, opened)]
    begun = begun.where(find(*keys) >= 0)
    reads = begun.kind.among("prefill")
    return Table.of(
        time_s=begun.time_s, hits=begun.base - ~reads, tokens=begun.base + np.where(reads, begun.tokens, -1)
    )


def _kv_transfer_s(window: Window, rows: Table, commits: Table) -> Metric:
    """The time from the end of a prompt at its prefill server, which is its first commit, to its decode server."""
    arrived = received_of(rows)
    ended_s = at(commits.time_s, find((arrived.tag, arrived.request), (commits.tag, commits.request)))
    return window.mean(arrived.time_s, arrived.time_s - ended_s, "s")


def _middle(requests: Table) -> float:
    """Return the mean middle of the requests' texts, in tokens."""
    if "middle" in requests.names:
        return float(requests.middle.sums.sum() / requests.middle.counts.sum())
    return float(np.mean(requests.prompt_tokens + requests.tokens / 2)) if len(requests) else math.nan


def _targets(window: Window, findings: Findings) -> Integers:
    """Return the target of each request of the window; of each stream where requests are summed."""
    count, requests = findings.fleet.verifiers.count, findings.requests
    if "middle" in requests.names:
        return np.arange(findings.fleet.streams or count) % count
    targets: Integers = requests.tag[window.inside(requests.last_s)] % count
    return targets


def _offered(findings: Findings) -> dict[str, Metric]:
    fleet, opened_s = findings.fleet, np.asarray(findings.opened_s)
    if fleet.workload.arrivals is None:
        return {}
    requests = fleet.workload.requests if fleet.workload.conversations else len(opened_s)
    if not len(opened_s):
        joins = findings.rows.of_event("join")
        opened_s, requests = joins.time_s[Groups(joins.tag).first], len(requests_of(joins))
    if not len(opened_s):
        return {}
    per_s = streams_per_s(fleet, opened_s) * requests / len(opened_s)
    return {"offered_requests_per_s": Metric(per_s, unit="requests/s")} if math.isfinite(per_s) else {}


def _batching(window: Window, steps: Table, commits: Table) -> dict[str, Metric]:
    """Time shares of a batch (`realign_share` is c_overhead of Batch Speculative Decoding Done Right, equation (1)),
    rounds without realignment, block efficiency (DSDE, table I)."""
    all_s = window.sums(steps.ended_s, steps.duration_s)
    metrics = {}
    for kind in ("draft", "verify", "realign"):
        of_kind = steps.where(steps.kind.among(kind))
        kind_s = window.sums(of_kind.ended_s, of_kind.duration_s)
        metrics[f"{kind}_share"] = window.ratio(kind_s, all_s, "share of time")
    drafted = steps.kind.among("draft")
    realigned = np.append(steps.kind.among("realign"), False)[Groups(steps.station).before()]  # -1: no step before
    rounds, grouped = (
        window.counts(steps.ended_s[chosen], steps.duration_s[chosen]) for chosen in (drafted, drafted & ~realigned)
    )
    metrics["grouped_share"] = window.ratio(grouped, rounds, "share of rounds")
    verified = commits.where(commits.kind.among("verify"))
    metrics["block_efficiency"] = window.mean(verified.time_s, verified.committed, "tokens/step")
    return metrics
