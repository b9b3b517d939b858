"""Metrics from records alone: pure functions of the event table, the same for both worlds.

Steps count by the moment they end, requests by the moment they complete. Warm-up is cut: a run counts from
`measure.warm_up_share` of its length until the first target has nothing left to do. Intervals are 95 %: within one
run by means over `measure.batches` equal batches of the window (ratios by the delta method, percentiles by order
statistics over requests); over several seeds by replications (`combine`).
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specfleet.errors import InputError
from specfleet.fleet import DRAFTER
from specfleet.intervals import NO_INTERVAL, jain_index, quantile_interval, ratio_interval, student_t_interval
from specfleet.records import Run
from specfleet.workload import requests_of

ROUND = ["tag", "request", "epoch"]  # what names one round of one stream
REQUEST = ["tag", "request"]
Floats = NDArray[np.float64]


class Metric(msgspec.Struct, frozen=True):
    """A measured value, its 95 % interval (NaN where there is none) and its unit."""

    value: float
    low: float
    high: float
    unit: str


class Window(msgspec.Struct, frozen=True):
    """The part of a run that counts, in seconds since its beginning, and the edges of its batches."""

    begin_s: float
    end_s: float
    edges_s: Floats

    @property
    def length_s(self) -> float:
        """Length of the window."""
        return self.end_s - self.begin_s

    def inside(self, time_s: pd.Series) -> pd.Series:
        """Tell which times fall into the window."""
        return (time_s > self.begin_s) & (time_s <= self.end_s)

    def sums(self, time_s: pd.Series, values: pd.Series | Floats | float = 1.0) -> Floats:
        """Sum `values` over each batch, by the times that they belong to: shape (batches,)."""
        weights = np.broadcast_to(np.asarray(values, dtype=float), len(time_s))
        return np.histogram(time_s, bins=self.edges_s, weights=weights)[0]


def measure(run: Run) -> dict[str, Metric]:
    """Return all metrics of a run by name; those that it has nothing to say about are left out.

    Raises InputError if the window holds no committed token.
    """
    rows = run.frame()
    window = window_of(run, rows)
    verified = _commits(rows)
    metrics = _token_metrics(run, window, verified)
    if run.header.scenario.drafters.count:
        metrics |= _drafter_metrics(run, window, rows)
        metrics |= _round_metrics(window, rows)
    metrics |= _request_metrics(window, rows, verified)
    return metrics


def measure_targets(run: Run) -> pd.DataFrame:
    """Return one row a target: tag, committed tokens a second, verification rounds a second."""
    rows = run.frame()
    window = window_of(run, rows)
    commits = _commits(rows)
    commits = commits[window.inside(commits.time_s)]
    by_target = commits.groupby("tag")
    targets = pd.DataFrame(
        {
            "tokens_per_s": by_target.committed.sum() / window.length_s,
            "rounds_per_s": by_target.kind.apply(lambda kinds: (kinds == "verify").sum()) / window.length_s,
        }
    )
    return targets.reindex(range(run.header.scenario.verifiers.count), fill_value=0.0).reset_index(names="tag")


def combine(runs: Sequence[Mapping[str, Metric]]) -> dict[str, Metric]:
    """Combine replications: the mean over runs, with a Student t interval over them; metrics that all of them have."""
    names = [name for name in runs[0] if all(name in run for run in runs)]
    combined = {}
    for name in names:
        values = [run[name].value for run in runs]
        combined[name] = Metric(float(np.mean(values)), *student_t_interval(values), runs[0][name].unit)
    return combined


def window_of(run: Run, rows: pd.DataFrame) -> Window:
    """Return the part of the run that counts."""
    scenario = run.header.scenario
    done = rows[(rows.event == "done") & (rows.station != DRAFTER)]
    last_requests = {
        target: requests[-1].number
        for target in range(scenario.verifiers.count)
        if (requests := list(requests_of(scenario, target)))
    }
    ends_s = [
        done.time_s[(done.tag == target) & (done.request == request)].max() for target, request in last_requests.items()
    ]
    end_s = float(np.nanmin(ends_s)) if len(ends_s) and not np.isnan(ends_s).all() else float(rows.time_s.max())
    begin_s = scenario.measure.warm_up_share * end_s
    if not ((done.time_s > begin_s) & (done.time_s <= end_s)).any():
        raise InputError(
            f"scenario {scenario.name!r}: nothing was committed between {begin_s:.3g} s and {end_s:.3g} s of the run; "
            "raise workload.requests or lower measure.warm_up_share"
        )
    return Window(begin_s, end_s, np.linspace(begin_s, end_s, scenario.measure.batches + 1))


def _commits(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of finished verifier steps with `committed`, the tokens that each added to its stream."""
    done = rows[(rows.event == "done") & (rows.station != DRAFTER)]
    goals = rows.loc[rows.event == "join", [*REQUEST, "goal"]]
    done = done.drop(columns="goal").merge(goals, on=REQUEST, how="left")
    base = np.where(done.kind == "prefill", done.tokens, done.base)
    return done.assign(committed=np.minimum(done.accepted + 1, done.goal - base))


