"""What the demo found: at most eight lines to print, and more for the page."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from specfleet.experiments.compare.compare import ComparedQuantity, Comparison
from specfleet.experiments.demo.cells import TARGETS
from specfleet.experiments.sweep.cell import CellResult
from specfleet.experiments.sweep.findings import COUNT, knees
from specfleet.fleet.records.delayed import delayed_share
from specfleet.fleet.records.overheads import late_starts
from specfleet.fleet.records.run import Run
from specfleet.fleet.shown import number
from specfleet.fleet.times.profile import HardwareProfile

JUDGED = ("rounds_per_s", "throughput")
UNSTEADY = 0.05  # difference of two runs of a cell from which the host counts as unsteady
AS_GOOD = 0.03  # a blind error that is small on any host ...
OVER_HOST = 1.25  # ... or this many times the difference of two runs


class Errors(NamedTuple):
    """Errors over cells and quantities, as shares: means, and the worst cell's where named so.

    All are of one run: by how much it is off its prediction, and off another run of its cell.
    """

    blind: float
    blind_worst: float
    mechanism: float
    mechanism_worst: float
    host: float


def findings(measured: Sequence[CellResult], comparison: Comparison, runs: Sequence[Run]) -> list[str]:
    """Return the lines to print: the knees as measured, throughput in both worlds, errors, a verdict."""
    errors = errors_of(comparison.rows)
    blind = f"{errors.blind:.1%} from the profile alone (worst {errors.blind_worst:.1%})"
    played = f"{errors.mechanism:.1%} from its own steps and acceptance (mechanism; worst {errors.mechanism_worst:.1%})"
    lost = float(np.mean([delayed_share(run) for run in runs]))
    host = f"a run and its rerun differ by {errors.host:.1%}; other work delayed steps by {lost:.1%} of their time"
    return [
        *knees(measured),
        *throughput_lines(comparison.rows),
        f"error of a run's rounds/s and tokens/s: {blind}; {played}; host: {host}",
        verdict(errors),
    ]


def throughput_lines(rows: Sequence[ComparedQuantity]) -> Iterator[str]:
    """Yield a line for each kind of targets: its throughput in both worlds, by N."""
    by_name: dict[str, list[str]] = {}
    for row in rows:
        if row.quantity == "throughput":
            text = f"N = {row.case[COUNT]}: {number(row.sim)}, {number(row.engine)}"
            by_name.setdefault(row.case[TARGETS], []).append(text)
    for name, texts in by_name.items():
        yield f"{name}: tokens/s simulated, measured: {'; '.join(texts)}"


def verdict(errors: Errors) -> str:
    """Say how far the prediction can be trusted."""
    queueing = f"the queueing model is within {errors.mechanism:.1%}"
    if errors.host >= UNSTEADY:
        return f"unsteady host: reruns differ by {errors.host:.0%}; {queueing}; repeat on a quiet host"
    if errors.blind <= max(AS_GOOD, OVER_HOST * errors.host):
        return f"steady host; the profile predicts runs as well as a rerun does, or within {AS_GOOD:.0%}; {queueing}"
    return f"steady host, and the profile's step times are not those of the runs ({errors.blind:.1%}); {queueing}"


def errors_of(rows: Sequence[ComparedQuantity]) -> Errors:
    """Return the means of the absolute errors of the judged rows that were rerun and played back."""
    judged = [(row.parameters, row.mechanism, row.host) for row in rows if row.quantity in JUDGED]
    known = [[error.absolute for error in errors if error] for errors in judged if None not in errors]
    blind, mechanism, host = np.array(known).T
    return Errors(*map(float, (blind.mean(), blind.max(), mechanism.mean(), mechanism.max(), host.mean())))


def details(profile: HardwareProfile, runs: Sequence[Run], contradictions: Sequence[str]) -> dict[str, str]:
    """Return facts for the page, by name; `contradictions`: of replaying the runs' logs on fresh stations."""
    started, late = [run.header.started_unix_s for run in runs], list(map(late_starts, runs))
    return {
        "profile": f"{profile.digest()}, written {profile.provenance['written']}",
        "steps of the calibration that the host delayed": f"{profile.measured['delayed_share']:.1%}, left out",
        "steps of the calibration, its slowest pass over its quickest": f"+ {profile.measured['passes_differ']:.1%}",
        "calibration": "before, between and after the passes of runs; other prompts, other fleets",
        "passes of runs": f"over {(max(started) - min(started)) / 60:.1f} minutes",
        f"contradictions of {len(runs)} logs, replayed on fresh stations": "; ".join(contradictions) or "none",
        "steps that started late": f"{np.mean(late):.1%} on average, {max(late):.1%} in the worst run",
    }
