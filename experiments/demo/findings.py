"""What the demo found, in lines: the errors by where they come from come last."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from experiments.compare.compare import ComparedQuantity
from experiments.compare.differences import BUSY
from experiments.demo.cells import DemoCell
from fleet.records.metrics.intervals import student_t_interval
from fleet.records.overheads import late_starts
from fleet.records.replay import replay
from fleet.records.run import Run
from fleet.times.profile import HardwareProfile
from sim.predict import predict

TAILS = ("tpot_p90_s", "tpot_p99_s", "ttft_p90_s", "wait_p90_s", "wait_p99_s", "round_p90_s", "round_p99_s")


def findings(profile: HardwareProfile, cells: Sequence[DemoCell], contradictions: Sequence[str]) -> list[str]:
    """Return the lines to print."""
    logs = sum(len(cell.runs) + 1 for cell in cells)
    return [
        f"profile {profile.digest()}, written {profile.provenance['written']}, before the runs",
        late_text(cells),
        *_plateaus(cells),
        *_baselines(cells),
        f"replay of {logs} logs on fresh stations: {'; '.join(contradictions) or 'no contradiction'}",
        *_tails(cells),
        *_three_errors(cells),
    ]


def contradictions_in(runs: Sequence[Run]) -> list[str]:
    """Return what the logs of some runs say that fresh stations would not have done (law 1)."""
    return [line for run in runs for line in replay(run)]


def late_text(cells: Sequence[DemoCell]) -> str:
    """Say how many steps of the engine's runs started late, as a share of each run's steps."""
    shares = [late_starts(run) for cell in cells for run in cell.runs]
    found = f"steps that started late: {np.mean(shares):.1%} on average, {max(shares):.1%} in the worst run"
    return found + ("; validate on a quieter host" if max(shares) >= BUSY else "")


def _plateaus(cells: Sequence[DemoCell]) -> Iterator[str]:
    """For each verification time: the measured plateau of R_q over R_q at N = 1, its 95 % interval, and 1 + Z/S.

    The plateau is the mean over N >= N_full, pass by pass; the interval is Student's over the passes. Where no such N
    was run there is none.
    """
    replayed = [cell for cell in cells if cell.planned.kind == "replayed"]
    for case in dict.fromkeys(cell.case["targets"] for cell in replayed):
        same = [cell for cell in replayed if cell.case["targets"] == case]
        rates = {cell.case["N"]: np.array([run["rounds_per_s"].value for run in cell.reruns.engine]) for cell in same}
        prediction = predict(same[0].scenario)
        full = [rate for N, rate in rates.items() if prediction.N_full <= N]
        if full:
            ratios = np.mean(full, axis=0) / rates[1]
            low, high = student_t_interval(ratios)
            interval = "one pass has no interval" if math.isnan(low) else f"{low:.2f} .. {high:.2f}"
            measured = f"plateau of R_q over R_q at N = 1: {ratios.mean():.2f} ({interval})"
            yield f"{case}: {measured}, 1 + Z/S = {prediction.plateau_ratio:.2f}"


def _baselines(cells: Sequence[DemoCell]) -> Iterator[str]:
    for cell in cells:
        if cell.planned.kind == "baseline":
            yield (
                f"{cell.case['targets']} baseline: engine {cell.measured('throughput'):.0f} tokens/s, "
                f"simulation {cell.blind['throughput'].value:.0f}"
            )


def _tails(cells: Sequence[DemoCell]) -> Iterator[str]:
    """Errors of percentiles over the cells with reruns that agree well enough."""
    for quantity in TAILS:
        rows = [row for row in complete(_rows(cells, "replayed", quantity)) if row.steady]
        if rows:
            yield (
                f"{quantity}, replayed targets, {len(rows)} steady cells: mechanism {_off_by(rows, 'mechanism')}, "
                f"blind {_off_by(rows, 'parameters')}"
            )


def _three_errors(cells: Sequence[DemoCell]) -> Iterator[str]:
    for kind in ("real", "replayed"):
        for quantity in ("throughput", "rounds_per_s"):
            rows = complete(_rows(cells, kind, quantity))
            if rows:
                yield f"{kind} targets, {quantity}, {len(rows)} cells of {len(rows[0].runs)} runs:"
                yield from (f"  {line}" for line in error_lines(rows))


def _rows(cells: Sequence[DemoCell], kind: str, quantity: str) -> list[ComparedQuantity]:
    return [row for cell in cells if cell.planned.kind == kind for row in cell.rows if row.quantity == quantity]


def complete(rows: Sequence[ComparedQuantity]) -> list[ComparedQuantity]:
    """Return the rows of cells that were rerun and played back."""
    return [row for row in rows if None not in (row.mechanism, row.parameters, row.host)]


def error_lines(rows: Sequence[ComparedQuantity]) -> list[str]:
    """Say the three errors of complete rows, one a cell, and how many cells are steady.

    Those of one run: how far it is from the blind prediction, and from another run of its cell.
    """
    host, blind = (float(np.mean([getattr(row, name).absolute for row in rows])) for name in ("host", "parameters"))
    return [
        f"mechanism, steps and acceptance played back: {_off_by(rows, 'mechanism')}",
        f"parameters, blind from the profile: {_off_by(rows, 'parameters')}",
        (
            f"host, a run against a rerun: {host:.1%}; a run against the blind prediction: "
            f"{blind:.1%}, {blind / host if host else math.inf:.2f} times as much"
        ),
        (
            f"{sum(bool(row.steady) for row in rows)} of {len(rows)} cells are steady: "
            "their reruns agree better than the prediction, or to 1 %"
        ),
    ]


def _off_by(rows: Sequence[ComparedQuantity], name: str) -> str:
    """Say the mean and the worst of the cells' errors, each the mean over a cell's runs."""
    values = [abs(getattr(row, name).value) for row in rows]
    return f"{np.mean(values):.1%} (worst {max(values):.1%})"
