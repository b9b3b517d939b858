"""A run's length relative to the relaxation time of its queues, which decides whether an interval is printed.

The criterion uses neither the metric nor, where the scenario says it, the work that the run happened to have: a lucky
run looks more stationary than it is, and a rule that keeps the intervals of lucky runs keeps those that miss the truth.
"""

import math

import numpy as np

from specfleet.fleet.acceptance.models import survival
from specfleet.fleet.acceptance.tokens import TokenModel
from specfleet.fleet.errors import InputError
from specfleet.fleet.records.columns import Table
from specfleet.fleet.records.metrics.findings import Findings
from specfleet.fleet.records.metrics.grouped import Groups
from specfleet.fleet.records.metrics.tables import at_drafter, requests_of
from specfleet.fleet.records.metrics.window import Floats, Window
from specfleet.fleet.scenario.arrivals import Gamma, Poisson
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import has_file

LONG = 1000  # tokens of an answer from which its mean rounds grow by those of a mean round
CLOSE = 0.1  # difference of the run's work from the expected one up to which chance explains it
CELLS = 512  # samples of the number of requests in the system, over the window


def relaxation_s(findings: Findings, window: Window) -> float:
    """Return the integrated autocorrelation time of the fleet's slowest queue, in seconds; infinite at overload.

    Measurements that lie further apart are nearly independent: a run of length T has T / relaxation_s of them. With
    open arrivals it is that of a station with the busiest one's offered load rho, from the asymptotic variance of
    M/M/1, 2 (1 + rho) / (1 - rho)^2 times the work w of a request there, with the heavy-traffic factor (c_a^2 +
    c_w^2) / 2 of general arrivals and work. If steps serve several requests, it is estimated from the number of
    requests in the system over time instead. In a closed loop it is half a round of a stream.
    """
    fleet, rows, commits = findings.fleet, findings.rows, findings.commits
    if fleet.workload.arrivals is None:
        return window.length_s * places_of(fleet) / float(window.counts(commits.time_s, commits.committed).sum()) / 2
    joins = rows.where(rows.event.among("join"))
    arrivals_s = np.sort(joins.time_s[Groups(joins.tag).first])
    gaps_s = np.diff(arrivals_s)
    if not len(gaps_s) or gaps_s.mean() == 0:
        return math.inf
    work = _work_s(fleet, rows)
    if work is None:
        return _of_number_inside_s(findings.inside or _inside(rows, commits), window)
    if isinstance(fleet.workload.arrivals, Poisson):
        per_s, variability = fleet.workload.arrivals.per_s, 1.0
    elif isinstance(fleet.workload.arrivals, Gamma):
        per_s, variability = fleet.workload.arrivals.per_s, 1 / fleet.workload.arrivals.burstiness
    else:
        per_s, variability = float(1 / gaps_s.mean()), float(gaps_s.var() / gaps_s.mean() ** 2)
    return max(of_device_s(work_s, per_s, variability, len(arrivals_s)) for work_s in work)


def places_of(fleet: Fleet) -> int:
    """Concurrent streams; if every request is its own stream, the places of the targets, or all requests if fewer."""
    places = fleet.verifiers.count * fleet.verifiers.batching.max_num_seqs
    return fleet.streams or min(places, fleet.workload.requests)


def _work_s(fleet: Fleet, rows: Table) -> list[Floats] | None:
    """Work of each arrival on each device, with the expected mean where the run does not contradict it; None if steps
    are shared or not known."""
    done = rows.where(rows.event.among("done") & (rows.duration_s > 0))
    if not len(done) or len(Groups(done.station, done.step)) < len(done):
        return None
    duration_s, streams = done.duration_s.copy(), len(Groups(done.tag))
    for side, expected_s in zip((at_drafter(done), ~at_drafter(done)), _expected_work_s(fleet), strict=True):
        excess = expected_s * streams / duration_s[side].sum() if side.any() else math.nan
        if abs(excess - 1) <= CLOSE:
            duration_s[side] *= excess
    # Stations without a named device are devices of their own; others are identified by their device's side.
    drafting, station = at_drafter(done), done.station.codes
    sides = fleet.drafters.device, fleet.verifiers.device
    drafters, verifiers = (-1 - sides.index(device) if device else station for device in sides)
    device = np.where(drafting, drafters, verifiers)
    arrivals = Groups(device, done.tag)
    work_s, device = arrivals.sums(duration_s), device[arrivals.first]
    return [work_s[device == number] for number in np.unique(device)]