def _rate(window: Window, sums: Floats, unit: str) -> Metric:
    """Build a rate from sums over batches: total over the window's length, interval by batch means."""
    batch_s = window.length_s / len(sums)
    return Metric(float(sums.sum() / window.length_s), *student_t_interval(sums / batch_s), unit)


def _mean(window: Window, time_s: pd.Series, values: pd.Series | Floats, unit: str) -> Metric:
    """Build a mean of values over the events in the window, interval by the delta method over batches."""
    values = np.asarray(values, dtype=float)
    known = ~np.isnan(values)
    totals = window.sums(time_s[known], values[known])
    counts = window.sums(time_s[known])
    value = totals.sum() / counts.sum() if counts.any() else float("nan")
    return Metric(float(value), *ratio_interval(totals, counts), unit)


def _token_metrics(run: Run, window: Window, commits: pd.DataFrame) -> dict[str, Metric]:
    """Throughput O with the bonus tokens, and without them as in equation (11), of the system and of a target."""
    targets = run.header.scenario.verifiers.count
    tokens = window.sums(commits.time_s, commits.committed)
    rounds = window.sums(commits.time_s[commits.kind == "verify"])
    accepted = window.sums(commits.time_s, commits.accepted)
    shares = measure_targets(run).tokens_per_s.to_numpy()
    return {
        "throughput": _rate(window, tokens, "tokens/s"),
        "accepted_throughput": _rate(window, accepted, "tokens/s"),
        "throughput_per_target": _rate(window, tokens / targets, "tokens/s"),
        "rounds_per_s_per_target": _rate(window, rounds / targets, "rounds/s"),
        "fairness": Metric(jain_index(shares), *NO_INTERVAL, "Jain index"),
    }


def _drafter_metrics(run: Run, window: Window, rows: pd.DataFrame) -> dict[str, Metric]:
    """R_q, load, S, and the two idle times: the gap before a request (table 1), and T_idle of an iteration (9)."""
    targets = run.header.scenario.verifiers.count
    drafter = rows[rows.station == DRAFTER]
    starts, dones = drafter[drafter.event == "start"], drafter[drafter.event == "done"]
    drafts = dones[dones.kind == "draft"]
    rounds = window.sums(drafts.time_s)
    begun_s = starts.drop_duplicates("step").set_index("step").time_s
    ended_s = dones.drop_duplicates("step").set_index("step").time_s
    busy_s = _overlap(begun_s.reindex(ended_s.index).to_numpy(), ended_s.to_numpy(), window.edges_s)
    batch_s = np.full(len(busy_s), window.length_s / len(busy_s))
    draft_starts = starts[starts.kind == "draft"]
    first = starts.groupby(ROUND).time_s.min()
    asked = drafter[drafter.event == "draft-request"].set_index(ROUND).time_s
    waits = (first - asked).dropna()
    started = first.reindex(waits.index)
    iterations = rounds / targets
    return {
        "rounds_per_s": _rate(window, rounds, "rounds/s"),
        "load": Metric(
            float(busy_s.sum() / window.length_s), *student_t_interval(busy_s / batch_s), "share of time"
        ),
        "service_s": _mean(window, drafts.time_s, drafts.duration_s, "s"),
        "wait_s": _mean(window, started, waits, "s"),
        "idle_gap_s": _mean(window, draft_starts.time_s, draft_starts.idle_gap_s, "s"),
        "iteration_idle_s": _ratio(batch_s - busy_s, iterations, "s"),
        "iteration_s": _ratio(batch_s, iterations, "s"),
        "refused": _count((rows.event == "refusal").sum(), "requests"),
    }


