"""What the demo found, in lines: the errors by where they come from come last."""

import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from experiments.compare.compare import ComparedQuantity, PredictionError
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


def plateau_rows(cells: Sequence[DemoCell]) -> list[tuple[str, float, float, float, float]]:
    """For each verification time: case, measured plateau of R_q over R_q at N = 1, its 95 % interval, and 1 + Z/S.

    The plateau is the mean over N >= N_full, pass by pass; the interval is Student's over the passes. Where no such N
    was run there is none.
    """
    rows = []
    replayed = [cell for cell in cells if cell.planned.kind == "replayed"]
    for case in dict.fromkeys(cell.case["targets"] for cell in replayed):
        rates = {
            cell.case["N"]: np.array([run["rounds_per_s"].value for run in cell.reruns.engine])
            for cell in replayed
            if cell.case["targets"] == case
        }
        prediction = predict(next(cell.scenario for cell in replayed if cell.case["targets"] == case))
        full = [rate for N, rate in rates.items() if prediction.N_full <= N]
        if not full:
            continue
        ratios = np.mean(full, axis=0) / rates[1]
        rows.append((case, float(np.mean(ratios)), *student_t_interval(ratios), prediction.plateau_ratio))
    return rows


def _plateaus(cells: Sequence[DemoCell]) -> Iterator[str]:
    for case, ratio, low, high, expected in plateau_rows(cells):
        interval = "one pass has no interval" if math.isnan(low) else f"{low:.2f} .. {high:.2f}"
        yield f"{case}: plateau of R_q over R_q at N = 1: {ratio:.2f} ({interval}), 1 + Z/S = {expected:.2f}"


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
        summary = summary_of([row for row in _rows(cells, "replayed", quantity) if row.steady])
        if summary is not None:
            yield (
                f"{quantity}, replayed targets, {summary.cells} steady cells: mechanism {summary.mechanism:.1%} (worst "
                f"{summary.mechanism_worst:.1%}), blind {summary.blind:.1%} (worst {summary.blind_worst:.1%})"
            )


def _three_errors(cells: Sequence[DemoCell]) -> Iterator[str]:
    for kind in ("real", "replayed"):
        for quantity in ("throughput", "rounds_per_s"):
            rows = _rows(cells, kind, quantity)
            summary = summary_of(rows)
            if summary is not None:
                yield f"{kind} targets, {quantity}, {summary.cells} cells of {len(rows[0].runs)} runs:"
                yield from (f"  {line}" for line in summary.lines())


def _rows(cells: Sequence[DemoCell], kind: str, quantity: str) -> list[ComparedQuantity]:
    return [row for cell in cells if cell.planned.kind == kind for row in cell.rows if row.quantity == quantity]


class Summary(msgspec.Struct, frozen=True):
    """Errors of one quantity over cells that were rerun, as shares: means over cells, and the worst cell.

    `mechanism` and `blind`, with `_worst`: from the cells' mean errors over their runs. `blind_one_run`: error of the
    blind prediction of one run. `host_one_run`: difference of two runs of one cell. `steady`: cells with runs that
    agree well enough to separate the prediction's error from the host's.
    """

    cells: int
    steady: int
    mechanism: float
    mechanism_worst: float
    blind: float
    blind_worst: float
    blind_one_run: float
    host_one_run: float

    @property
    def blind_over_host(self) -> float:
        """Ratio of a run's difference from its prediction to its difference from another run."""
        return self.blind_one_run / self.host_one_run if self.host_one_run else float("inf")

    def lines(self) -> list[str]:
        """Say the three errors, and how many cells are steady."""
        return [
            f"mechanism, steps and acceptance played back: {self.mechanism:.1%} (worst {self.mechanism_worst:.1%})",
            f"parameters, blind from the profile: {self.blind:.1%} (worst {self.blind_worst:.1%})",
            (
                f"host, a run against a rerun: {self.host_one_run:.1%}; a run against the blind prediction: "
                f"{self.blind_one_run:.1%}, {self.blind_over_host:.2f} times as much"
            ),
            f"{self.steady} of {self.cells} cells are steady: their reruns agree better than the prediction, or to 1 %",
        ]


def summary_of(rows: Sequence[ComparedQuantity]) -> Summary | None:
    """Return the summary of one quantity's rows; None where none of them was rerun and played back."""
    complete = [
        row for row in rows if row.mechanism is not None and row.parameters is not None and row.host is not None
    ]
    if not complete:
        return None
    mechanism, blind = (_cells([getattr(row, name) for row in complete]) for name in ("mechanism", "parameters"))
    return Summary(
        len(complete), sum(bool(row.steady) for row in complete), *mechanism, *blind,
        _one_run([row.parameters for row in complete]), _one_run([row.host for row in complete]),
    )  # fmt: skip


def _cells(errors: Sequence[PredictionError | None]) -> tuple[float, float]:
    """Mean and largest absolute value of the cells' errors."""
    values = [abs(error.value) for error in errors if error is not None]
    return (float(np.mean(values)), max(values)) if values else (float("nan"), float("nan"))


def _one_run(errors: Sequence[PredictionError | None]) -> float:
    return float(np.mean([error.absolute for error in errors if error is not None]))