def _expected_work_s(fleet: Fleet) -> tuple[float, float]:
    """Mean work of a request at its drafter and at its target, from the scenario alone; NaN where it has no law."""
    drafters, verifiers = fleet.drafters, fleet.verifiers
    unequal = len(verifiers.times) != 1 or len(drafters.times) != min(drafters.count, 1)
    other = verifiers.drafts is not None or not fleet.in_turn or verifiers.allocate is not None
    if unequal or other or has_file(fleet.workload):  # a run is measured without the files of its workload
        return math.nan, math.nan
    lengths, at_target = fleet.lengths, verifiers.times[0]
    prompt, answer, context = lengths.mean_prompt, lengths.mean_answer, lengths.middle
    if not drafters.count:
        return math.nan, at_target.prefill.mean_s(prompt) + (answer - 1) * at_target.decode.mean_s(1, context)
    if fleet.acceptance is None or isinstance(fleet.acceptance, TokenModel):
        return math.nan, math.nan
    try:
        at_drafter, reached = drafters.times[0], survival(fleet.acceptance, drafters.depth)
    except InputError:  # the engine drafted deeper than the profile's acceptance reaches
        return math.nan, math.nan
    rounds = expected_rounds(reached, round(answer) - 1)
    draft_s = at_drafter.draft.mean_s(drafters.depth, context) + at_drafter.catch_up_s * float(reached[-1])
    verify_s = at_target.verify.mean_s(drafters.shape.nodes(drafters.depth) + 1, context)
    return (
        at_drafter.prefill.mean_s(prompt) + rounds * draft_s,
        at_target.prefill.mean_s(prompt) + rounds * verify_s,
    )


def expected_rounds(reached: Floats, tokens: int) -> float:
    """Return the mean rounds for so many tokens, where a round accepts j draft tokens or more with chance reached[j-1].

    The round that completes a text may commit fewer tokens than it accepts: this is the renewal function.
    """
    if tokens > LONG:
        return expected_rounds(reached, LONG) + (tokens - LONG) / (1 + float(reached.sum()))
    chances = -np.diff(np.concatenate([[1.0], reached, [0.0]]))  # of 0, 1, ... accepted tokens
    rounds = np.zeros(max(tokens, 0) + len(chances))  # after the first ones, those of texts of 1, 2, ... tokens
    for place in range(len(chances), len(rounds)):
        rounds[place] = 1 + chances @ rounds[place - len(chances) : place][::-1]
    return float(rounds[-1])


def of_device_s(work_s: Floats, per_s: float, variability: float, arrivals: int) -> float:
    """Return the relaxation time of one device, in seconds, from the work of each of its arrivals, in seconds.

    - `per_s`, `variability`: rate of all arrivals, and squared coefficient of variation of their gaps.
    - `arrivals`: number of all arrivals, including those that did not visit this device.
    """
    load = per_s * work_s.sum() / arrivals
    if load >= 1:
        return math.inf
    variability = (variability + work_s.var() / work_s.mean() ** 2) / 2
    return float(work_s.mean() * 2 * (1 + load) / (1 - load) ** 2 * variability)


def _inside(rows: Table, commits: Table) -> Table:
    """Return the changes of the number of requests in the system, in order of time."""
    joins = rows.where(rows.event.among("join"))
    opened_s = joins.time_s[requests_of(joins).first]
    closed_s = requests_of(commits).largest(commits.time_s)
    time_s, change = np.concatenate([opened_s, closed_s]), np.repeat([1, -1], [len(opened_s), len(closed_s)])
    order = np.argsort(time_s, kind="stable")
    return Table.of(time_s=time_s[order], change=change[order])


def _of_number_inside_s(changes: Table, window: Window) -> float:
    """Integrated autocorrelation time of the number of requests in the system, by Geyer's initial monotone sequence."""
    cells_s = np.linspace(window.edges_s[0], window.edges_s[-1], CELLS)
    inside = np.append(0.0, np.cumsum(changes.change))[np.searchsorted(changes.time_s, cells_s)]
    deviations = inside - inside.mean()
    spectrum = np.abs(np.fft.rfft(deviations, 2 * CELLS)) ** 2
    covariance = np.fft.irfft(spectrum)[: CELLS // 2] / CELLS
    if covariance[0] == 0:
        return window.length_s / CELLS
    pairs = covariance[::2] + covariance[1::2]
    positive = pairs[: int(np.argmax(pairs <= 0))] if (pairs <= 0).any() else pairs
    integral = 2 * np.minimum.accumulate(positive).sum() - covariance[0]
    return float(max(integral / covariance[0], 1.0) * window.length_s / CELLS)
