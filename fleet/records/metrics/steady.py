"""A run's length relative to the relaxation time of its queues, which decides whether an interval is printed.

The criterion does not use the metric itself: a lucky run looks more stationary than it is, and a rule that keeps the
intervals of lucky runs keeps those that miss the truth.
"""

import math

import numpy as np

from fleet.records.columns import Table
from fleet.records.metrics.findings import Findings
from fleet.records.metrics.grouped import Groups
from fleet.records.metrics.tables import at_drafter, requests_of
from fleet.records.metrics.window import Floats, Window
from fleet.scenario.arrivals import Gamma, Poisson
from fleet.scenario.resolved import Fleet

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
    if fleet.workload.arrivals is None or rows is None:
        return window.length_s * places_of(fleet) / float(window.sums(commits.time_s).sum()) / 2
    work = _work_s(fleet, rows)
    if work is None:
        return _of_number_inside_s(rows, commits, window)
    joins = rows.where(rows.event.among("join"))
    arrivals_s = np.sort(joins.time_s[Groups(joins.tag).first])
    gaps_s = np.diff(arrivals_s)
    if not len(gaps_s) or gaps_s.mean() == 0:
        return math.inf
    if isinstance(fleet.workload.arrivals, Poisson):
        per_s, variability = fleet.workload.arrivals.per_s, 1.0
    elif isinstance(fleet.workload.arrivals, Gamma):
        per_s, variability = fleet.workload.arrivals.per_s, 1 / fleet.workload.arrivals.burstiness
    else:
        per_s, variability = float(1 / gaps_s.mean()), float(gaps_s.var() / gaps_s.mean() ** 2)
    times_s = [of_device_s(work_s, per_s, variability, len(arrivals_s)) for work_s in work]
    return max(times_s, default=window.length_s / CELLS)  # nothing queues without work


def places_of(fleet: Fleet) -> int:
    """Concurrent streams; if every request is its own stream, the places of the batch or of the verifiers."""
    if fleet.streams:
        return fleet.streams
    return fleet.batch.rule.size if fleet.batch is not None else fleet.verifiers.count


def _work_s(fleet: Fleet, rows: Table) -> list[Floats] | None:
    """Work of each arrival on each device, device by device; None if steps are shared."""
    done = rows.where(rows.event.among("done") & (rows.duration_s > 0))
    if len(Groups(done.station, done.step)) < len(done):
        return None
    # Stations without a named device are devices of their own; others are identified by their device's side.
    drafting, own = at_drafter(done), done.station.codes
    sides = fleet.drafters.device, fleet.verifiers.device
    drafters, verifiers = (-1 - sides.index(device) if device else own for device in sides)
    device = np.where(drafting, drafters, verifiers)
    arrivals = Groups(device, done.tag)
    work_s, device = arrivals.sums(done.duration_s), device[arrivals.first]
    return [work_s[device == each] for each in np.unique(device)]


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


def _of_number_inside_s(rows: Table, commits: Table, window: Window) -> float:
    """Integrated autocorrelation time of the number of requests in the system, by Geyer's initial monotone sequence."""
    joins = rows.where(rows.event.among("join"))
    opened_s = np.sort(joins.time_s[requests_of(joins).first])
    closed_s = np.sort(requests_of(commits).largest(commits.time_s))
    cells_s = np.linspace(window.edges_s[0], window.edges_s[-1], CELLS)
    inside = np.searchsorted(opened_s, cells_s) - np.searchsorted(closed_s, cells_s).astype(float)
    deviations = inside - inside.mean()
    spectrum = np.abs(np.fft.rfft(deviations, 2 * CELLS)) ** 2
    covariance = np.fft.irfft(spectrum)[: CELLS // 2] / CELLS
    if covariance[0] == 0:
        return window.length_s / CELLS
    pairs = covariance[::2] + covariance[1::2]
    positive = pairs[: int(np.argmax(pairs <= 0))] if (pairs <= 0).any() else pairs
    integral = 2 * np.minimum.accumulate(positive).sum() - covariance[0]
    return float(max(integral / covariance[0], 1.0) * window.length_s / CELLS)