def _round_metrics(window: Window, rows: pd.DataFrame) -> dict[str, Metric]:
    """Z and its parts, acceptance, and bytes a round."""
    drafter = rows[rows.station == DRAFTER]
    drafts = drafter[(drafter.event == "done") & (drafter.kind == "draft")]
    requests = drafter[drafter.event == "draft-request"]
    following = requests.assign(epoch=requests.epoch - 1).set_index(ROUND).time_s
    returned_s = following.reindex(pd.MultiIndex.from_frame(drafts[ROUND])).to_numpy() - drafts.time_s.to_numpy()
    arrived = rows[rows.event == "draft"]
    verified = rows[(rows.event == "done") & (rows.kind == "verify")]
    at_target = verified.set_index(ROUND).time_s - arrived.drop_duplicates(ROUND).set_index(ROUND).time_s
    at_target_s = at_target.reindex(pd.MultiIndex.from_frame(drafts[ROUND])).to_numpy()
    return {
        "return_s": _mean(window, drafts.time_s, returned_s, "s"),
        "verify_s": _mean(window, verified.time_s, verified.duration_s, "s"),
        "communication_s": _mean(window, drafts.time_s, returned_s - at_target_s, "s"),
        "acceptance_length": _mean(window, verified.time_s, verified.accepted, "tokens/round"),
        "mean_acceptance_length": _mean(window, verified.time_s, verified.accepted + 1, "tokens/round"),
        "acceptance_rate": _ratio(
            window.sums(verified.time_s, verified.accepted), window.sums(verified.time_s, verified.tokens), "share"
        ),
        "rounds": _count(window.inside(verified.time_s).sum(), "rounds"),
        "draft_bytes": _mean(window, arrived.time_s, arrived.payload_bytes, "bytes"),
        "request_bytes": _mean(window, requests.time_s, requests.payload_bytes, "bytes"),
    }


def _request_metrics(window: Window, rows: pd.DataFrame, commits: pd.DataFrame) -> dict[str, Metric]:
    """Latency of requests that completed in the window: to the first token, a token after it, and in all."""
    joined = rows[rows.event == "join"].set_index(REQUEST)
    by_request = commits.groupby(REQUEST)
    first_s, last_s = by_request.time_s.min(), by_request.time_s.max()
    asked = (joined.goal - joined.tokens).reindex(last_s.index)
    complete = (by_request.committed.sum() == asked) & window.inside(last_s)
    if not complete.any():
        return {}
    joined_s = joined.time_s.reindex(last_s.index)
    further = (asked - 1).clip(lower=1)
    latencies = {
        "ttft": (first_s - joined_s)[complete],
        "tpot": ((last_s - first_s) / further)[complete & (asked > 1)],
        "latency": (last_s - joined_s)[complete],
    }
    metrics = {"requests": _count(complete.sum(), "requests")}
    for name, times_s in latencies.items():
        sample = times_s.to_numpy(dtype=float)
        if len(sample):
            metrics[f"{name}_mean_s"] = Metric(float(sample.mean()), *student_t_interval(sample), "s")
            for level in (50, 90, 99):
                value = float(np.quantile(sample, level / 100))
                metrics[f"{name}_p{level}_s"] = Metric(value, *quantile_interval(sample, level / 100), "s")
    return metrics


def _ratio(above: Floats, below: Floats, unit: str) -> Metric:
    value = above.sum() / below.sum() if below.sum() > 0 else float("nan")
    return Metric(float(value), *ratio_interval(above, below), unit)


def _count(count: int, unit: str) -> Metric:
    return Metric(float(count), *NO_INTERVAL, unit)


def _overlap(begun_s: Floats, ended_s: Floats, edges_s: Floats) -> Floats:
    """Return how much of the intervals [begun, ended] falls into each batch; they do not overlap each other."""
    # The busy time before t is linear between the intervals' ends, so it is enough to know it at the edges.
    order = np.argsort(begun_s)
    points = np.stack([begun_s[order], ended_s[order]], axis=1).ravel()
    busy_s = np.repeat(np.concatenate([[0.0], np.cumsum(ended_s[order] - begun_s[order])]), 2)[1:-1]
    return np.diff(np.interp(edges_s, points, busy_s))
